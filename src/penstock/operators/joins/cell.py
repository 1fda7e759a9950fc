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
from penstock.operators.joins.tuples import (
    WHOLE,
    CellInputs,
    CellTuples,
    InputRuns,
    Slot,
    Stripe,
    span_of,
)
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
        stripe: of the new tuples; each pair is told by the stripe of the one by whose probe order it is found.
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
        stripe: Stripe = WHOLE,
        piece_rows: int = PIECE_ROWS,
        text_bytes: int = TEXT_BYTES,
    ) -> None:
        check(plan, order, inputs)
        self._plan = plan
        #: what the new tuples of each input meet
        self.orders = order.orders
        self._inputs = CellInputs(plan, cell, inputs)
        self._stripe, self._piece_rows, self._text_bytes = stripe, piece_rows, text_bytes
        self._columns = owned(plan, columns)
        #: by the input with new tuples what each step of its probe order did so far
        self.steps: dict[int, tuple[StepMeasure, ...]] = {
            each.first: tuple(StepMeasure() for _ in each.steps) for each in self.orders
        }
        #: what decoding took so far
        self.decoded = DecodeMeasure()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The joined rows, in no order, each once over all cells and stripes; no batch is empty."""
        if not self._inputs.is_responsible(range(len(self._plan.inputs))):
            return
        for order in self.orders:
            tuples = self._inputs.opened(order)
            measures = self.steps[order.first]
            for rows in joined_rows(self._plan, order, tuples, measures, self._stripe, self._piece_rows):
                yield from decoded(rows, tuples, self._columns, self._text_bytes, self.decoded)


def joined_rows(
    plan: JoinPlan,
    order: ProbeOrder,
    tuples: Mapping[int, CellTuples],
    measures: Sequence[StepMeasure],
    stripe: Stripe,
    piece_rows: int,
) -> Iterator[Rows]:
    """What the new tuples of one input meet in a cell, in pieces.

    Args:
        plan: the join.
        order: the input, and what is searched.
        tuples: by input those of the cell, in the sort order that `order` reads.
        measures: of each step; what is done is added to them.
        stripe: of the new tuples.
        piece_rows: joined rows are made in pieces of about so many.
    """
    slots = tuples[order.first].new
    span = span_of(slots)
    if span is None:
        return
    pieces = coalesced(rows_of(order.first, slots, piece_rows, stripe), piece_rows)
    met = {number: each.slots if number > order.first else each.old for number, each in tuples.items()}
    yield from _followed(plan, order, tuples, met, pieces, span, measures, piece_rows)


def old_rows(
    plan: JoinPlan,
    order: ProbeOrder,
    tuples: Mapping[int, CellTuples],
    pieces: Iterator[Rows],
    span: tuple[int, int],
    piece_rows: int,
) -> Iterator[Rows]:
    """What some tuples of one input meet among the old ones of others, in pieces.

    Args:
        plan: the join.
        order: the input, and what is searched.
        tuples: as for `joined_rows`.
        pieces: those tuples.
        span: their event times lie in it, microseconds, both inclusive.
        piece_rows: joined rows are made in pieces of about so many.
    """
    met = {number: each.old for number, each in tuples.items()}
    measures = [StepMeasure() for _ in order.steps]
    yield from _followed(plan, order, tuples, met, pieces, span, measures, piece_rows)


def _followed(
    plan: JoinPlan,
    order: ProbeOrder,
    tuples: Mapping[int, CellTuples],
    met: Mapping[int, Sequence[Slot]],
    pieces: Iterator[Rows],
    span: tuple[int, int],
    measures: Sequence[StepMeasure],
    piece_rows: int,
) -> Iterator[Rows]:
    joined = [order.first]
    for step, measure in zip(order.steps, measures, strict=True):
        reach = reach_of(plan, order.first, step.input, span)
        one = Step(plan, step, tuples, tuple(joined), met[step.input], reach, piece_rows, measure)
        pieces = coalesced(one.partners(pieces), (piece_rows + 1) // 2)
        joined.append(step.input)
    yield from pieces
