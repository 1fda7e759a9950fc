"""When to follow another plan: orders of joins and of unary operators that are predicted to put out more.

A switch is worth it when it saves more than a threshold of the time that the running plan is predicted to take, and more
than a least time in a second of the streams: a plan that costs next to nothing is not worth changing. A least dwell time between
two switches keeps measurements that waver from changing plans to and fro.

Source: Song, Zhang, Lu, Yu, section 5 (the dynamic part); thresholds and dwell time are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from penstock.control.actions import Action, Figures, ReorderOperators, SwitchJoin
from penstock.control.events import Event, JoinBound, JoinMeasured, OperatorsBound, OperatorsMeasured
from penstock.optimizer.averages import AveragingSettings, FadingSums
from penstock.optimizer.join_measures import JoinAverages, StepCount
from penstock.optimizer.join_model import JoinModel, StepFigures
from penstock.optimizer.join_statistics import JoinStatistics, UnitCosts
from penstock.optimizer.operator_order import UnaryOperator, best_order, processing_seconds
from penstock.optimizer.output_rate import output_rate
from penstock.optimizer.probe_orders import PlannedJoin, PlannedOrder, plan_joins
from penstock.plan.joins import JoinOrder
from penstock.settings import Settings

#: half-lives, or windows, after which a stream that brings nothing counts as silent
_SILENT = 2.0


@dataclass(frozen=True, slots=True)
class SwitchSettings:
    """Parameters of switching plans.

    Attributes:
        threshold: share of the running plan's time that another one has to save.
        least_seconds: time that it has to save in a second of the streams, seconds.
        dwell_seconds: least time between two switches.
        averaging: of measurements.

    Raises:
        ValueError: the threshold is no share, or a time is negative.
    """

    threshold: float = 0.05
    least_seconds: float = 0.001
    dwell_seconds: float = 10.0
    averaging: AveragingSettings = field(default_factory=AveragingSettings)

    @classmethod
    def of(cls, settings: Settings) -> SwitchSettings:
        """Those that a user has chosen."""
        return cls(
            threshold=settings.plan_threshold,
            dwell_seconds=settings.plan_dwell_seconds,
            averaging=AveragingSettings(seconds=settings.plan_half_life_seconds),
        )

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < 1:
            raise ValueError(f"threshold must be at least 0 and below 1, got {self.threshold}")
        for name in ("least_seconds", "dwell_seconds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class JoinStanding:
    """How the running order of a join stands: what `explain` and the status tell.

    Attributes:
        statistics: what is known of the inputs and the executor.
        is_known: whether that is enough to predict anything by.
        running: the orders that are followed, with what is predicted of their steps.
        pairs: C_out, joined rows that a second of the streams gives rise to.
        seconds: C_time of the running order.
        output_rate: predicted, joined rows a second.
        measured: what each step was counted to do in a second of the streams; none since the order was switched.
        best: the best plan under these statistics; if it is not the running one, it would save less than the thresholds
            or the dwell time is not over.
    """

    statistics: JoinStatistics
    is_known: bool
    running: tuple[PlannedOrder, ...]
    pairs: float
    seconds: float
    output_rate: float
    measured: tuple[StepCount, ...]
    best: PlannedJoin

    @property
    def measured_rate(self) -> float | None:
        """Joined rows that the streams gave rise to a second, counted; None: nothing was since the order was switched."""
        if not self.measured:
            return None
        last = {(each.first, each.steps[-1].step.input) for each in self.running}
        return sum(step.output for step in self.measured if (step.first, step.input) in last)

    def measured_of(self, first: int, step: StepFigures) -> StepCount | None:
        """What a step for new tuples of an input was counted to do; None: nothing was."""
        place = (first, step.step.input)
        return next((each for each in self.measured if (each.first, each.input) == place), None)


@dataclass(frozen=True, slots=True)
class MeasuredOperator:
    """What was measured of a unary operator where it runs.

    Attributes:
        operator: what a tuple takes, and the share that passes.
        rate: tuples a second that come.
    """

    operator: UnaryOperator
    rate: float


@dataclass(frozen=True, slots=True)
class OperatorsStanding:
    """How the running order of a group of unary operators stands.

    Attributes:
        running: the operators in that order.
        seconds: what a tuple takes in it.
        best: the names in the best order under these statistics; if it is not the running one, it would save less than the
            thresholds or the dwell time is not over.
        best_seconds: what a tuple would take in that one.
    """

    running: tuple[MeasuredOperator, ...]
    seconds: float
    best: tuple[str, ...]
    best_seconds: float


class JoinChoice(Protocol):
    """Chooses orders of joins by something else than the predicted output rate."""

    @property
    def reason(self) -> str:
        """Why an order is followed, for people."""
        ...

    def order(self, model: JoinModel) -> JoinOrder | None:
        """The order to follow under the newest statistics; None: the running one."""
        ...


class OperatorChoice(Protocol):
    """Chooses orders of unary operators by something else than the least predicted time."""

    @property
    def reason(self) -> str:
        """Why an order is followed, for people."""
        ...

    def operators(self, running: Sequence[UnaryOperator], rate: float) -> Sequence[UnaryOperator]:
        """The order to follow.

        Args:
            running: the operators in the order they run in, as measured.
            rate: tuples a second that come.
        """
        ...


class JoinOrderPolicy:
    """Keeps every join's order the one with the largest predicted output rate.

    Args:
        settings: parameters, the same for all joins.
        clock: seconds, of any beginning.
        costs: what unit costs are believed to be before they are measured.
        choice: chooses orders otherwise; None: by the largest predicted output rate.
    """

    def __init__(
        self,
        settings: SwitchSettings,
        clock: Callable[[], float],
        costs: UnitCosts | None = None,
        choice: JoinChoice | None = None,
    ) -> None:
        self._choice = choice
        self._settings = settings
        self._clock = clock
        self._believed = costs
        self._joins: dict[str, _Join] = {}

    def handle(self, event: Event) -> list[Action]:
        """Takes an event and returns the actions it gives rise to."""
        if isinstance(event, JoinBound):
            averages = JoinAverages(self._settings.averaging, self._believed)
            gate = SwitchGate(self._settings)
            self._joins[event.stream] = _Join(event, event.running, averages, gate, self._choice)
        elif isinstance(event, JoinMeasured):
            join = self._joins.get(event.stream)
            if join is not None and join.bound.version == event.version:
                return join.measured(event, self._clock())
        return []

    def statistics(self, stream: str) -> dict[str, Any]:
        """What is known of a join, as JSON."""
        return self._joins[stream].averages.document()

    def restore(self, stream: str, statistics: Mapping[str, Any]) -> None:
        """Takes what an earlier life knew of a join, whose order dwells from now on as if it had just been switched.

        Args:
            stream: the join.
            statistics: see `statistics`.
        """
        self._joins[stream].averages.restore(statistics)
        self._joins[stream].gate.switched = self._clock()

    def standing(self, stream: str) -> JoinStanding | None:
        """How a join's running order stands by the newest statistics; None before anything was measured."""
        join = self._joins.get(stream)
        return None if join is None else join.standing


