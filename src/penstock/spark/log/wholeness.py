"""Which operators that began in mid-stream are settled: they have the tuples of the batches before, or never will.

An operator without a mark lacks them so far. The commit that puts the entry with its partials puts the mark, so neither is there without the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.spark.storage.formats import BACKFILL
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.ledger_documents import StoredDocument


def never_whole(layout: Layout, stream: str) -> set[int]:
    """The operators of a stream that lack tuples for good: the batches before their first one cannot be read again."""
    marks = layout.backfilled(stream)
    told = {
        int(number): BACKFILL.opened(mark, marks[number]) for number, mark in marks.all(BACKFILL.kind).items()
    }
    return {number for number, mark in told.items() if mark["impossible"] is not None}


def settled(
    layout: Layout, stream: str, operators: Iterable[int], impossible: str | None = None
) -> dict[StoredDocument, dict[str, Any]]:
    """The marks of operators, for a commit; `impossible`: why they lack tuples for good, None: they are whole."""
    marks = layout.backfilled(stream)
    return {marks[each]: BACKFILL.stamped({"impossible": impossible}) for each in operators}
