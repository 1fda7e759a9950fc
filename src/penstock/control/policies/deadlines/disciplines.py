"""Which waiting instance is worked out next: best effort, EDF, DBP, DWCS and the paper's (k, m) rule behind one interface.

Sources: Wu, Gu, Lyu, Yu, table 2; Hamdaoui and Ramanathan (DBP); West, Zhang, Schwan and Poellabauer (DWCS).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from penstock.control.policies.deadlines.allowance import CurrentConstraint, LossHistory
from penstock.control.policies.deadlines.demand import Demand
from penstock.control.policies.deadlines.prediction import expiration_factor
from penstock.control.policies.deadlines.sample_costs import SampleCost
from penstock.plan.deadlines import WindowSpan, WindowWork

MISSES = "predicted to miss its deadline"
#: an instance that has waited for no more than so much of its deadline may still be in time, if it costs less than predicted
_FRESH = 0.25


@dataclass(frozen=True, slots=True)
class Instance:
    """A window instance that waits.

    Attributes:
        number: ascending in its query.
        created: t_create, seconds by the clock.
        deadline: t_create + D.
        span: its tuples.
        arrival: ascending over all queries, in the order they were told of.
        noticed: when it was known, or will be, by the clock: nobody can begin it before.
    """

    number: int
    created: float
    deadline: float
    span: WindowSpan
    arrival: int
    noticed: float


class Backlog(Protocol):
    """A query with what waits of it."""

    @property
    def instances(self) -> Sequence[Instance]:
        """Those that wait, oldest first; only the oldest can be started, so that results come in order."""

    def expected(self, due: float, now: float) -> Sequence[Instance]:
        """Those still to be created whose deadline will not be after `due`, the next one first."""

    @property
    def base(self) -> WindowSpan | None:
        """Tuples of the last processed instance, or of the one that is being worked out; None where there is none."""

    @property
    def busy_until(self) -> float | None:
        """When its running orders are predicted to end; None where the oldest instance can be started."""

    def can_begin(self, lot: int) -> bool:
        """Whether its oldest instance can be begun in a lot: no order of it runs elsewhere."""

    @property
    def constraint(self) -> CurrentConstraint:
        """(k', m')."""

    @property
    def history(self) -> LossHistory:
        """The last m outcomes."""

    @property
    def distance(self) -> int:
        """Consecutive losses that lead to a violation; 0: it is in one already, see `LossHistory.distance`."""

    @property
    def demand(self) -> Demand:
        """What its instances ask of the processors."""

    @property
    def beside(self) -> float:
        """Of the predicted seconds of an instance, its part of what orders of one lot share."""

    @property
    def job(self) -> float:
        """All that the orders of a lot share, seconds."""

    @property
    def spread(self) -> float:
        """Relative standard deviation of costs around their prediction."""

    @property
    def catching_up(self) -> bool:
        """Whether its last order was not firm and took less than the one before: it comes nearer to its deadlines."""

    @property
    def measured_at(self) -> float:
        """When its costs were last measured, by the clock; minus infinity: never."""

    def predict(self, span: WindowSpan, base: WindowSpan | None) -> tuple[float, WindowWork]:
        """Predicted seconds of an instance, and from what it is worked out."""

    def sample_of(self, instance: Instance, begin: float, now: float, whole: float) -> SampleCost | None:
        """The largest sample that is worth its time in the place of an answer; None where none is, or allowed.

        Args:
            instance: that would be answered.
            begin: when the order of the sample would begin, by the clock.
            now: by the clock.
            whole: predicted seconds of the exact answer, or of a larger sample.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What is done with the backlogs.

    Attributes:
        run: of which the oldest instance that is not shed is worked out; None: of none.
        shed: the instances not worth waiting for, by backlog so many of the oldest.
        reason: why that one is run.
        firm: it is abandoned at its deadline.
        behind: of which the oldest instances are run next, in this order, each by the processor that is free first, as long as none takes
            longer than predicted; the instances of one behind each other. Beside each the sample that answers it.
        sample: that instance is answered by; None: it is answered exactly.
    """

    run: Backlog | None
    shed: Sequence[tuple[Backlog, int, str]]
    reason: str
    firm: bool = True
    behind: Sequence[tuple[Backlog, SampleCost | None]] = ()
    sample: SampleCost | None = None


@dataclass(frozen=True, slots=True, order=True)
class Processor:
    """A processor with the lot that it works on.

    Attributes:
        end: when it is predicted to be free, by the clock.
        room: further orders may run behind those of the lot as long as they take no longer themselves, seconds; 0: none may.
    """

    end: float
    room: float = 0.0


class Discipline(Protocol):
    """Chooses among what waits; keeps no state."""

    @property
    def name(self) -> str:
        """As figures and the status tell it."""

    @property
    def predicts(self) -> bool:
        """Whether instances are shed by prediction."""

    def choose(
        self, backlogs: Sequence[Backlog], now: float, processors: Sequence[Processor], together: float
    ) -> Choice:
        """Chooses for one idle processor.

        Args:
            backlogs: of all queries, in one of them something that can be started.
            now: by the clock.
            processors: all, that one and other idle ones free now.
            together: orders of a lot may take together, seconds.
        """


@dataclass(frozen=True, slots=True)
class Candidate:
    """The oldest instance of a backlog that is not shed.

    Attributes:
        instance: that one.
        backlog: where it waits.
        factor: its predicted expiration factor.
    """

    instance: Instance
    backlog: Backlog
    factor: float


def is_hopeless(backlog: Backlog) -> bool:
    """Whether the newest instance is predicted to take longer than there was time when it was noticed."""
    newest = backlog.instances[-1]
    return backlog.predict(newest.span, backlog.base)[0] > newest.deadline - newest.noticed


def tried_again(backlogs: Sequence[Backlog], now: float, share: float) -> Choice | None:
    """Begin the newest instance of a query of which all are shed and none was measured for long: it may cost less than it did.

    Args:
        backlogs: of all queries.
        now: by the clock.
        share: of a processor that all such queries take together at most; 0: nothing is tried.

    Returns:
        The order, abandoned at its deadline; None where none is due.
    """
    hopeless = [each for each in backlogs if each.instances and each.busy_until is None and is_hopeless(each)]
    for each in hopeless if share else ():
        newest = each.instances[-1]
        most = newest.deadline - newest.noticed
        is_due = now - each.measured_at >= most * len(hopeless) / share
        if each.measured_at > -inf and is_due and now - newest.noticed <= _FRESH * most:
            passed_over = (each, len(each.instances) - 1, MISSES)
            shed = [passed_over] if len(each.instances) > 1 else []
            return Choice(each, shed, "tried again: not measured for a long time")
    return None


#: smaller is first
Rank = Callable[[Candidate], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class RankedDiscipline:
    """Runs the candidate that ranks first.

    Attributes:
        name: of the rule.
        rank: the rule.
        predicts: sheds candidates whose predicted expiration factor is above 1, before it ranks.
        trial_share, idle_share: see `tried_again`; the second where nothing else can be begun. Without them a query whose
            predictions shed everything is never measured again.
    """

    name: str
    rank: Rank
    predicts: bool
    trial_share: float = 0.0
    idle_share: float = 0.0

    def choose(
        self,
        backlogs: Sequence[Backlog],
        now: float,
        processors: Sequence[Processor],  # noqa: ARG002
        together: float,  # noqa: ARG002
    ) -> Choice:
        """Chooses for one idle processor; see `Discipline.choose`."""
        if (tried := tried_again(backlogs, now, self.trial_share)) is not None:
            return tried
        candidates: list[Candidate] = []
        shed = []
        for backlog in backlogs:
            if backlog.busy_until is not None:
                continue
            hopeless = 0
            for instance in backlog.instances:
                seconds, _ = backlog.predict(instance.span, backlog.base)
                factor = expiration_factor(seconds, instance.deadline, now)
                if factor <= 1 or not self.predicts:
                    candidates.append(Candidate(instance, backlog, factor))
                    break
                hopeless += 1
            if hopeless:
                shed.append((backlog, hopeless, MISSES))
        if not candidates:
            return tried_again(backlogs, now, self.idle_share) or Choice(None, shed, "")
        first = min(candidates, key=self.rank)
        return Choice(first.backlog, shed, f"first of {len(candidates)} by {self.name}")


def first_come(candidate: Candidate) -> tuple[float, ...]:
    """First come, first served."""
    return (candidate.instance.arrival,)


def earliest_deadline(candidate: Candidate) -> tuple[float, ...]:
    """EDF."""
    return (candidate.instance.deadline, candidate.instance.arrival)


def least_distance(candidate: Candidate) -> tuple[float, ...]:
    """DBP: nearest to a violation first, then the earliest deadline."""
    return (candidate.backlog.distance, candidate.instance.deadline, candidate.instance.arrival)


def window_constrained(candidate: Candidate) -> tuple[float, ...]:
    """DWCS: earliest deadline first, then the smallest C'; with none left the largest m', else the smallest k'."""
    return (candidate.instance.deadline, *_tight(candidate, 1), candidate.instance.arrival)


