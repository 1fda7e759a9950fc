"""A cut of a join with a LEFT OUTER JOIN of a static table behind it, in one cell.

What the inputs before the table make together is looked up in it; rows that find nothing are told with NULL in its columns, at
once, as nothing that comes later can be a partner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.operators.joins.cell import joined_rows
from penstock.operators.joins.checks import check
from penstock.operators.joins.conditions import ALL_TIMES, kept
from penstock.operators.joins.decode import TEXT_BYTES, decoded, owned
from penstock.operators.joins.measures import DecodeMeasure, StepMeasure
from penstock.operators.joins.steps import PIECE_ROWS, Step
from penstock.operators.joins.tuples import CellInputs, CellTuples, InputRuns
from penstock.plan.joins import JoinOrder, JoinPlan, Method, ProbeOrder, ProbeStep

#: carried along with joined rows: which row of a piece they are of
_PLACE = -1


class CellLookup:
    """The rows of a cut in one cell.

    It holds what `CellJoin` does, and a bit for each row of a piece.

    Args:
        plan: a join whose last input is optional and a static table; only kernels judge which tuples match.
        order: how it is joined; the table is searched last, whatever it says.
        cell: number of the cell.
        inputs: as for `CellJoin`; those before the table are not sorted by keys that only the table shares, so that none
            of their tuples is left out for lack of one.
        columns: names of the inputs' columns that are told of each row, at least one.
        piece_rows: rows are dealt with in pieces of about so many.
        text_bytes: a batch of several rows has no more bytes of strings than this.

    Raises:
        ValueError: the order does not fit the join, or tuples are not sorted as it needs them.
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
        self._table = len(plan.inputs) - 1
        if plan.optional != (self._table,) or not plan.looks_up or plan.residual:
            raise ValueError(
                f"join {plan.name} is no LEFT OUTER JOIN of a static table whose matches kernels judge: optional inputs "
                f"{plan.optional}, residual conditions {plan.residual}"
            )
        #: what the new tuples of each input meet
        self.orders = tuple(with_table_last(plan, each) for each in order.orders)
        check(plan, JoinOrder(self.orders), inputs)
        self._plan, self._inputs = plan, CellInputs(plan, cell, inputs)
        self._piece_rows, self._text_bytes = piece_rows, text_bytes
        self._columns = owned(plan, columns)
        own = [each for each in self._columns if each[1] != self._table]
        #: of rows without a partner
        self._own = own or owned(plan, [plan.inputs[0].columns[0].name])
        self._types = {column.name: column.type for column in plan.inputs[self._table].columns}
        #: by the input with new tuples what each step did so far, that into the table last
        self.steps: dict[int, tuple[StepMeasure, ...]] = {
            each.first: tuple(StepMeasure() for _ in each.steps) for each in self.orders
        }
        #: what decoding took so far
        self.decoded = DecodeMeasure()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in no order, each once over all cells; no batch is empty."""
        if not self._inputs.is_responsible(range(self._table)):
            return
        for order in self.orders:
            yield from self._rows(order, self._inputs.opened(order))

    def _rows(self, order: ProbeOrder, tuples: Mapping[int, CellTuples]) -> Iterator[pa.RecordBatch]:
        measures = self.steps[order.first]
        before = replace(order, steps=order.steps[:-1])
        lookup = Step(
            self._plan,
            order.steps[-1],
            tuples,
            tuple(range(self._table)),
            tuples[self._table].slots,
            ALL_TIMES,
            self._piece_rows,
            measures[-1],
        )
        for rows in joined_rows(self._plan, before, tuples, measures[:-1], self._piece_rows):
            found = np.zeros(len(rows[order.first]), np.bool_)
            for piece in lookup.partners(iter([{**rows, _PLACE: np.arange(len(found))}])):
                found[piece[_PLACE]] = True
                if len(piece[_PLACE]):
                    yield from decoded(piece, tuples, self._columns, self._text_bytes, self.decoded)
            if not found.all():
                for batch in decoded(kept(rows, ~found), tuples, self._own, self._text_bytes, self.decoded):
                    yield self._filled(batch)

    def _filled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with NULL in the columns of the table."""
        arrays = [
            pa.nulls(rows.num_rows, self._types[name]) if number == self._table else rows.column(name)
            for name, number in self._columns
        ]
        return pa.RecordBatch.from_arrays(arrays, [name for name, _ in self._columns])


def with_table_last(plan: JoinPlan, order: ProbeOrder) -> ProbeOrder:
    """An order in which the last input of a join is searched last; steps that needed it before go without their key."""
    table = len(plan.inputs) - 1
    met, steps, last = {order.first}, [], []
    for step in order.steps:
        if step.input == table:
            last.append(step)
            continue
        columns = () if step.key is None else plan.keys[step.key].columns
        is_known = any(columns[number] is not None for number in met) if columns else True
        steps.append(step if is_known else ProbeStep(step.input, Method.NESTED, None))
        met.add(step.input)
    return ProbeOrder(order.first, (*steps, *last))
