"""What a cut changes in the rows of a LEFT OUTER JOIN, in one cell: pairs, left tuples without a partner, and those withdrawn.

Rows without a partner are named by their left tuple and the lane that tells them, so that who reads knows which ones are withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.operators.hashing import key_hashes, value_hashes
from penstock.operators.joins.cell import CellJoin
from penstock.operators.joins.outer import LEFT, CellOuter
from penstock.operators.joins.tuples import InputRuns
from penstock.plan.joins import JoinOrder, JoinPlan

#: columns behind those of a row: what is done with it, and of one without a partner which it is; NULL for others
OP, ROW = "op", "_row"
#: values of OP
INSERT, DELETE = "insert", "delete"
#: the type of ROW: the left tuple's event time and a hash of the lane and of what the tuple's matches depend on, 8 bytes each
_NAME = pa.binary(16)


@dataclass(frozen=True, slots=True)
class Due:
    """Which left tuples without a partner a cut tells.

    Attributes:
        after: those with event times up to here were told with the cuts before, microseconds.
        until: those up to here are told now, no earlier.
    """

    after: int
    until: int


class CellChanges:
    """The changes of a cut in a cell.

    Args:
        plan: the join of a stream with an optional one; only kernels judge which tuples match.
        order: how it is joined.
        cell: number of the cell.
        inputs: as for `CellJoin`.
        columns: names of the inputs' columns that are told of each row, at least one.
        due: which left tuples are due.
        lane: number of the lane, which withdraws rows of its own only: a view declared again has another.

    Raises:
        ValueError: as of `CellJoin` and `CellOuter`.
    """

    def __init__(
        self,
        plan: JoinPlan,
        order: JoinOrder,
        cell: int,
        inputs: Sequence[Mapping[int | None, InputRuns]],
        columns: Sequence[str],
        due: Due,
        lane: int,
    ) -> None:
        self._matched_by = matched_by(plan)
        self._types = {column.name: column.type for each in plan.inputs for column in each.columns}
        self._columns, self._due, self._lane = columns, due, lane
        own = [column.name for column in plan.inputs[LEFT].columns if column.name in columns]
        #: of the pairs
        self.join = CellJoin(plan, order, cell, inputs, columns)
        self._outer = CellOuter(plan, order, cell, inputs, list(dict.fromkeys((*own, *self._matched_by))))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows that are told or withdrawn, with OP and ROW, in no order; no batch is empty."""
        for pairs in self.join.batches():
            yield self._marked(pairs.columns, INSERT, pa.nulls(pairs.num_rows, pa.binary()))
        for rows in self._outer.withdrawn(self._due.after):
            yield self._filled(rows, DELETE)
        for rows in self._outer.unmatched(self._due.after, self._due.until):
            yield self._filled(rows, INSERT)

    def _filled(self, rows: pa.RecordBatch, op: str) -> pa.RecordBatch:
        """Left tuples as rows without a partner."""
        known = rows.schema.names
        arrays = [
            rows.column(name) if name in known else pa.nulls(rows.num_rows, self._types[name])
            for name in self._columns
        ]
        return self._marked(arrays, op, _names(rows, self._matched_by, self._lane))

    def _marked(self, arrays: Sequence[pa.Array], op: str, names: pa.Array) -> pa.RecordBatch:
        ops = pa.repeat(pa.scalar(op), len(names))
        return pa.RecordBatch.from_arrays([*arrays, ops, names], [*self._columns, OP, ROW])


def matched_by(plan: JoinPlan) -> tuple[str, ...]:
    """The columns of the left input on which it depends what its tuples match, the event time first."""
    inputs, time = plan.inputs, plan.inputs[LEFT].time
    assert time is not None, "it is a stream"
    own = {column.name for column in inputs[LEFT].columns}
    keys = (key.columns[LEFT] for key in plan.keys)
    compared = (name for each in plan.comparisons for name in (each.left, each.right) if name in own)
    return tuple(dict.fromkeys((time, *(name for name in keys if name is not None), *compared)))


def _names(rows: pa.RecordBatch, columns: Sequence[str], lane: int) -> pa.Array:
    """ROW of left tuples; tuples that match alike at one event time have the same, as they are told and withdrawn alike."""
    table = pa.table(rows)
    moments = table.column(columns[0]).combine_chunks().cast(pa.int64()).fill_null(0)
    hashes = key_hashes(table, columns) ^ value_hashes(pa.array([lane]))
    words = np.stack([moments.to_numpy().view(np.uint64), hashes], axis=1)
    packed = pa.py_buffer(np.ascontiguousarray(words))
    return pa.FixedSizeBinaryArray.from_buffers(_NAME, len(table), [None, packed]).cast(pa.binary())
