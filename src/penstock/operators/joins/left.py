"""A cut of an outer join in one cell: what the inputs before the last one make together, with its partners or without.

A left row is a tuple of each input before the last, joined as in `CellJoin`. It is *due* once the event time of its anchor, the first
stream among them, is no later than a limit that moves on from cut to cut: who runs the join takes right tuples in time for it
to have come. A left row without a partner is told with the cut in which it is there and due, and withdrawn by the one with which
its first partner comes. All of that is a function of the cut's tuples and limits alone: told before are those rows of old
tuples that were due and met no old tuple of the last input. Where this is a static table, all rows are due at once.

A LEFT ANTI JOIN tells rows without a partner alone. A LEFT SEMI JOIN tells a left row with the cut in which its first partner is
there, and never takes it back. A FULL OUTER JOIN is a LEFT one and, turned round, an ANTI one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.kernels.gather import SLOT_SHIFT, Ids
from penstock.operators.joins.cell import joined_rows, old_rows
from penstock.operators.joins.changes import DELETE, INSERT, Due, RowNames, marked
from penstock.operators.joins.checks import check
from penstock.operators.joins.conditions import bounds_of, kept, reach_of
from penstock.operators.joins.decode import TEXT_BYTES, decoded, owned
from penstock.operators.joins.measures import DecodeMeasure, StepMeasure
from penstock.operators.joins.steps import PIECE_ROWS, Ints, Rows, Step
from penstock.operators.joins.tuples import (
    WHOLE,
    CellInputs,
    CellTuples,
    InputRuns,
    Slot,
    Stripe,
    span_of,
)
from penstock.plan.joins import JoinOrder, JoinPlan, Method, OptionalJoin, ProbeOrder, ProbeStep
from penstock.plan.times import AFTER_ALL, BEFORE_ALL

#: carried along with joined rows: which row of a piece they are of
_PLACE = -1


class CellLeftJoin:
    """The rows of a cut in one cell; of a FULL OUTER JOIN all but those of the last input alone.

    Beside what `CellJoin` holds it has a bit for each row of a piece, 8 bytes for each tuple of the anchor that becomes due and, an
    input, for each old left row that new tuples of the last input meet.

    Args:
        plan: a join whose last input is optional; only kernels judge which tuples match.
        order: how it is joined; left rows search the last input last, whatever it says.
        cell: number of the cell.
        inputs: as for `CellJoin`. Where several inputs make a left row, the first runs of each are not sorted by a key that the
            last input alone shares, so that no tuple is left out for lack of one. Tuples of the anchor that become due are found by
            search where there are runs by event time alone, otherwise by looking at all that are kept.
        columns: names of the inputs' columns that are told of each row, at least one.
        due: which left rows are due; None with a static table, and of a SEMI JOIN.
        lane: number of the lane, which withdraws rows of its own only: a view declared again has another.
        lacks_before: the last input may lack tuples with an event time before this, microseconds; None: none. Old left rows of a SEMI
            or ASOF JOIN that reach there stay as they were told: by which partner is not known any more.
        turned: of a FULL OUTER JOIN's plan, whether `plan` is that turned round, which names its rows otherwise.
        stripe: of the new tuples, as for `CellJoin`; the first one tells what is told or withdrawn of old left rows.
        piece_rows: rows are dealt with in pieces of about so many.
        text_bytes: a batch of several rows has no more bytes of strings than this.

    Raises:
        ValueError: it is no such join, the order does not fit it, or tuples are not sorted as it needs them.
    """

    def __init__(
        self,
        plan: JoinPlan,
        order: JoinOrder,
        cell: int,
        inputs: Sequence[Mapping[int | None, InputRuns]],
        columns: Sequence[str],
        due: Due | None,
        lane: int,
        *,
        lacks_before: int | None = None,
        turned: bool = False,
        stripe: Stripe = WHOLE,
        piece_rows: int = PIECE_ROWS,
        text_bytes: int = TEXT_BYTES,
    ) -> None:
        self._right = len(plan.inputs) - 1
        firsts = [each.first for each in order.orders]
        if plan.optional != (self._right,) or plan.residual or plan.anchor not in firsts:
            raise ValueError(
                f"join {plan.name} is not an outer join whose matches kernels judge: optional inputs {plan.optional}, "
                f"residual conditions {plan.residual}, orders for inputs {firsts}"
            )
        #: what the new tuples of each input meet
        self.orders = tuple(
            each if each.first == self._right else with_right_last(plan, each) for each in order.orders
        )
        check(plan, JoinOrder(self.orders), inputs)
        self._order_of = {each.first: each for each in self.orders}
        self._plan, self._due, self._anchor = plan, due or Due(AFTER_ALL, AFTER_ALL), plan.anchor
        self._time = plan.inputs[plan.anchor].time or ""
        self._inputs, self._has_by_time = CellInputs(plan, cell, inputs), None in inputs[self._anchor]
        self._stripe, self._piece_rows, self._text_bytes = stripe, piece_rows, text_bytes
        self._columns = owned(plan, columns)
        self._names = RowNames(plan, lane, turned) if plan.withdraws else None
        self._is_paired = plan.kind in (OptionalJoin.LEFT, OptionalJoin.FULL)
        self._is_semi = plan.kind is OptionalJoin.SEMI
        #: the anchor's event time before which the last input may lack partners
        bounds = bounds_of(plan, self._right, (plan.anchor,))
        self._told_before = (
            lacks_before - bounds[0].lower if bounds and lacks_before is not None else BEFORE_ALL
        )
        own = [name for name, number in self._columns if number != self._right]
        own += self._names.columns if self._names is not None else ()
        #: of rows without a partner
        self._own = owned(plan, list(dict.fromkeys(own)) or [plan.inputs[0].columns[0].name])
        self._types = {column.name: column.type for column in plan.inputs[self._right].columns}
        #: by the input with new tuples what each step did so far, that of left rows into the last input last
        self.steps: dict[int, tuple[StepMeasure, ...]] = {
            each.first: tuple(StepMeasure() for _ in each.steps) for each in self.orders
        }
        #: what finding old rows without a partner did so far
        self.alone = StepMeasure()
        #: what decoding took so far
        self.decoded = DecodeMeasure()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in no order, each once over all cells and stripes, with OP and ROW where rows may be withdrawn; no batch is empty."""
        if not self._inputs.is_responsible(range(self._right)):
            return
        for order in self.orders:
            if order.first == self._right:
                yield from self._with_new_partners(order)
            else:
                yield from self._new(order)
        if self._plan.withdraws and self._stripe.number == 0:
            yield from self._became_due()

    def _new(self, order: ProbeOrder) -> Iterator[pa.RecordBatch]:
        """Left rows with new tuples of one input: with their partners, or due without one."""
        tuples, measures = self._inputs.opened(order), self.steps[order.first]
        first = tuples[order.first]
        span = span_of(first.new)
        if span is not None:
            reach = reach_of(self._plan, order.first, self._right, span)
            lookup = self._lookup(
                order, tuples, tuples[self._right].slots, reach, measures[-1], any_partner=not self._is_paired
            )
            before = replace(order, steps=order.steps[:-1])
            for rows in self._joined(before, tuples, measures[:-1], self._stripe):
                alone = np.ones(len(rows[order.first]), np.bool_)
                for piece in lookup.partners(_placed(rows)):
                    alone[piece[_PLACE]] = False
                    if self._is_paired:
                        yield from self._paired(piece, tuples)
                if self._is_semi:
                    alone = ~alone
                elif self._plan.withdraws:
                    alone &= self._anchored(rows, tuples) <= self._due.until
                yield from self._told(kept(rows, alone), tuples, INSERT, measures[-1])
        if self._stripe.number == 0:
            loose = {order.first: self._loose(first, first.new)}
            yield from self._told(loose, tuples, INSERT, measures[-1])

    def _with_new_partners(self, order: ProbeOrder) -> Iterator[pa.RecordBatch]:
        """Left rows of old tuples with new ones of the last input; those that were told without a partner are withdrawn."""
        tuples = self._inputs.opened(order)
        left = [number for number in tuples if number != self._right]
        met: Rows = {number: np.zeros(0, np.int64) for number in left}
        for rows in self._joined(order, tuples, self.steps[order.first], self._stripe):
            if self._is_paired:
                yield from self._paired(rows, tuples)
            if self._stripe == WHOLE:
                met = self._with_due(met, rows, tuples)
        oldest = [each.part.summary.oldest for each in tuples[self._anchor].old]
        had_due = any(each is not None and each <= self._due.after for each in oldest)
        if self._stripe != WHOLE and self._stripe.number == 0 and had_due:
            # of several stripes' new tuples one left row may be a partner
            for rows in self._joined(order, tuples, [self.alone] * len(order.steps), WHOLE):
                met = self._with_due(met, rows, tuples)
        if len(met[self._anchor]):
            tuples[self._right] = self._inputs.opened(self._order_of[self._anchor])[self._right]
            times, pieces = self._anchored(met, tuples), pieces_of(met, self._piece_rows)
            op = INSERT if self._is_semi else DELETE
            yield from self._without(pieces, tuples, tuples[self._right].old, times, op, self.alone)

    def _with_due(self, met: Rows, rows: Rows, tuples: Mapping[int, CellTuples]) -> Rows:
        """Left rows with those of some joined rows that were due with the cut before, each once."""
        times = self._anchored(rows, tuples)
        was_due = times <= self._due.after
        if self._is_semi or self._plan.is_as_of:
            was_due &= times >= self._told_before
        if not was_due.any():
            return met
        return distinct({number: np.append(own, rows[number][was_due]) for number, own in met.items()})

    def _joined(
        self,
        order: ProbeOrder,
        tuples: Mapping[int, CellTuples],
        measures: Sequence[StepMeasure],
        stripe: Stripe,
    ) -> Iterator[Rows]:
        return joined_rows(self._plan, order, tuples, measures, stripe, self._piece_rows)

    def _became_due(self) -> Iterator[pa.RecordBatch]:
        """Left rows of old tuples that become due with the cut and have no partner."""
        order, measure = self._order_of[self._anchor], self.steps[self._anchor][-1]
        tuples = self._inputs.opened(order)
        anchors = self._by_time(tuples)
        starts = {self._anchor: self._becoming_due(anchors)}
        if len(starts[self._anchor]):
            times, pieces = self._anchored(starts, tuples), pieces_of(starts, self._piece_rows)
            before = replace(order, steps=order.steps[:-1])
            rows = old_rows(self._plan, before, tuples, pieces, _span(times), self._piece_rows)
            yield from self._without(rows, tuples, tuples[self._right].slots, times, INSERT, measure)
        yield from self._told({self._anchor: self._loose(anchors, anchors.old)}, tuples, INSERT, measure)

    def _by_time(self, tuples: dict[int, CellTuples]) -> CellTuples:
        """The anchor's tuples, by event time alone where there are such runs; they take the place of those in `tuples`."""
        if self._has_by_time:
            tuples[self._anchor] = self._inputs.open(self._anchor, None)
        return tuples[self._anchor]

    def _becoming_due(self, anchors: CellTuples) -> Ids:
        """Old tuples of the anchor that become due with the cut, loose ones left out."""
        due = [self._due_of(slot, anchors.key is None) for slot in anchors.old]
        return np.concatenate([np.zeros(0, np.int64), *due])

    def _due_of(self, slot: Slot, is_by_time: bool) -> Ids:
        """Rows of an old slot of the anchor that become due, loose ones left out."""
        times, after, until = slot.part.times, self._due.after, self._due.until
        if is_by_time:
            begin, end = (int(np.searchsorted(times, limit, "right")) for limit in (after, until))
            rows = np.arange(begin, max(begin, end))
        else:
            rows = np.flatnonzero((times > after) & (times <= until))
        return slot.meant(rows) + (slot.number << SLOT_SHIFT)

    def _loose(self, tuples: CellTuples, slots: Sequence[Slot]) -> Ids:
        """Left tuples of a join of two streams that are due and have no partner, as they have no key or no event time."""
        found = [np.zeros(0, np.int64)]
        for slot in slots if self._plan.withdraws and self._right == 1 else ():
            ids = slot.meant(np.arange(len(slot.part.times), slot.part.summary.rows)) + (
                slot.number << SLOT_SHIFT
            )
            if len(ids):
                column = tuples.column(self._time)
                times, valid = column.words(ids), column.valid(ids)
                assert times is not None, "event times are whole numbers"
                is_due = (times <= self._due.until) & (slot.is_new | (times > self._due.after))
                found.append(ids[is_due if valid is None else np.where(valid, is_due, slot.is_new)])
        return np.concatenate(found)

    def _without(
        self,
        pieces: Iterator[Rows],
        tuples: Mapping[int, CellTuples],
        slots: Sequence[Slot],
        times: Ints,
        op: str,
        measure: StepMeasure,
    ) -> Iterator[pa.RecordBatch]:
        """Those of some left rows that have no partner in some slots of the last input; `times` are those of their anchors."""
        reach = reach_of(self._plan, self._anchor, self._right, _span(times))
        lookup = self._lookup(
            self._order_of[self._anchor], tuples, slots, reach, self.alone, any_partner=True
        )
        for rows in pieces:
            alone = np.ones(len(rows[self._anchor]), np.bool_)
            for piece in lookup.partners(_placed(rows)):
                alone[piece[_PLACE]] = False
            yield from self._told(kept(rows, alone), tuples, op, measure)

    def _lookup(
        self,
        order: ProbeOrder,
        tuples: Mapping[int, CellTuples],
        slots: Sequence[Slot],
        reach: tuple[int, int],
        measure: StepMeasure,
        *,
        any_partner: bool = False,
    ) -> Step:
        left = tuple(range(self._right))
        step = order.steps[-1]
        return Step(
            self._plan, step, tuples, left, slots, reach, self._piece_rows, measure, any_partner=any_partner
        )

    def _anchored(self, rows: Rows, tuples: Mapping[int, CellTuples]) -> Ints:
        """Event times of the anchor, int64[rows], microseconds."""
        times = tuples[self._anchor].times.words(rows[self._anchor])
        assert times is not None, "event times are whole numbers"
        return times

    def _paired(self, rows: Rows, tuples: Mapping[int, CellTuples]) -> Iterator[pa.RecordBatch]:
        if not len(rows[self._right]):
            return
        for batch in decoded(rows, tuples, self._columns, self._text_bytes, self.decoded):
            yield batch if self._names is None else marked(batch, INSERT)

    def _told(
        self, rows: Rows, tuples: Mapping[int, CellTuples], op: str, measure: StepMeasure
    ) -> Iterator[pa.RecordBatch]:
        """Left rows with NULL in the columns of the last input."""
        measure.alone += len(next(iter(rows.values())))
        for piece in pieces_of(rows, self._piece_rows):
            for batch in decoded(piece, tuples, self._own, self._text_bytes, self.decoded):
                arrays = [
                    pa.nulls(batch.num_rows, self._types[name])
                    if number == self._right
                    else batch.column(name)
                    for name, number in self._columns
                ]
                filled = pa.RecordBatch.from_arrays(arrays, [name for name, _ in self._columns])
                yield filled if self._names is None else marked(filled, op, self._names.of(batch))