class OperatorOrderPolicy:
    """Keeps every group of unary operators in the order of the least predicted time (algorithm 2).

    Args:
        settings: parameters, the same for all groups.
        clock: seconds, of any beginning.
        choice: chooses orders otherwise; None: by the least predicted time.
    """

    def __init__(
        self,
        settings: SwitchSettings,
        clock: Callable[[], float],
        choice: OperatorChoice | None = None,
    ) -> None:
        self._choice = choice
        self._settings = settings
        self._clock = clock
        self._groups: dict[str, _Group] = {}

    def handle(self, event: Event) -> list[Action]:
        """Takes an event and returns the actions it gives rise to."""
        if isinstance(event, OperatorsBound):
            sums = FadingSums(self._settings.averaging)
            gate = SwitchGate(self._settings)
            self._groups[event.stream] = _Group(event, event.running, sums, gate, self._choice)
        elif isinstance(event, OperatorsMeasured):
            group = self._groups.get(event.stream)
            if group is not None and group.bound.version == event.version:
                return group.measured(event, self._clock())
        return []

    def statistics(self, stream: str) -> list[list[Any]]:
        """What is known of a group, as JSON."""
        return self._groups[stream].sums.document()

    def restore(self, stream: str, statistics: list[list[Any]]) -> None:
        """Takes what an earlier life knew of a group, whose order dwells from now on as if it had just been switched.

        Args:
            stream: the group.
            statistics: see `statistics`.
        """
        self._groups[stream].sums.restore(statistics)
        self._groups[stream].gate.switched = self._clock()

    def standing(self, stream: str) -> OperatorsStanding | None:
        """How a group's running order stands by the newest statistics; None before all of it was measured."""
        group = self._groups.get(stream)
        return None if group is None else group.standing