def paper_rank(candidate: Candidate) -> tuple[float, ...]:
    """Table 2 as printed: largest expiration factor first, to one decimal, then the smallest C'; with none left the largest m',
    else the largest k'."""
    return (-round(candidate.factor, 1), *_tight(candidate, -1), candidate.instance.arrival)


def paper_rank_tighter(candidate: Candidate) -> tuple[float, ...]:
    """Table 2 with the smaller k' first, as in DWCS."""
    return (-round(candidate.factor, 1), *_tight(candidate, 1), candidate.instance.arrival)


def _tight(candidate: Candidate, sign: int) -> tuple[float, float]:
    """By C', then by m' or k'."""
    current = candidate.backlog.constraint
    return current.factor, sign * current.k if current.k else -current.m


BEST_EFFORT = RankedDiscipline("best effort", first_come, predicts=False)
PREDICTIVE = RankedDiscipline("first in, first out, with prediction", first_come, predicts=True)
EDF = RankedDiscipline("EDF", earliest_deadline, predicts=False)
DBP = RankedDiscipline("DBP", least_distance, predicts=False)
DWCS = RankedDiscipline("DWCS", window_constrained, predicts=False)
PAPER = RankedDiscipline("the paper's (k, m) rule", paper_rank, predicts=True)
PAPER_TIGHTER = RankedDiscipline(
    "the paper's (k, m) rule with the smaller k'", paper_rank_tighter, predicts=True
)
