"""The queries of Nexmark as views: by a lane where one answers them, else refreshed."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from penstock import Engine
from penstock.errors import InputError

#: behind the first SELECT of a query
_SELECT = re.compile(r"\bSELECT\b", re.IGNORECASE)
_HINT = re.compile(r"/\*\+.*?\*/ ?", re.DOTALL)
#: not among the queries that Flink's SQL runs, or not with their meaning there
WITHOUT_ANCHOR = {
    "q6": "Flink's SQL cannot run it",
    "q12": "by event time, as processing time has no batch answer",
}


def nexmark_queries(folder: Path) -> dict[str, str]:
    """The texts by name, in order, of a folder of files `q0.sql`, `q1.sql` and so on."""
    files = sorted(folder.glob("q*.sql"), key=lambda file: int(file.stem[1:]))
    return {file.stem: file.read_text().strip() for file in files}


def refreshed(query: str, interval: str = "1 minute") -> str:
    """A query as a refreshed view, without hints of its own."""
    return _SELECT.sub(f"SELECT /*+ REFRESH('{interval}') */", _HINT.sub("", query), count=1)


#: one refresh over stored events takes less time than their lanes (decision 0132)
FASTER_REFRESHED = ("q8", "q9")


def declare_nexmark(
    engine: Engine, queries: dict[str, str], interval: str = "1 minute", refresh: Collection[str] = ()
) -> dict[str, str]:
    """Declares a view a query.

    Args:
        engine: has the streams.
        queries: the texts by name.
        interval: of the queries that are refreshed.
        refresh: those that are refreshed though lanes answer them.

    Returns:
        Why each view that is refreshed is, by name; the others are answered by lanes.

    Raises:
        InputError: a query cannot be answered at all.
    """
    reasons = {}
    for name, query in queries.items():
        if name in refresh:
            reasons[name] = "one refresh takes less time"
            engine.view(name, refreshed(query, interval))
            continue
        try:
            engine.view(name, query)
        except InputError as error:
            reasons[name] = str(error)
            engine.view(name, refreshed(query, interval))
    return reasons
