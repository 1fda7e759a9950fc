"""What is known of a query: what waits of it, what runs, what it costs and how its allowance stands."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from penstock.control.actions import AdjustPrediction, ReportViolation
from penstock.control.events import DeadlineBound
from penstock.control.policies.deadlines.admission import ViewLoad
from penstock.control.policies.deadlines.allowance import CurrentConstraint, LossHistory
from penstock.control.policies.deadlines.demand import Demand
from penstock.control.policies.deadlines.disciplines import Instance
from penstock.control.policies.deadlines.feedback import Feedback
from penstock.control.policies.deadlines.forecast import InstanceForecast
from penstock.control.policies.deadlines.prediction import CostPredictor, UnitCosts
from penstock.control.policies.deadlines.sample_costs import SampleCost, sample_size, sample_work
from penstock.control.policies.deadlines.standing import Outcomes
from penstock.plan.deadlines import WindowSpan, WindowWork

#: a query that is behind comes nearer where an order takes so much of what the one before took
CATCHES_UP = 0.9
#: what samples cost counts for so long, seconds: later they may be in time again
_SAMPLES_LAST = 30.0
#: an order of a query of which none was measured takes so much more of a lot than its kin
_UNSURE = 2.0


@dataclass(frozen=True, slots=True)
class Order:
    """An order that runs.

    Attributes:
        instance: it works out.
        predicted: seconds.
        work: what it is worked out from.
        firm: it is abandoned at its deadline.
        end: when it is predicted to end, by the clock.
        lot: number of the lot it is in.
        is_sample: it is worked out from a sample.
    """

    instance: Instance
    predicted: float
    work: WindowWork
    firm: bool
    end: float
    lot: int
    is_sample: bool = False


@dataclass(slots=True, eq=False)
class QueryState:
    """A query with what waits of it: a `Backlog`."""

    bound: DeadlineBound
    predictor: CostPredictor
    history: LossHistory
    feedback: Feedback
    constraint: CurrentConstraint
    #: of orders of samples
    sampling: CostPredictor
    instances: deque[Instance] = field(default_factory=deque)
    forecast: InstanceForecast = field(default_factory=InstanceForecast)
    #: behind each other, in one lot
    running: deque[Order] = field(default_factory=deque)
    processed: WindowSpan | None = None
    busy_until: float | None = None
    outcomes: Outcomes = field(default_factory=Outcomes)
    distance: int = 0
    #: as of the newest instance
    demand: Demand = field(default_factory=Demand)
    catching_up: bool = False
    #: what the last order took that was not firm, if none was firm since
    late_seconds: float = inf

    @property
    def base(self) -> WindowSpan | None:
        # a sample leaves nothing to go on from
        if not self.running or self.running[-1].is_sample:
            return self.processed
        return self.running[-1].instance.span

    def can_begin(self, lot: int) -> bool:
        return not self.running or (self.running[-1].lot == lot and not self.running[-1].is_sample)

    @property
    def beside(self) -> float:
        return self.predictor.beside

    @property
    def job(self) -> float:
        return self.predictor.job

    @property
    def spread(self) -> float:
        return self.predictor.spread

    @property
    def measured_at(self) -> float:
        return self.predictor.measured_at

    def predict(self, span: WindowSpan, base: WindowSpan | None) -> tuple[float, WindowWork]:
        return self.predictor.predict(span, base)

    def created(self, instance: Instance) -> None:
        """An instance waits; what is asked follows."""
        self.instances.append(instance)
        self.forecast.created(instance)
        self.demand = Demand.of(
            self.forecast.newest, self.forecast.hop, self.predict, self.bound.query.constraint
        )

    def expected(self, due: float, now: float) -> Sequence[Instance]:
        return self.forecast.until(due, now)

    @property
    def load(self) -> ViewLoad | None:
        """What it asks of the processors."""
        loss, lag = self.bound.query.constraint, self.forecast.lag
        # as costs are known by now, and not as they were with the newest instance
        demand = Demand.of(self.forecast.newest, self.forecast.hop, self.predict, loss)
        if not demand.whole:
            return None
        seconds, least = demand.whole * self.forecast.hop, demand.whole - demand.allowed
        available = self.bound.query.deadline - lag
        return ViewLoad(
            loss.k, loss.m, *(round(each, 6) for each in (demand.whole, least, seconds, available, lag))
        )

    def own(self, seconds: float) -> float:
        """What an order of so many seconds takes itself, and not the job that it shares with others, as the newest ones did; before the first
        order of the query more than its kin took."""
        own = max(0.0, seconds - self.beside)
        return _UNSURE * own if self.predictor.is_by_kin else own

    def sample_of(self, instance: Instance, begin: float, now: float, whole: float) -> SampleCost | None:
        if not self.bound.query.approximate:
            return None
        tuples = instance.span.tuples
        is_known = now - self.sampling.known_at <= _SAMPLES_LAST
        costs = self.sampling.costs if is_known else self._guessed_costs(tuples)
        size = sample_size(costs, tuples, instance.deadline - begin, whole)
        if not size:
            return None
        seconds = costs.seconds(sample_work(size))
        beside = self.sampling.beside if is_known else costs.maintenance
        return SampleCost(size, seconds, max(0.0, seconds - beside), is_known)

    def _guessed_costs(self, tuples: int) -> UnitCosts:
        """Unit costs of a sample of so many tuples of a window, as if all of an exact answer but the job that it shares were a matter of
        its tuples: what it takes for its result is, where values are sorted."""
        exact = self.predictor.costs
        shared = min(self.beside, exact.maintenance)
        return UnitCosts(new=exact.new + (exact.maintenance - shared) / max(1, tuples), maintenance=shared)

    def settle(self, satisfied: bool) -> Iterator[ReportViolation]:
        """An outcome is known: the allowance follows."""
        declared, before = self.bound.query.constraint, self.constraint
        self.constraint = before.satisfied(declared) if satisfied else before.missed(declared)
        self.history.add(not satisfied)
        self.distance = self.history.distance()
        if self.constraint.violating and not before.violating:
            reason = f"more than {declared.k} of {declared.m} consecutive windows were lost"
            yield ReportViolation(self.bound.stream, self.bound.version, reason, self.figures())

    def expect_less(self) -> Iterator[AdjustPrediction]:
        """An instance that was predicted to miss was in time: rho, which only acts where the DSR falls, no longer keeps others back."""
        before = self.predictor.rho
        if before > 1:
            self.predictor.rho = 1.0
            reason = "a window that was predicted to miss its deadline met it: costs were over-estimated"
            figures = {"rho_before": before, "rho": 1.0}
            yield AdjustPrediction(self.bound.stream, self.bound.version, reason, figures)

    def figures(self) -> dict[str, float | int | str]:
        return {
            "k'": self.constraint.k,
            "m'": self.constraint.m,
            "distance": self.distance,
            "rho": round(self.predictor.rho, 4),
        }