@dataclass(slots=True)
class SwitchGate:
    """Thresholds and dwell time.

    Attributes:
        settings: what they are.
        switched: when it last let something through, or a restart took up what runs, by the clock; None: never.
    """

    settings: SwitchSettings
    switched: float | None = None

    def lets(self, running: float, best: float, now: float, rate: float = 1.0) -> bool:
        """Whether to switch, from one predicted time to another; what it lets through counts as switched.

        Args:
            running, best: the times, seconds.
            now: by the clock.
            rate: how often they are spent in a second of the streams.
        """
        waited = self.switched is None or now - self.switched >= self.settings.dwell_seconds
        saved = running - best
        if (
            not waited
            or saved <= self.settings.threshold * running
            or saved * rate <= self.settings.least_seconds
        ):
            return False
        self.switched = now
        return True

    def lets_dwell(self, now: float) -> bool:
        """Whether the last switch is old enough for another one; if so, that counts as made.

        Args:
            now: by the clock.
        """
        if self.switched is not None and now - self.switched < self.settings.dwell_seconds:
            return False
        self.switched = now
        return True

    def figures(self) -> Figures:
        """The settings, for those who read why something was switched."""
        return {
            "threshold": self.settings.threshold,
            "least_seconds": self.settings.least_seconds,
            "dwell_seconds": self.settings.dwell_seconds,
        }


@dataclass(slots=True)
class _Join:
    bound: JoinBound
    running: JoinOrder
    averages: JoinAverages
    gate: SwitchGate
    choice: JoinChoice | None = None
    standing: JoinStanding | None = None
    #: by stream for how many seconds it has brought nothing
    silent: dict[int, float] = field(default_factory=dict)

    def measured(self, event: JoinMeasured, now: float) -> list[Action]:
        self.averages.add(event.measures)
        statistics = self.averages.statistics()
        model = JoinModel(self.bound.plan, statistics, self.bound.sorted_by)
        best, before = plan_joins(model), model.seconds(self.running)
        found: list[Action] = []
        streams = model.firsts()
        # by bounds on event times, and by the clock alone, a replay has far too many partners
        is_paced = not self.bound.plan.bounds or self.averages.are_paced(streams)
        if self._all_come(streams, event) and is_paced:
            found = self._switches(model, best, before, now)
        if found:
            self.averages.order_switched()
        orders = tuple(PlannedOrder(each.first, model.follow(each)) for each in self.running.orders)
        seconds = sum(each.seconds for each in orders)
        self.standing = JoinStanding(
            statistics,
            is_paced,
            orders,
            best.pairs,
            seconds,
            output_rate(best.pairs, seconds),
            self.averages.steps(),
            best,
        )
        return found

    def _switches(self, model: JoinModel, best: PlannedJoin, before: float, now: float) -> list[Action]:
        if self.choice is None:
            if not self.gate.lets(before, best.seconds, now):
                return []
            self.running = best.order
            return [self._switch(model, best, before)]
        order = self.choice.order(model)
        if order is None or order == self.running or not self.gate.lets_dwell(now):
            return []
        self.running = order
        seconds = model.seconds(order)
        figures: Figures = {
            "dwell_seconds": self.gate.settings.dwell_seconds,
            "seconds_before": before,
            "seconds": seconds,
            "best_seconds": best.seconds,
        }
        return [SwitchJoin(self.bound.stream, self.bound.version, self.choice.reason, figures, order)]

    def _all_come(self, streams: Sequence[int], event: JoinMeasured) -> bool:
        """Whether all streams bring tuples these days: by the rate of one that does not, every way to search it looks free,
        and it may come back with all it has kept for so long."""
        for number in streams:
            silent = self.silent.get(number, inf) + event.measures.seconds
            self.silent[number] = 0.0 if event.measures.tuples[number] else silent
        return max(self.silent.values()) <= _SILENT * self.gate.settings.averaging.seconds

    def _switch(self, model: JoinModel, best: PlannedJoin, before: float) -> SwitchJoin:
        statistics, plan = model.statistics, self.bound.plan
        aliases = [each.alias for each in plan.inputs]
        figures: dict[str, float | int | str] = {
            **self.gate.figures(),
            "seconds_before": before,
            "seconds": best.seconds,
            "output_rate_before": output_rate(best.pairs, before),
            "output_rate": best.output_rate,
            "search": best.search,
        }
        for number in model.firsts():
            figures[f"rate of {aliases[number]}"] = round(statistics.rates[number], 3)
        for (key, left, right), share in sorted(statistics.equal.items()):
            figures[f"selectivity of key {key} between {aliases[left]} and {aliases[right]}"] = share
        for (left, right), share in sorted(statistics.satisfied.items()):
            figures[f"selectivity of comparisons between {aliases[left]} and {aliases[right]}"] = share
        lost = ""
        if best.runner_up is not None:
            figures["runner_up_seconds"] = best.runner_up.seconds
        if best.lost:
            lost = f"; in the runner-up {best.lost}"
        reason = (
            f"one second of the streams is predicted to take {best.seconds:.3g} s instead of {before:.3g} s, "
            f"{1 - best.seconds / before:.1%} less, threshold {self.gate.settings.threshold:.1%}{lost}"
        )
        return SwitchJoin(self.bound.stream, self.bound.version, reason, figures, best.order)


