"""How many pairs of a join lie beyond the bound that STATE_TTL set: what a longer one would find.

Algorithm card. Runs are sorted by key and event time, so the pairs of a tuple with event times in a range are rows that lie behind each
other: they are counted by their ends, and listed only where there are further conditions. Time: two searches a new tuple and part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.kernels.gather import SLOT_SHIFT
from penstock.operators.joins.conditions import reach_of
from penstock.operators.joins.measures import StepMeasure
from penstock.operators.joins.steps import PIECE_ROWS, Probe, Step, rows_of
from penstock.operators.joins.tuples import WHOLE, CellInputs, InputRuns, Stripe, span_of
from penstock.plan.joins import JoinPlan, Method, ProbeStep


def pairs_beyond(
    plan: JoinPlan, cell: int, inputs: Sequence[Mapping[int | None, InputRuns]], stripe: Stripe = WHOLE
) -> int:
    """Return how many pairs that satisfy the conditions of kernels lie within `JoinPlan.wider` and not within the bounds.

    Args:
        plan: a join of two streams.
        cell: number of the cell.
        inputs: as for `CellJoin`, with all old tuples that lie within the wider bounds of new ones.
        stripe: of the new tuples.
    """
    opened = CellInputs(plan, cell, inputs)
    if not opened.is_responsible(range(len(plan.inputs))):
        return 0
    return _pairs(plan.widened, opened, inputs, stripe) - _pairs(plan, opened, inputs, stripe)


def _pairs(
    plan: JoinPlan, opened: CellInputs, inputs: Sequence[Mapping[int | None, InputRuns]], stripe: Stripe
) -> int:
    found = 0
    for first, target in ((0, 1), (1, 0)):
        key = next(iter(inputs[target]))
        tuples = {first: opened.open(first, key), target: opened.open(target, key)}
        span = span_of(tuples[first].new)
        if span is None:
            continue
        # what is new of the first input meets all of the other, and the other way round only what is old
        slots = tuples[target].slots if target > first else tuples[target].old
        method = Method.NESTED if key is None else Method.MERGE
        reach = reach_of(plan, first, target, span)
        step = _CountedStep(
            plan, ProbeStep(target, method, key), tuples, (first,), slots, reach, PIECE_ROWS, StepMeasure()
        )
        found += step.pairs(first, stripe)
    return found


class _CountedStep(Step):
    """A step whose pairs are counted."""

    def pairs(self, first: int, stripe: Stripe) -> int:
        """How many pairs the new tuples of an input have."""
        pieces = rows_of(first, self._tuples[first].new, self._piece_rows, stripe)
        if self._equalities or self._comparisons:
            return sum(len(rows[self._step.input]) for rows in self.partners(pieces))
        return sum(self._counted(probe) for probe in map(self._probe, pieces) if len(probe.numbers))

    def _counted(self, probe: Probe) -> int:
        ranges, used = self._ranges(probe)
        begins, counts = ranges.begins[:used], ranges.counts[:used].astype(np.int64)
        found, owners = 0, begins >> SLOT_SHIFT
        for slot in self._slots:
            own = owners == slot.number
            if slot.limits is None:
                found += int(counts[own].sum())
                continue
            is_meant = np.zeros(len(slot.part.times) + 1, np.int64)
            is_meant[slot.rows() + 1] = 1
            before = is_meant.cumsum()
            rows = begins[own] - (slot.number << SLOT_SHIFT)
            found += int((before[rows + counts[own]] - before[rows]).sum())
        return found