def with_right_last(plan: JoinPlan, order: ProbeOrder) -> ProbeOrder:
    """An order in which the last input of a join is searched last; steps that needed it before go by another key, or by none."""
    right = len(plan.inputs) - 1
    met, steps, last = {order.first}, [], []
    for step in order.steps:
        if step.input == right:
            last.append(step)
            continue
        known = [
            number
            for number, key in enumerate(plan.keys)
            if key.columns[step.input] is not None and any(key.columns[other] is not None for other in met)
        ]
        if step.key is not None and step.key not in known:
            method, key = (Method.HASH, known[0]) if known else (Method.NESTED, None)
            step = ProbeStep(step.input, method, key)
        steps.append(step)
        met.add(step.input)
    return ProbeOrder(order.first, (*steps, *last))


def distinct(rows: Rows) -> Rows:
    """Joined rows, each once."""
    order = np.lexsort(tuple(rows.values()))
    ascending = {number: ids[order] for number, ids in rows.items()}
    is_first = np.ones(len(order), np.bool_)
    if len(order):
        is_first[1:] = np.logical_or.reduce([ids[1:] != ids[:-1] for ids in ascending.values()])
    return kept(ascending, is_first)


def _placed(rows: Rows) -> Iterator[Rows]:
    return iter([{**rows, _PLACE: np.arange(len(next(iter(rows.values()))))}])


def pieces_of(rows: Rows, piece_rows: int) -> Iterator[Rows]:
    """Joined rows in pieces of at most so many."""
    for begin in range(0, len(next(iter(rows.values()))), piece_rows):
        yield {number: ids[begin : begin + piece_rows] for number, ids in rows.items()}


def _span(times: Ints) -> tuple[int, int]:
    return int(times.min()), int(times.max())
