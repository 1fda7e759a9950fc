"""Finding evaluation sequences of attribute selection constructs from sampled tuples.

An arranger is a step-wise state machine: every step takes the tuples of one period tau, measures all
candidates on them and fixes one more ASC (macro) or extends all paths by one arrow (hybrid).

Source: Lee & Lee, sections 4.2 and 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from penstock.kernels import asc_measures as kernels
from penstock.kernels.asc import Codes
from penstock.operators.selection.asc import AscIndex
from penstock.plan.arrangement import NO_ARROW, Arrangement, ArrangementKind


def _weights(index: AscIndex, costs: Sequence[float] | None) -> npt.NDArray[np.int64]:
    """What a failure counts for at each p-attribute's ASC: 1000 at the cheapest, less where it costs more.

    Whole numbers, so that equal measures stay equal and ties are seen.
    """
    if costs is None:
        return np.ones(len(index.coded.codings), np.int64)
    ratios = min(costs) / np.asarray(costs, float)
    return np.maximum(1, np.rint(1000 * ratios)).astype(np.int64)


class MacroArranger:
    """Finds one order for all tuples, one ASC a period.

    Phase 1, until the sequence is a cover set, appends the ASC of the lowest conditional selectivity;
    phase 2 the one of the highest tuple dropping ratio. Ties go to the lower individual selectivity,
    measured in the first period, then to the lower index. Where evaluations differ in cost, what
    counts is evaluation instances failed, or tuples dropped, a unit of cost.

    Args:
        index: the ASCs.
        costs: cost of one evaluation of each p-attribute's ASC; 1 each where None.
    """

    def __init__(self, index: AscIndex, costs: Sequence[float] | None = None) -> None:
        self._index = index
        self._weights = _weights(index, costs)
        self._rest = list(index.attributes)
        self._order: list[int] = []
        #: of the closest choice how much the other candidate falls short, its place in the order, and it
        self._closest: tuple[float, int, int] | None = None
        every = np.bitwise_or.reduce(index.tables.qub, axis=0, initial=0)
        self._uncovered = every.astype(np.uint64)
        #: selectivity of each p-attribute's ASC alone, in the first period; 1 where not measured
        self.individual = np.ones(len(index.coded.codings))

    @property
    def done(self) -> bool:
        """Whether the sequence holds all ASCs; the last one needs no period."""
        return len(self._rest) <= 1

    def step(self, codes: Codes) -> None:
        """Fixes one more ASC by the tuples of one period, uint32[n, tuples]."""
        candidates = np.asarray(self._rest, np.int64)
        tuples = codes.shape[1]
        if not self._order:
            passed = kernels.passed_bits(self._index.tables, codes, self._index.tables.live, candidates)
            self.individual[candidates] = passed / (self._index.terms * tuples)
        if self._uncovered.any():
            uncovered = int(np.bitwise_count(self._uncovered).sum())
            passed = kernels.passed_bits(self._index.tables, codes, self._uncovered, candidates)
            gains = uncovered * tuples - passed
        else:
            order = np.asarray(self._order, np.int64)
            gains = kernels.drop_counts(self._index.tables, codes, order, candidates)
            gains = gains - kernels.drop_counts(self._index.tables, codes, order[:-1], order[-1:])
        gains = gains * self._weights[candidates]
        first, second = np.lexsort((candidates, self.individual[candidates], -gains))[:2]
        short = 1 - gains[second] / gains[first] if gains[first] else 0.0
        if self._closest is None or short < self._closest[0]:
            self._closest = float(short), len(self._order), int(candidates[second])
        best = int(candidates[first])
        self._rest.remove(best)
        self._order.append(best)
        self._uncovered = self._uncovered & ~self._index.tables.qub[best]

    def arrangement(self) -> Arrangement:
        """The sequence found; ASCs not placed yet follow in the given order."""
        return Arrangement(ArrangementKind.MACRO, (*self._order, *self._rest))

    def runner_up(self) -> Arrangement | None:
        """The sequence with the other candidate in front where the choice was closest; None before the first choice."""
        if self._closest is None:
            return None
        _, place, other = self._closest
        order = [each for each in self.arrangement().order if each != other]
        return Arrangement(ArrangementKind.MACRO, (*order[:place], other, *order[place:]))


class HybridArranger:
    """Finds the micro-arrows that beat a macro-sequence, one step along all paths a period.

    A region is decided in the period in which most tuples reach it. Its candidates are those of its
    cab that some of these tuples have not evaluated, measured by what would happen were the arrow
    there: a tuple that has evaluated the candidate takes its macro-arrow. While the path of some of the tuples is no
    cover set, the measure is the share of live GRB bits that pass, after that the dropping ratio. The
    best candidate is kept where it is no worse than the macro-arrows on the same tuples.

    Args:
        index: the ASCs.
        macro: the macro-sequence.
        individual: float[n], individual selectivities, for ties.
        costs: as for `MacroArranger`.
    """

    def __init__(
        self,
        index: AscIndex,
        macro: Arrangement,
        individual: npt.NDArray[np.float64],
        costs: Sequence[float] | None = None,
    ) -> None:
        self._index = index
        self._order = macro.order
        self._individual = individual
        self._weights = _weights(index, costs)
        self._micro = index.no_arrows()
        self._decided_by: dict[tuple[int, int], int] = {}
        self._depth = 1

    @property
    def done(self) -> bool:
        """Whether the paths have reached their last ASC."""
        return self._depth >= len(self._order)

    def step(self, codes: Codes) -> None:
        """Extends all paths by one arrow by the tuples of one period, uint32[n, tuples]."""
        at, macro, covering, failed, emptied = kernels.failures_after(
            self._index.tables,
            codes,
            np.asarray(self._order, np.int64),
            np.concatenate(self._micro),
            self._depth,
        )
        alive = np.flatnonzero(at >= 0)
        regions = codes[at[alive], alive].astype(np.int64)
        by_region = np.lexsort((regions, at[alive]))
        keys = np.stack([at[alive], regions])[:, by_region]
        splits = np.flatnonzero(np.any(np.diff(keys, axis=1) != 0, axis=0)) + 1
        for pool in np.split(alive[by_region], splits):
            if len(pool):
                gained = emptied[pool] if covering[pool].all() else failed[pool]
                self._decide(
                    int(at[pool[0]]),
                    int(codes[at[pool[0]], pool[0]]),
                    macro[pool],
                    failed[pool] >= 0,
                    gained.astype(np.int64),
                )
        self._depth += 1

    def _decide(
        self,
        attribute: int,
        region: int,
        macro: npt.NDArray[np.int32],
        open_: npt.NDArray[np.bool_],
        gained: npt.NDArray[np.int64],
    ) -> None:
        if len(macro) <= self._decided_by.get((attribute, region), 0):
            return
        self._decided_by[attribute, region] = len(macro)
        self._micro[attribute][region] = NO_ARROW
        candidates = np.flatnonzero(self._index.cab(attribute)[region] & open_.any(axis=0))
        if not len(candidates):
            return
        gained = gained * self._weights
        by_macro = gained[np.arange(len(macro)), macro]
        gains = np.where(open_, gained, by_macro[:, None]).sum(axis=0)[candidates]
        best = int(np.lexsort((candidates, self._individual[candidates], -gains))[0])
        if gains[best] >= by_macro.sum():
            self._micro[attribute][region] = candidates[best]

    def arrangement(self) -> Arrangement:
        """The macro-sequence with the micro-arrows found so far."""
        return Arrangement(
            ArrangementKind.HYBRID, self._order, tuple(targets.copy() for targets in self._micro)
        )


class SequenceArranger:
    """Finds a macro-sequence and, where asked for, the micro-arrows on top of it.

    Args:
        index: the ASCs.
        kind: MACRO or HYBRID.
        costs: as for `MacroArranger`.
    """

    def __init__(
        self,
        index: AscIndex,
        kind: ArrangementKind = ArrangementKind.HYBRID,
        costs: Sequence[float] | None = None,
    ) -> None:
        self._index = index
        self._kind = kind
        self._costs = costs
        self._macro = MacroArranger(index, costs)
        self._hybrid: HybridArranger | None = None
        self._begin_hybrid()

    @property
    def periods(self) -> int:
        """Periods of tau tuples the whole arrangement takes."""
        steps = max(0, len(self._index.attributes) - 1)
        return steps if self._kind is ArrangementKind.MACRO else 2 * steps

    @property
    def done(self) -> bool:
        """Whether the arrangement is complete."""
        return self._macro.done if self._hybrid is None else self._hybrid.done

    def step(self, codes: Codes) -> None:
        """Takes the tuples of one period, uint32[n, tuples]."""
        if self._hybrid is not None:
            self._hybrid.step(codes)
        else:
            self._macro.step(codes)
            self._begin_hybrid()

    def _begin_hybrid(self) -> None:
        if self._macro.done and self._kind is ArrangementKind.HYBRID:
            macro = self._macro.arrangement()
            self._hybrid = HybridArranger(self._index, macro, self._macro.individual, self._costs)

    def runner_up(self) -> Arrangement | None:
        """The macro-sequence of the closest other choice, see `MacroArranger.runner_up`."""
        return self._macro.runner_up()

    def arrangement(self) -> Arrangement:
        """The arrangement found so far."""
        return self._macro.arrangement() if self._hybrid is None else self._hybrid.arrangement()


def arrange(
    index: AscIndex,
    periods: Iterable[Codes],
    kind: ArrangementKind = ArrangementKind.HYBRID,
    costs: Sequence[float] | None = None,
) -> Arrangement:
    """Finds an arrangement from the tuples of enough periods, uint32[n, tuples] each."""
    arranger = SequenceArranger(index, kind, costs)
    for codes in periods:
        if arranger.done:
            break
        arranger.step(codes)
    return arranger.arrangement()
