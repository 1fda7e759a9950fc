"""The answers to /api/quarantine: records that were set aside, with their reasons."""

from __future__ import annotations

from itertools import islice
from typing import Any

from penstock.errors import UnknownNameError
from penstock.monitor.folder import quarantined_records
from penstock.page.answers import LISTED, cut, encoded, short_name
from penstock.page.folder import Snapshot
from penstock.spark.results.joined_rows import TABLES
from penstock.spark.storage.layout import Layout

#: records of one answer
MOST_LIMIT = 1_000
#: records that are looked through for those with a reason
_MOST_LOOKED = 20_000
#: reasons of a stream, and characters of a record
_MOST_REASONS, _MOST_RECORD = 100, 4_000


def quarantine_answer(snapshot: Snapshot) -> bytes:
    """How many records of each stream, and static table, were set aside, and why."""
    counts = _counts(snapshot)
    return encoded({"streams": [_line(name, own) for name, own in counts.items()]})


def records_answer(layout: Layout, snapshot: Snapshot, asked: str, reason: str, limit: int) -> bytes:
    """Records that were set aside, the newest first.

    Args:
        layout: of the results folder.
        snapshot: of the folder.
        asked: a stream's name, or a static table's, whole or as lists show it.
        reason: why; "" for all.
        limit: how many at the most.

    Raises:
        UnknownNameError: there is no such stream.
        DamagedError: a file of them cannot be read.
    """
    counts = _counts(snapshot)
    names = {shown: name for name in counts for shown in (name, short_name(name))}
    if asked not in names:
        raise UnknownNameError(f"Stream {cut(asked, 100)} does not exist.")
    name = names[asked]
    looked = islice(quarantined_records(layout, name, 0), _MOST_LOOKED if reason else limit)
    # places of files are counted without the details
    wanted = (
        each for each in looked if not reason or reason in (each["reason"], each["reason"].partition(":")[0])
    )
    records = [
        {**each, **{what: _cut(each[what], most) for what, most in _CUTS}} for each in islice(wanted, limit)
    ]
    return encoded({"stream": name, "records": records})


_CUTS = (("reason", LISTED), ("origin", LISTED), ("record", _MOST_RECORD))


def _cut(text: str | None, most: int) -> str | None:
    return None if text is None else cut(text, most)


def _counts(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """By stream and static table, how many records were set aside for each reason."""
    document = snapshot.document
    found = {name: stream.get("quarantined") or {} for name, stream in document["streams"].items()}
    for entry in snapshot.catalog["views"].values():
        for table in entry.get(TABLES) or ():
            found.setdefault(table, {})
    for view in document["views"].values():
        for table, known in (view.get("tables") or {}).items():
            if not found.get(table):
                found[table] = known.get("malformed") or {}
    return found


def _line(name: str, counts: dict[str, int]) -> dict[str, Any]:
    ordered = sorted(counts.items(), key=lambda each: -each[1])
    return {
        "name": short_name(name),
        "records": sum(counts.values()),
        "reasons": [{"reason": cut(reason), "count": count} for reason, count in ordered[:_MOST_REASONS]],
    }
