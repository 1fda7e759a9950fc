"""The answer to /api/deadlines: views with a deadline, and what became of their newest windows."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from penstock.errors import SqlError
from penstock.page.answers import cut, encoded, short_name
from penstock.page.folder import Signature, Snapshot
from penstock.page.views import kind_of
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.manifests import MERGED, read_published
from penstock.spark.storage.deadlines import DEADLINES_NAME
from penstock.spark.storage.layout import Layout

#: views and windows of one answer
_MOST_VIEWS, _MOST_WINDOWS = 500, 500
_OUTCOMES = ("released", "late", "missed", "shed", "failed", "approximated")

Window = dict[str, Any]


class Outcomes:
    """What became of the newest windows with a deadline, by the manifests; read anew where they changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: tuple[Signature, list[Window]] | None = None

    def newest(self, layout: Layout, counted: int) -> list[Window]:
        """The newest windows, the newest first.

        Args:
            layout: of the results folder.
            counted: the last publication that the status knows.

        Raises:
            DamagedError: a manifest is missing or damaged.
        """
        name = results_of(DEADLINES_NAME)
        signature = (counted, layout.manifests(name)[MERGED].signature())
        with self._lock:
            if self._read is None or self._read[0] != signature:
                self._read = signature, _windows(read_published(layout, name).batches)
            return self._read[1]


def _windows(batches: Sequence[Mapping[str, Any]]) -> list[Window]:
    found: dict[tuple[str, float, float], Window] = {}
    for figures in batches:
        for told in figures.get("outcomes") or ():
            found[told["view"], told["start"], told["end"]] = {
                "view": short_name(told["view"]),
                "start": told["start"] / 1e6,
                "end": told["end"] / 1e6,
                "arrived": told["arrived"],
                "deadline": told["deadline"],
                "outcome": told["outcome"],
                "predicted": told.get("predicted_seconds"),
                "real": told.get("seconds"),
                "reason": None if told.get("reason") is None else cut(told["reason"]),
            }
        for told in figures.get("late") or ():
            window = found.get((told["view"], told["start"], told["end"]))
            if window is not None and told.get("given_up") is None:
                window.update(outcome="late", real=told.get("seconds"))
    ordered = sorted(found.values(), key=lambda window: float(window["arrived"]), reverse=True)
    return ordered[:_MOST_WINDOWS]


def deadlines_answer(layout: Layout, snapshot: Snapshot, outcomes: Outcomes) -> bytes:
    """Views with a deadline.

    Args:
        layout: of the results folder.
        snapshot: of the folder.
        outcomes: of earlier requests.

    Raises:
        DamagedError: a manifest is missing or damaged.
    """
    entries = snapshot.views.index.entries
    names = [
        name for name, entry in entries.items() if kind_of(entry) == "deadline" and not entry.get("dropped")
    ]
    if not names:
        return encoded({"views": [], "windows": []})
    lane = (snapshot.document.get("lanes") or {}).get(results_of(DEADLINES_NAME)) or {}
    windows = outcomes.newest(layout, lane.get("counted", -1))
    return encoded(
        {"views": [_view(snapshot, name, windows) for name in names[:_MOST_VIEWS]], "windows": windows}
    )


def _view(snapshot: Snapshot, name: str, windows: Sequence[Window]) -> dict[str, Any]:
    view = snapshot.document["views"].get(name) or {}
    standing = view.get("standing") or {}
    deadline, loss = _hints(str(snapshot.views.index.entries[name].get("sql", "")))
    counts = {outcome: view.get(outcome) or 0 for outcome in _OUTCOMES}
    settled = sum(counts[outcome] for outcome in ("released", "missed", "shed", "failed"))
    return {
        "name": short_name(name),
        "deadline": deadline,
        "loss": loss,
        **counts,
        "in_time": counts["released"] / settled if settled else None,
        "rho": standing.get("rho"),
        "allowance": (standing.get("constraint") or {}).get("k"),
        "asks": asked_of(windows, short_name(name)),
        "overloaded": bool(standing.get("overloaded")),
        "broken": standing.get("violations") or 0,
    }


def asked_of(windows: Sequence[Window], view: str) -> float | None:
    """The share of one processor that working out all windows of a view takes, by their predicted costs; None where too few are known.

    Args:
        windows: the newest ones of all views.
        view: its name, as they have it.
    """
    own = [window for window in windows if window["view"] == view and window["predicted"] is not None]
    created = [window["arrived"] for window in own]
    passed = max(created) - min(created) if len(own) > 2 else 0.0
    return sum(window["predicted"] for window in own[:-1]) / passed if passed > 0 else None


@lru_cache(maxsize=_MOST_VIEWS)
def _hints(text: str) -> tuple[float | None, list[int] | None]:
    """The deadline of a query in seconds, and the losses it allows."""
    # the parser takes long to load
    from penstock.sql.text.lexing import tokenize
    from penstock.sql.text.parts import split_query

    try:
        hints = split_query(text, tokenize(text)).hints
    except SqlError:
        return None, None
    loss = None if hints.loss is None else hints.loss.constraint
    return hints.deadline_seconds, None if loss is None else [loss.k, loss.m]
