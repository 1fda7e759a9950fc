"""What a LEFT OUTER JOIN of two inputs tells beside its pairs: left tuples without a partner so far, and those that found one after all.

A left tuple is *due* once its event time is no later than a limit that moves on from cut to cut: who runs the join takes
right tuples in time for it to have come. With the cut in which it is due, a left tuple without a partner is told; if
a first partner comes with a later cut, that is withdrawn. Both are functions of the cut's tuples and limits alone: told before
are the due tuples of the cuts before that had no partner then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.kernels.gather import SLOT_SHIFT, Ids
from penstock.operators.joins.checks import check
from penstock.operators.joins.columns import Bools
from penstock.operators.joins.conditions import reach_of
from penstock.operators.joins.decode import TEXT_BYTES, decoded, owned
from penstock.operators.joins.measures import DecodeMeasure, StepMeasure
from penstock.operators.joins.steps import PIECE_ROWS, Rows, Step, coalesced, rows_of
from penstock.operators.joins.tuples import CellInputs, CellTuples, InputRuns, Slot, span_of
from penstock.plan.joins import JoinOrder, JoinPlan

LEFT, RIGHT = 0, 1
#: carried along with joined rows: which left tuple of a piece they are of
_PLACE = -1


class CellOuter:
    """Left tuples of a cut without a partner, in one cell.

    Beside what `CellJoin` holds it has 8 bytes for each left tuple that becomes due, or that new right tuples meet.

    Args:
        plan: the join of a stream with an optional input; only its kernels judge which tuples match.
        order: how left tuples search the right ones and, where these come anew, the other way round.
        cell: number of the cell.
        inputs: as for `CellJoin`. With left tuples sorted by event time alone, those that become due are found by search,
            otherwise by looking at all that are kept.
        columns: names of left columns that are told, at least one.
        piece_rows: tuples are dealt with in pieces of about so many.
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
        *,
        piece_rows: int = PIECE_ROWS,
        text_bytes: int = TEXT_BYTES,
    ) -> None:
        check(plan, order, inputs)
        self._columns = owned(plan, columns)
        self._orders = {each.first: each for each in order.orders}
        time = plan.inputs[LEFT].time
        if len(inputs) != 2 or time is None or plan.residual or LEFT not in self._orders:
            raise ValueError(
                f"join {plan.name} is no outer join of a stream whose matches kernels judge: {len(inputs)} inputs, "
                f"residual conditions {plan.residual}, orders for inputs {list(self._orders)}"
            )
        if any(number != LEFT for _, number in self._columns):
            raise ValueError(f"join {plan.name}: not only columns of the left input: {', '.join(columns)}")
        self._plan, self._time = plan, time
        self._inputs, self._has_by_time = CellInputs(plan, cell, inputs), None in inputs[LEFT]
        self._piece_rows, self._text_bytes = piece_rows, text_bytes
        #: what searching did so far
        self.step = StepMeasure()
        #: what decoding took so far
        self.decoded = DecodeMeasure()

    def unmatched(self, after: int, until: int) -> Iterator[pa.RecordBatch]:
        """Left tuples that become due with the cut and have no partner among the tuples so far, in no order.

        Those are new ones with event times up to a limit, and old ones with event times behind the limit of the cut before.
        New ones without an event time are due at once where event times are bound, otherwise they are in no row.

        Args:
            after: the limit of the cut before, microseconds; the earliest time there is if there was none.
            until: the limit of this cut, no earlier.
        """
        if not self._inputs.is_responsible([LEFT]):
            return
        tuples = self._inputs.opened(self._orders[LEFT])
        if self._has_by_time:
            tuples[LEFT] = self._inputs.open(LEFT, None)
        due = [self._due(slot, tuples[LEFT], after, until) for slot in tuples[LEFT].slots]
        found = np.concatenate([np.zeros(0, np.int64), *(ids for ids, _ in due)])
        yield from self._without(tuples, found, tuples[RIGHT].slots)
        loose = np.concatenate([np.zeros(0, np.int64), *(ids for _, ids in due)])
        yield from self._told(tuples, loose)

    def withdrawn(self, until: int) -> Iterator[pa.RecordBatch]:
        """Old left tuples that were due without a partner with cuts before, and find one with this cut, in no order.

        Args:
            until: the limit of the cut before, microseconds.
        """
        if not self._inputs.is_responsible([LEFT, RIGHT]) or RIGHT not in self._orders:
            return
        tuples = self._inputs.opened(self._orders[RIGHT])
        span = span_of(tuples[RIGHT].new)
        if span is None:
            return
        reach = reach_of(self._plan, RIGHT, LEFT, span)
        step = self._step(RIGHT, tuples, tuples[LEFT].old, (reach[0], min(reach[1], until)))
        new = rows_of(RIGHT, tuples[RIGHT].new, self._piece_rows)
        met = np.zeros(0, np.int64)
        for rows in step.partners(coalesced(new, self._piece_rows)):
            times = tuples[LEFT].times.words(rows[LEFT])
            assert times is not None, "event times are whole numbers"
            met = np.union1d(met, rows[LEFT][times <= until])
        searched = self._inputs.opened(self._orders[LEFT])[RIGHT]
        yield from self._without({LEFT: tuples[LEFT], RIGHT: searched}, met, searched.old)

    def _due(self, slot: Slot, left: CellTuples, after: int, until: int) -> tuple[Ids, Ids]:
        """Rows of a slot that become due; and those without a key or an event time, which have no partners."""
        part, base = slot.part, slot.number << SLOT_SHIFT
        times, found = part.times, len(part.times)
        if left.key is None:
            begin = 0 if slot.is_new else int(np.searchsorted(times, after, "right"))
            rows = np.arange(begin, max(begin, int(np.searchsorted(times, until, "right"))))
        else:
            rows = np.flatnonzero((times <= until) & (slot.is_new | (times > after)))
        loose = np.arange(found, part.summary.rows)
        if len(loose):
            column = left.column(self._time)
            own, known = column.words(loose + base), column.valid(loose + base)
            assert own is not None, "event times are whole numbers"
            known = np.ones(len(loose), np.bool_) if known is None else known
            untimed = slot.is_new and bool(self._plan.bounds)
            loose = loose[np.where(known, (own <= until) & (slot.is_new | (own > after)), untimed)]
        return slot.meant(rows) + base, slot.meant(loose) + base

    def _without(
        self, tuples: Mapping[int, CellTuples], left: Ids, slots: Sequence[Slot]
    ) -> Iterator[pa.RecordBatch]:
        """Those of some left tuples that have no partner in some slots of the right ones."""
        if not len(left):
            return
        times = tuples[LEFT].times.words(left)
        assert times is not None, "event times are whole numbers"
        reach = reach_of(self._plan, LEFT, RIGHT, (int(times.min()), int(times.max())))
        step = self._step(LEFT, tuples, slots, reach)
        for begin in range(0, len(left), self._piece_rows):
            ids = left[begin : begin + self._piece_rows]
            yield from self._told(tuples, ids[~self._matched(step, ids)])

    def _matched(self, step: Step, left: Ids) -> Bools:
        """Which of some left tuples have a partner."""
        found = np.zeros(len(left), np.bool_)
        rows: Rows = {LEFT: left, _PLACE: np.arange(len(left))}
        for piece in step.partners(iter([rows])):
            found[piece[_PLACE]] = True
        return found

    def _step(
        self, first: int, tuples: Mapping[int, CellTuples], slots: Sequence[Slot], reach: tuple[int, int]
    ) -> Step:
        (step,) = self._orders[first].steps
        return Step(
            self._plan,
            step,
            tuples,
            (first,),
            slots,
            reach,
            self._piece_rows,
            self.step,
            any_partner=first == LEFT,
        )

    def _told(self, tuples: Mapping[int, CellTuples], left: Ids) -> Iterator[pa.RecordBatch]:
        for begin in range(0, len(left), self._piece_rows):
            rows = {LEFT: left[begin : begin + self._piece_rows]}
            yield from decoded(rows, tuples, self._columns, self._text_bytes, self.decoded)
