"""A cut of an as-of join in one cell: left rows, each with the newest partner in an input with versions.

Left rows and their due times are those of `CellLeftJoin`. A left row is told with the cut in which it is there and due, with the newest
partner that has come until then. Where a newer one comes later, its row is withdrawn by name and told anew. All of that is a function of
the cut's tuples and limits alone: what was told before are the newest among the old partners of the old left rows that were due.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.joins.cell import old_rows
from penstock.operators.joins.changes import DELETE, INSERT, Due, marked
from penstock.operators.joins.conditions import bounds_of, kept, reach_of
from penstock.operators.joins.decode import TEXT_BYTES, decoded, owned
from penstock.operators.joins.left import CellLeftJoin, pieces_of
from penstock.operators.joins.measures import StepMeasure
from penstock.operators.joins.newest import NOTHING, Identities, NewestStep, Versions, is_newer
from penstock.operators.joins.steps import PIECE_ROWS, Rows
from penstock.operators.joins.tuples import WHOLE, CellTuples, InputRuns, Slot, Stripe, span_of
from penstock.plan.joins import JoinOrder, JoinPlan, Method, OptionalJoin, ProbeOrder, ProbeStep
from penstock.plan.times import AFTER_ALL


class CellAsOfJoin(CellLeftJoin):
    """The rows of a cut in one cell; its arguments are those of `CellLeftJoin`, of a join with versions.

    Beside what that holds it has 40 bytes for each left row of a piece and part of the versions.
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
        *,
        lacks_before: int | None = None,
        stripe: Stripe = WHOLE,
        piece_rows: int = PIECE_ROWS,
        text_bytes: int = TEXT_BYTES,
    ) -> None:
        super().__init__(
            plan,
            order,
            cell,
            inputs,
            columns,
            due,
            lane,
            lacks_before=lacks_before,
            stripe=stripe,
            piece_rows=piece_rows,
            text_bytes=text_bytes,
        )
        if not plan.is_as_of or self._names is None:
            raise ValueError(f"join {plan.name} is not an as-of join with a stream")
        self._identities = Identities(plan)
        shared = (key for key in inputs[self._right] if key is not None and _is_shared(plan, key))
        #: the key by which versions are searched; None: by event time alone
        self._key = next(shared, None)
        (partners,) = bounds_of(plan, self._right, (self._anchor,))
        #: the event time up to which versions may be of left rows that were told with the cuts before
        self._late_until = due.after + partners.upper
        named = [*self._names.columns, *self._identities.columns]
        self._named = [*self._columns, *(each for each in owned(plan, named) if each not in self._columns)]

    def _new(self, order: ProbeOrder) -> Iterator[pa.RecordBatch]:
        """Left rows with new tuples of one input that are due."""
        tuples = self._opened(order)
        first, measures = tuples[order.first], self.steps[order.first]
        span = span_of(first.new)
        if span is not None:
            versions = self._versions(tuples, tuples[self._right].slots, order.first, span, measures[-1])
            before = replace(order, steps=order.steps[:-1])
            for rows in self._joined(before, tuples, measures[:-1], self._stripe):
                due = kept(rows, self._anchored(rows, tuples) <= self._due.until)
                yield from self._answered(due, versions, tuples, measures[-1])
        if self._stripe.number == 0:
            yield from self._alone({order.first: self._loose(first, first.new)}, tuples, measures[-1])

    def _with_new_partners(self, order: ProbeOrder) -> Iterator[pa.RecordBatch]:
        """Left rows that were told before, of which a newer partner has come."""
        if self._stripe.number != 0:
            return
        tuples = self._inputs.opened(order)
        late = [each for each in tuples[self._right].new if _oldest(each) <= self._late_until]
        span = span_of(late)
        if span is None:
            return
        pieces = self._late(late, tuples[self._right])
        met: Rows = {number: np.zeros(0, np.int64) for number in tuples if number != self._right}
        for rows in old_rows(self._plan, order, tuples, pieces, span, self._piece_rows):
            met = self._with_due(met, rows, tuples)
        if not len(met[self._anchor]):
            return
        tuples[self._right] = self._opened(self._order_of[self._anchor])[self._right]
        times = self._anchored(met, tuples)
        reached, right = (int(times.min()), int(times.max())), tuples[self._right]
        new, old = (
            self._versions(tuples, slots, self._anchor, reached, self.alone)
            for slots in (right.new, right.old)
        )
        for piece in pieces_of(met, self._piece_rows):
            later, earlier = (each.newest(piece, self._identities) for each in (new, old))
            changed = is_newer(later, earlier, right, self._identities)
            rows = kept(piece, changed)
            yield from self._rows(rows, earlier.ids[changed], tuples, DELETE, self.alone)
            yield from self._rows(rows, later.ids[changed], tuples, INSERT, self.alone)

    def _became_due(self) -> Iterator[pa.RecordBatch]:
        """Left rows of old tuples that become due with the cut."""
        order, measure = self._order_of[self._anchor], self.steps[self._anchor][-1]
        tuples = self._opened(order)
        anchors = self._by_time(tuples)
        starts = self._becoming_due(anchors)
        if len(starts):
            times = self._anchored({self._anchor: starts}, tuples)
            reached = int(times.min()), int(times.max())
            versions = self._versions(tuples, tuples[self._right].slots, self._anchor, reached, measure)
            before = replace(order, steps=order.steps[:-1])
            pieces = pieces_of({self._anchor: starts}, self._piece_rows)
            for rows in old_rows(self._plan, before, tuples, pieces, reached, self._piece_rows):
                yield from self._answered(rows, versions, tuples, measure)
        yield from self._alone({self._anchor: self._loose(anchors, anchors.old)}, tuples, measure)

    def _opened(self, order: ProbeOrder) -> dict[int, CellTuples]:
        """The tuples that an order reads, versions in the order in which they are searched."""
        tuples = self._inputs.opened(order)
        tuples[self._right] = self._inputs.open(self._right, self._key)
        return tuples

    def _late(self, slots: list[Slot], tuples: CellTuples) -> Iterator[Rows]:
        """New versions that left rows told before may have."""
        for slot in slots:
            ids = slot.ids()
            times = tuples.times.words(ids)
            assert times is not None, "event times are whole numbers"
            yield from pieces_of({self._right: ids[times <= self._late_until]}, self._piece_rows)

    def _versions(
        self,
        tuples: Mapping[int, CellTuples],
        slots: list[Slot],
        first: int,
        span: tuple[int, int],
        measure: StepMeasure,
    ) -> NewestStep:
        """Finds the newest partners among some versions.

        Args:
            tuples: by input those of the cell.
            slots: those of the versions that take part.
            first: an input of the left rows.
            span: its event times lie in it, microseconds, both inclusive.
            measure: what is done is added to it.
        """
        method = Method.NESTED if self._key is None else Method.MERGE
        step = ProbeStep(self._right, method, self._key)
        left = tuple(range(self._right))
        reach = reach_of(self._plan, first, self._right, span)
        return NewestStep(self._plan, step, tuples, left, slots, reach, self._piece_rows, measure)

    def _answered(
        self, rows: Rows, versions: NewestStep, tuples: Mapping[int, CellTuples], measure: StepMeasure
    ) -> Iterator[pa.RecordBatch]:
        """Left rows with their newest partners, told the first time."""
        for piece in pieces_of(rows, self._piece_rows):
            found: Versions = versions.newest(piece, self._identities)
            yield from self._rows(piece, found.ids, tuples, INSERT, measure)

    def _rows(
        self,
        rows: Rows,
        ids: npt.NDArray[np.int64],
        tuples: Mapping[int, CellTuples],
        op: str,
        measure: StepMeasure,
    ) -> Iterator[pa.RecordBatch]:
        """Left rows with some partners; those that have NOTHING are rows of a LEFT ASOF JOIN alone."""
        has = ids != NOTHING
        yield from self._alone(kept(rows, ~has), tuples, measure, op)
        if not has.any():
            return
        measure.pairs += int(has.sum())
        paired = {**kept(rows, has), self._right: ids[has]}
        for batch in decoded(paired, tuples, self._named, self._text_bytes, self.decoded):
            assert self._names is not None, "versions are a stream's"
            names = self._names.of(batch, self._identities.of_rows(pa.table(batch)))
            yield marked(batch.select([name for name, _ in self._columns]), op, names)

    def _alone(
        self, rows: Rows, tuples: Mapping[int, CellTuples], measure: StepMeasure, op: str = INSERT
    ) -> Iterator[pa.RecordBatch]:
        if self._plan.kind is OptionalJoin.LEFT_AS_OF:
            yield from self._told(rows, tuples, op, measure)


def _is_shared(plan: JoinPlan, key: int) -> bool:
    """Whether left rows have a part in a key."""
    return any(column is not None for column in plan.keys[key].columns[:-1])


def _oldest(slot: Slot) -> int:
    oldest = slot.part.summary.oldest
    return AFTER_ALL if oldest is None else oldest
