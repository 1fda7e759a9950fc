"""A cut of a windowed join in one cell of its grid.

Pairs are told once: what is new of an input meets what is new and old of the inputs behind it and what is old of those
before it (delta queries; Blakeley, Larson and Tompa, "Efficiently updating materialized views", 1986). Each of these terms
follows its probe order, piece by piece, first as ids of rows; columns are decoded at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from penstock.operators.joins.checks import check
from penstock.operators.joins.conditions import reach_of
from penstock.operators.joins.decode import TEXT_BYTES, decoded, owned
from penstock.operators.joins.measures import DecodeMeasure, StepMeasure
from penstock.operators.joins.steps import PIECE_ROWS, Rows, Step, coalesced, rows_of
from penstock.operators.joins.tuples import CellInputs, CellTuples, InputRuns, span_of
from penstock.plan.joins import JoinOrder, JoinPlan, ProbeOrder


class CellJoin:
    """The joined rows of a cut in one cell.

    It holds no more than pieces of `piece_rows` joined rows, one a step and one being decoded (8 bytes an input and row,
    with 100 bytes a row for what is searched and the columns that are asked for), 16 bytes for each row of a piece and part searched,
    and the tables of steps by hash or nested loops (32 bytes a tuple within the span of the new ones).

    Args:
        plan: the join. LEFT OUTER is joined as INNER here.
        order: how it is joined.
        cell: number of the cell.
        inputs: of each input its tuples by the key they are sorted by (None: by event time alone); all of these hold
            the same tuples. A step by merge needs the order of its key, others prefer it, and do with any. All runs are dealt
            out by routers of one grid. Event times of static tables are not looked at, but must not be NULL.
        columns: names of the inputs' columns that are told of each joined row, at least one.
        piece_rows: joined rows are made in pieces of about so many.
        text_bytes: a batch of several rows has no more bytes of strings than this.

    Raises:
        ValueError: the order does not fit the join, or tuples are not sorted as it needs them, or not dealt out by a grid.
    """

    def __init__(
        self,
        plan: JoinPlan,
        order: JoinOrder,
        cell: int,
        inputs: Sequence[Mapping[int | None, InputRuns]],
        columns: Sequence[str],
        *,
        piece_rows: int = PIECE_ROWS,
        text_bytes: int = TEXT_BYTES,
    ) -> None:
        check(plan, order, inputs)
        self._plan, self._order = plan, order
        self._inputs = CellInputs(plan, cell, inputs)
        self._piece_rows, self._text_bytes = piece_rows, text_bytes
        self._columns = owned(plan, columns)
        #: by the input with new tuples what each step of its probe order did so far
        self.steps: dict[int, tuple[StepMeasure, ...]] = {
            each.first: tuple(StepMeasure() for _ in each.steps) for each in order.orders
        }
        #: what decoding took so far
        self.decoded = DecodeMeasure()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The joined rows, in no order, each once over all cells; no batch is empty."""
        if not self._inputs.is_responsible(range(len(self._plan.inputs))):
            return
        for order in self._order.orders:
            tuples = self._inputs.opened(order)
            for rows in self._joined(order, tuples):
                yield from decoded(rows, tuples, self._columns, self._text_bytes, self.decoded)

    def _joined(self, order: ProbeOrder, tuples: Mapping[int, CellTuples]) -> Iterator[Rows]:
        slots = tuples[order.first].new
        span = span_of(slots)
        if span is None:
            return
        pieces = coalesced(rows_of(order.first, slots, self._piece_rows), self._piece_rows)
        joined = [order.first]
        for step, measure in zip(order.steps, self.steps[order.first], strict=True):
            target = tuples[step.input]
            met = target.slots if step.input > order.first else target.old
            reach = reach_of(self._plan, order.first, step.input, span)
            one = Step(self._plan, step, tuples, tuple(joined), met, reach, self._piece_rows, measure)
            pieces = coalesced(one.partners(pieces), (self._piece_rows + 1) // 2)
            joined.append(step.input)
        yield from pieces
