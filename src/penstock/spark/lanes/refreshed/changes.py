"""What is told of a refreshed view: its answer beside the one before, as rows that come and rows that go.

An answer is a multiset: equal rows are told apart by nothing but their number. Each row that was told has a name, by which it is withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.joins.changes import DELETE, INSERT
from penstock.operators.windows.flattening import flattened
from penstock.operators.windows.grouping import shared_codes
from penstock.spark.results.joined_rows import MARKS, marks_of

#: of a name: the cut that told the row, and its place there, 8 bytes each
_NAME = pa.binary(16)


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """How an answer differs from the one before.

    Attributes:
        rows: what is told: the view's columns and `marks_of` them; empty where nothing has changed.
        now: the answer: the view's columns and the names of its rows.
        inserted, deleted: number of rows that come and go.
    """

    rows: pa.Table
    now: pa.Table
    inserted: int
    deleted: int


#: nothing is told; the answer is that of before
UNCHANGED = Change(pa.table({}), pa.table({}), 0, 0)


def named_schema(own: pa.Schema) -> pa.Schema:
    """The columns of rows with their names, given a view's own columns."""
    return pa.schema([*own, marks_of(own.names).field(1)])


def changed(before: pa.Table, answer: pa.Table, cut: int) -> Change:
    """Compares an answer with the one before.

    Args:
        before: the answer before, see `Change.now`.
        answer: the rows that Spark answers now.
        cut: its number.
    """
    own = answer.schema.names
    told = before.select(own)
    known, asked = shared_codes([flattened(told), flattened(answer)], _places(answer))
    kept, found = _paired(known, asked)
    new, gone = np.flatnonzero(~found), np.flatnonzero(~kept)
    marks = marks_of(own)
    come = answer.take(pa.array(new)).append_column(marks.field(1), _names(cut, len(new)))
    went = before.take(pa.array(gone))
    rows = pa.concat_tables([_with_op(went, DELETE), _with_op(come, INSERT)])
    now = pa.concat_tables([before.filter(pa.array(kept)), come])
    return Change(rows.select([*own, *marks.names]), now, len(new), len(gone))


def standing(published: Iterable[pa.RecordBatch], own: pa.Schema, count: int) -> pa.Table:
    """The answer that published rows come to: those inserted whose name no `delete` has.

    It holds the answer and what is deleted of older rows, not all that was published, and reads no further back than to the oldest row.

    Args:
        published: the view's columns and `marks_of` them, the newest rows first; those of a batch in the order of their publication.
        own: the view's columns.
        count: how many rows the answer has.
    """
    wanted = named_schema(own)
    op, name = marks_of(own.names).names
    gone: set[bytes] = set()
    found, missing = [wanted.empty_table()], count
    for batch in published:
        if not missing:
            break
        names = batch.column(name).to_pylist()
        deletes = pc.equal(batch.column(op), DELETE).to_pylist()
        gone.update(each for each, is_delete in zip(names, deletes, strict=True) if is_delete)
        stays = [not is_delete and each not in gone for each, is_delete in zip(names, deletes, strict=True)]
        gone.difference_update(each for each, is_delete in zip(names, deletes, strict=True) if not is_delete)
        kept = pa.table(batch.filter(pa.array(stays, pa.bool_()))).select(wanted.names).cast(wanted)
        missing -= kept.num_rows
        found.append(kept)
    return pa.concat_tables(found[::-1])


def _paired(
    known: npt.NDArray[np.int64], asked: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which rows of two multisets are in both, given a number a row that equal rows share."""
    most = max(len(known), len(asked), 1)
    of_known, of_asked = (codes * most + _occurrences(codes) for codes in (known, asked))
    return np.isin(of_known, of_asked), np.isin(of_asked, of_known)


def _occurrences(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many equal numbers are before each."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if len(codes) else np.zeros(0, np.bool_)
    starts = np.flatnonzero(begins)
    lengths = np.diff(np.append(starts, len(codes)))
    found = np.empty(len(codes), np.int64)
    found[order] = np.arange(len(codes)) - np.repeat(starts, lengths)
    return found


def _places(table: pa.Table) -> list[str]:
    """The names of the columns of a flattened table."""
    return list(flattened(table.slice(0, 0)).column_names)


def _names(cut: int, rows: int) -> pa.Array:
    words = np.stack([np.full(rows, cut, ">u8"), np.arange(rows).astype(">u8")], axis=1)
    packed = pa.py_buffer(np.ascontiguousarray(words))
    return pa.FixedSizeBinaryArray.from_buffers(_NAME, rows, [None, packed]).cast(pa.binary())


def _with_op(rows: pa.Table, op: str) -> pa.Table:
    own = rows.schema.names[:-1]
    kind = MARKS.field(0).type
    return rows.append_column(marks_of(own).field(0), pa.repeat(pa.scalar(op, kind), rows.num_rows))