@dataclass(slots=True)
class _Group:
    bound: OperatorsBound
    running: tuple[str, ...]
    sums: FadingSums
    gate: SwitchGate
    choice: OperatorChoice | None = None
    standing: OperatorsStanding | None = None

    def measured(self, event: OperatorsMeasured, now: float) -> list[Action]:
        found: dict[Hashable, float | npt.NDArray[np.float64]] = {"period": event.seconds}
        for each in event.operators:
            found["tuples", each.name] = each.tuples
            found["passed", each.name] = each.passed
            found["seconds", each.name] = each.seconds
        self.sums.add(event.seconds, found)
        if any(not self.sums.sum(("tuples", name)) for name in self.running):
            return []
        known = {
            name: UnaryOperator(
                name,
                self.sums.ratio(("seconds", name), ("tuples", name)),
                min(1.0, self.sums.ratio(("passed", name), ("tuples", name))),
                name in self.bound.projections,
            )
            for name in self.running
        }
        best = best_order([known[name] for name in self.running])
        before, after = processing_seconds([known[name] for name in self.running]), processing_seconds(best)
        rate = max((self.sums.ratio(("tuples", name), "period") for name in self.running), default=0.0)
        if self.choice is None:
            followed: Sequence[UnaryOperator] = best
            switches = self.gate.lets(before, after, now, rate)
        else:
            followed = self.choice.operators([known[name] for name in self.running], rate)
            is_other = tuple(each.name for each in followed) != self.running
            switches = is_other and self.gate.lets_dwell(now)
        taken = processing_seconds(followed) if switches else before
        if switches:
            self.running = tuple(operator.name for operator in followed)
        self.standing = OperatorsStanding(
            tuple(
                MeasuredOperator(known[name], self.sums.ratio(("tuples", name), "period"))
                for name in self.running
            ),
            taken,
            tuple(operator.name for operator in best),
            after,
        )
        if not switches:
            return []
        figures: dict[str, float | int | str] = {
            **self.gate.figures(),
            "seconds_before": before,
            "seconds": taken,
        }
        for operator in followed:
            figures[f"seconds of {operator.name}"] = operator.seconds
            figures[f"selectivity of {operator.name}"] = operator.selectivity
        if self.choice is None:
            reason = (
                f"a tuple is predicted to take {after:.3g} s instead of {before:.3g} s, {1 - after / before:.1%} less, "
                f"threshold {self.gate.settings.threshold:.1%}"
            )
        else:
            reason = self.choice.reason
        return [ReorderOperators(self.bound.stream, self.bound.version, reason, figures, self.running)]
