"""The feedback that corrects predictions, and the overload alarm.

Source: Wu, Gu, Lyu, Yu, section 3. The paper names no step, period or threshold: they are settings.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.deadlines import LossConstraint


@dataclass(frozen=True, slots=True)
class FeedbackSettings:
    """When predictions are corrected and the user is told.

    Attributes:
        period: monitoring period, seconds.
        least_instances: a period of a query goes on until so many instances have an outcome, and at least m.
        step: rho is multiplied by 1 + step or divided by it; 0: never changed.
        fall: the deadline satisfaction ratio has fallen where it is lower than in the period before by more.
        high: a load shedding ratio or false prediction ratio above is high.
        least_rho: rho stays between this and its inverse.
        alarm_satisfied: overload where the deadline satisfaction ratio of a period is below ...
        alarm_shed: ... or the load shedding ratio above.

    Raises:
        ValueError: the period is not above 0, or the step is negative.
    """

    period: float = 3.0
    least_instances: int = 5
    step: float = 0.0
    fall: float = 0.05
    high: float = 0.1
    least_rho: float = 0.25
    alarm_satisfied: float = 0.5
    alarm_shed: float = 0.5

    def __post_init__(self) -> None:
        if self.period <= 0 or self.step < 0:
            raise ValueError(
                f"period must be above 0 and step not negative, got {self.period} and {self.step}"
            )


#: what the paper's experiments had, as far as it says; measured unit costs are the better correction (docs/decisions/0028)
PAPER_FEEDBACK = FeedbackSettings(step=0.1)


@dataclass(slots=True)
class PeriodCounts:
    """Instances of a query whose outcome was known in a monitoring period.

    Attributes:
        satisfied: released in time.
        shed: given up by prediction.
        mispredicted: started, and not released in time.
        lost: otherwise: the deadline passed while they waited.
        failed: by the user's aggregate, which says nothing of costs and load: no ratio counts them.
    """

    satisfied: int = 0
    shed: int = 0
    mispredicted: int = 0
    lost: int = 0
    failed: int = 0

    @property
    def instances(self) -> int:
        """Those that met their deadline or did not, failed ones apart."""
        return self.satisfied + self.shed + self.mispredicted + self.lost

    @property
    def satisfaction(self) -> float:
        """DSR."""
        return self.satisfied / self.instances

    @property
    def shedding(self) -> float:
        """LSR = shed / instances."""
        return self.shed / self.instances

    @property
    def false_prediction(self) -> float:
        """PFR = predicted to meet their deadline but missed / predicted to meet it."""
        return self.mispredicted / max(1, self.satisfied + self.mispredicted)

    def figures(self) -> dict[str, float | int | str]:
        """What decisions are explained by."""
        return {
            "instances": self.instances,
            "failed": self.failed,
            "dsr": round(self.satisfaction, 4),
            "lsr": round(self.shedding, 4),
            "pfr": round(self.false_prediction, 4),
        }


class Feedback:
    """Judges one query at the end of each monitoring period.

    Args:
        settings: periods, steps, thresholds.
        constraint: the query's (k, m): a period with fewer than m instances says nothing of it.

    Attributes:
        counts: of the period that is under way.
        overloaded: the last period with outcomes was one of overload.
    """

    def __init__(self, settings: FeedbackSettings, constraint: LossConstraint) -> None:
        self._settings = settings
        self._least = max(settings.least_instances, constraint.m)
        self._before: float | None = None
        self._were_failing = False
        self.counts = PeriodCounts()
        self.overloaded = False

    @property
    def failing(self) -> bool:
        """Whether most instances fail: those of the period that is under way, or of the last one with outcomes."""
        counts = self.counts
        if not counts.instances and not counts.failed:
            return self._were_failing
        return counts.failed > counts.instances

    def end_period(self) -> PeriodCounts | None:
        """Ends the period, and returns what was counted in it; None: it goes on, as it has too few instances."""
        if self.counts.instances + self.counts.failed < self._least:
            return None
        self._were_failing = self.failing
        ended, self.counts = self.counts, PeriodCounts()
        if ended.failed and not ended.instances:
            self.overloaded = False
        return ended

    def corrected(self, rho: float, ended: PeriodCounts) -> float:
        """rho for the next period: lower where the satisfaction ratio fell and much was shed, higher where it fell and many
        predictions were false; of both the larger decides."""
        before, self._before = self._before, ended.satisfaction
        if before is None or ended.satisfaction >= before - self._settings.fall:
            return rho
        if max(ended.shedding, ended.false_prediction) <= self._settings.high:
            return rho
        step = 1 + self._settings.step
        changed = rho / step if ended.shedding > ended.false_prediction else rho * step
        return min(max(changed, self._settings.least_rho), 1 / self._settings.least_rho)

    def overload_begins(self, ended: PeriodCounts) -> bool:
        """Whether the user is to be told of an overload that was none before."""
        before = self.overloaded
        self.overloaded = (
            ended.satisfaction < self._settings.alarm_satisfied or ended.shedding > self._settings.alarm_shed
        )
        return self.overloaded and not before
