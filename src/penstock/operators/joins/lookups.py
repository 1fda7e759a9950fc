"""Joined rows with their partners in a static table, or with NULL: a LEFT JOIN behind the join of a cell.

Rows come and go as record batches. Whatever else they have, such as what is done with them, is carried along; so a row that is withdrawn
goes through the same lookups as the one that it withdraws.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.joins.columns import Bools, Column
from penstock.operators.joins.conditions import ALL_TIMES
from penstock.operators.joins.decode import TEXT_BYTES, decoded
from penstock.operators.joins.measures import DecodeMeasure, StepMeasure
from penstock.operators.joins.steps import PIECE_ROWS, Rows, Step
from penstock.operators.joins.tuples import CellTuples, InputRuns
from penstock.plan.joins import JoinColumn, JoinInput, JoinPlan, Lookup, Method, ProbeStep

#: inputs of a lookup as a join, and which row of a batch a joined one is of
_ROWS, _TABLE, _PLACE = 0, 1, -1
#: the cell of a looked-up table's run
CELL = 0


class TableLookup:
    """Looks batches of rows up in a static table.

    It holds a batch, and beside it what a step by merge holds (see `Step`).

    Args:
        lookup: the lookup.
        table: the table's tuples in `CELL`, sorted by the first key, or by nothing if there is none.
        columns: the table's columns that rows get.
        piece_rows: rows are made in pieces of about so many.
        text_bytes: a batch of several rows has no more bytes of strings than this.
    """

    def __init__(
        self,
        lookup: Lookup,
        table: InputRuns,
        columns: Sequence[str],
        *,
        piece_rows: int = PIECE_ROWS,
        text_bytes: int = TEXT_BYTES,
    ) -> None:
        self._lookup, self._columns = lookup, tuple(columns)
        self._table = CellTuples(table, 0 if lookup.keys else None, CELL)
        self._types = {column.name: column.type for column in lookup.input.columns}
        self._piece_rows, self._text_bytes = piece_rows, text_bytes
        self._step = ProbeStep(_TABLE, *((Method.MERGE, 0) if lookup.keys else (Method.NESTED, None)))
        #: what searching did so far
        self.measure = StepMeasure()

    def batches(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, each with all of its partners or once with NULL; no batch is empty.

        Args:
            rows: they have `Lookup.columns`.
        """
        for batch in rows:
            yield from self._looked_up(batch)

    def _looked_up(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        tuples = {_ROWS: _BatchTuples(batch), _TABLE: self._table}
        named = [(name, _ROWS) for name in batch.schema.names]
        alone = np.ones(batch.num_rows, np.bool_)
        places = np.flatnonzero(self._may_match(batch))
        if self._table.slots and len(places):
            step = self._searching(batch, tuples)
            for piece in step.partners(iter([{_ROWS: places, _PLACE: places}])):
                alone[piece[_PLACE]] = False
                if len(piece[_TABLE]):
                    every = [*named, *((name, _TABLE) for name in self._columns)]
                    yield from self._decoded(piece, tuples, every)
        if alone.any():
            filled = batch if alone.all() else batch.filter(pa.array(alone))
            for name in self._columns:
                filled = filled.append_column(name, pa.nulls(filled.num_rows, self._types[name]))
            yield filled

    def _searching(self, batch: pa.RecordBatch, tuples: dict[int, CellTuples]) -> Step:
        own = {each.name for each in self._lookup.input.columns}
        columns = [
            JoinColumn(each.name, each.name, each.type) for each in batch.schema if each.name not in own
        ]
        plan = JoinPlan(
            self._lookup.input.alias,
            (JoinInput("", "", False, None, tuple(columns), None), self._lookup.input),
            self._lookup.keys,
            (),
            self._lookup.comparisons,
            (),
            (),
        )
        return Step(
            plan, self._step, tuples, (_ROWS,), self._table.slots, ALL_TIMES, self._piece_rows, self.measure
        )

    def _may_match(self, batch: pa.RecordBatch) -> Bools:
        """Which rows meet what ON says of them alone."""
        met = np.ones(batch.num_rows, np.bool_)
        for name in self._lookup.required:
            met &= pc.fill_null(batch.column(name), False).to_numpy(zero_copy_only=False)
        return met

    def _decoded(
        self, rows: Rows, tuples: dict[int, CellTuples], columns: Sequence[tuple[str, int]]
    ) -> Iterator[pa.RecordBatch]:
        own = {number: ids for number, ids in rows.items() if number != _PLACE}
        yield from decoded(own, tuples, columns, self._text_bytes, DecodeMeasure())


class _BatchTuples(CellTuples):
    """The rows of a batch as tuples; their ids are their places.

    Args:
        batch: the rows.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        super().__init__(InputRuns((), ()), None, CELL)
        self._batch = batch

    def column(self, name: str) -> Column:
        """See `CellTuples.column`."""
        if name not in self._columns:
            self._columns[name] = Column([self._batch.column(name)])
        return self._columns[name]
