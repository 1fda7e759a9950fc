"""Which order a join's next cut follows: what cuts have measured, handed to the policy of output rates.

Selectivities of keys come of samples of what is new, rates of its count, costs of what the tasks' steps took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.control.actions import SwitchJoin
from penstock.control.events import JoinBound, JoinMeasured
from penstock.control.policies.join_choices import join_policy
from penstock.control.policies.output_rate import JoinStanding, SwitchSettings
from penstock.operators.joins.tuples import InputRuns, RunSlice
from penstock.operators.runs.run import Part
from penstock.optimizer.join_measures import JoinMeasures, StepCount, Work, equal_pairs
from penstock.plan.joins import JoinOrder, JoinPlan
from penstock.settings import Settings
from penstock.spark.lanes.joins.grid import KeptRuns, kept_runs
from penstock.spark.lanes.joins.orders import ORDERS, first_order

#: keys of an input that are compared with those of others, a cut
_SAMPLED = 2_000
#: the one version of a lane's plan
_VERSION = 0
_MICROSECONDS = 1e6


class JoinPlanner:
    """Plans the cuts of one join; the lane's thread owns it, others may read `order` and `standing`.

    Args:
        view: the view's name.
        plan: the join.
        settings: which policy chooses, by which thresholds.
        clock: seconds, for rates and dwell times.
    """

    def __init__(
        self,
        view: str,
        plan: JoinPlan,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._view = view
        self._plan = plan
        kept = kept_runs(plan)
        sorted_by = tuple(
            tuple(each.key for each in kept if each.input == number) for number in range(len(plan.inputs))
        )
        #: how the next cut is joined; replaced as a whole
        self.order: JoinOrder = first_order(plan)
        self._policy = join_policy(settings.join_policy, SwitchSettings.of(settings), clock)
        self._sorted_by = sorted_by
        self._is_fixed = settings.join_policy == "fixed"
        self._bind()
        self._clock = clock
        self._measured = clock()
        #: by input that has runs of it, keys of its newest tuples
        self._samples: dict[KeptRuns, npt.NDArray[np.int64]] = {}
        #: by stream, the median event time of its newest tuples, seconds
        self._middles: dict[int, float] = {}

    def document(self) -> dict[str, Any]:
        """The running order and the statistics, as JSON."""
        return {"order": ORDERS.document(self.order), "statistics": self._policy.statistics(self._view)}

    def restore(self, document: Mapping[str, Any]) -> None:
        """Goes on from what an earlier life followed and knew.

        Args:
            document: see `document`.
        """
        if not self._is_fixed:
            self.order = ORDERS.value(document["order"])
        self._bind()
        self._policy.restore(self._view, document["statistics"])

    def _bind(self) -> None:
        self._policy.handle(JoinBound(self._view, _VERSION, self._plan, self.order, self._sorted_by))

    @property
    def standing(self) -> JoinStanding | None:
        """How the running order stands; None before anything was measured."""
        return self._policy.standing(self._view)

    def measured(
        self,
        cut: int,
        runs: Mapping[KeptRuns, InputRuns],
        steps: Sequence[StepCount],
        work: Sequence[Work],
    ) -> list[SwitchJoin]:
        """Takes in a cut.

        Args:
            cut: its number.
            runs: what is new of the streams, and the static tables as a whole.
            steps: what its steps did.
            work: the same for what their pieces cost.

        Returns:
            The change of order it gives rise to, if any.
        """
        now = self._clock()
        seconds, self._measured = max(now - self._measured, 1e-3), now
        tuples, sizes = [0] * len(self._plan.inputs), [0] * len(self._plan.inputs)
        for each, own in runs.items():
            tuples[each.input] = _rows(own.new)
            sizes[each.input] = _rows(own.old)
        found = {each.input: _middle(own.new) for each, own in runs.items() if tuples[each.input]}
        middles = {number: middle for number, middle in found.items() if middle is not None}
        passed = [self._passed(number, count, middles) for number, count in enumerate(tuples)]
        self._middles |= middles
        measures = JoinMeasures(
            seconds,
            1,
            tuple(tuples),
            tuple(sizes),
            dict(self._equal(cut, runs)),
            passed=tuple(passed),
            work=tuple(work),
            steps=tuple(steps),
        )
        event = JoinMeasured(self._view, _VERSION, measures)
        switches = [each for each in self._policy.handle(event) if isinstance(each, SwitchJoin)]
        for switch in switches:
            self.order = switch.order
        return switches

    def _passed(self, number: int, tuples: int, middles: Mapping[int, float]) -> tuple[float, float]:
        """The new tuples of a stream, and by how much they have moved its event time on; late ones move it back again."""
        before, reached = self._middles.get(number), middles.get(number)
        if before is None or reached is None:
            return 0.0, 0.0
        return float(tuples), reached - before

    def _equal(
        self, cut: int, runs: Mapping[KeptRuns, InputRuns]
    ) -> Iterator[tuple[tuple[int, int, int], tuple[float, float]]]:
        rng = np.random.default_rng(cut)
        found = {each: _sample(own, rng) for each, own in runs.items() if each.key is not None}
        renewed = {each for each, keys in found.items() if len(keys)}
        # a cut may bring tuples of one stream alone
        self._samples |= {each: found[each] for each in renewed}
        samples = {each: self._samples[each] for each in runs if each in self._samples}
        for one, other in combinations(samples, 2):
            if one.key == other.key and (one in renewed or other in renewed):
                assert one.key is not None, "others have no samples"
                yield (one.key, one.input, other.input), equal_pairs(samples[one], samples[other])


def _rows(slices: Sequence[RunSlice]) -> int:
    return sum(part.rows - part.loose for each in slices for part in each.run.parts.values())


def _middle(slices: Sequence[RunSlice]) -> float | None:
    """The median event time of tuples, seconds: one ahead of its time moves it by a place. None where none has one."""
    parts = ((each.run.part(number), each.run.plan.time) for each in slices for number in each.run.parts)
    times = np.concatenate([_known_times(part, name) for part, name in parts if part is not None])
    return float(np.median(times)) / _MICROSECONDS if len(times) else None


def _known_times(part: Part, name: str) -> npt.NDArray[np.int64]:
    """The event times of a part's tuples that are not loose and have one, int64 microseconds."""
    column = part.tuples.column(name)[: len(part.times)]
    return part.times[column.is_valid().to_numpy(zero_copy_only=False)] if column.null_count else part.times


def _sample(runs: InputRuns, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Numbers of the keys of some rows, see `Part.keys`: of each part a share, as equal keys lie in one."""
    slices = (*runs.new, *runs.old)
    share = _SAMPLED / max(_SAMPLED, _rows(slices))
    found = [np.zeros(0, np.int64)]
    for each in slices:
        for number in each.run.parts:
            part = each.run.part(number)
            assert part is not None, "it is in the directory"
            own = rng.binomial(len(part.keys), share)
            found.append(part.keys[rng.integers(0, max(1, len(part.keys)), own)].astype(np.int64))
    return np.concatenate(found)
