"""What the controller is told. Events are named in the past tense and carry no I/O handles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.kernels.asc import Codes
from penstock.operators.selection.asc import AscIndex
from penstock.optimizer.join_measures import JoinMeasures
from penstock.optimizer.join_model import SortOrders
from penstock.plan.arrangement import Arrangement
from penstock.plan.deadlines import DeadlineQuery, WindowSpan, WindowWork
from penstock.plan.joins import JoinOrder, JoinPlan


@dataclass(frozen=True, slots=True, eq=False)
class SelectionsBound:
    """The selections on a stream are new or have changed; statistics of older versions count no more.

    Attributes:
        stream: the stream's name.
        version: the plan version that holds them.
        index: their ASCs.
        running: the arrangement batches are answered by until another is chosen; None: the given order.
    """

    stream: str
    version: int
    index: AscIndex
    running: Arrangement | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StatisticsReported:
    """A batch of a stream was answered.

    Attributes:
        stream: the stream's name.
        version: the plan version that answered it, by whose region codes the sample is coded.
        tuples: tuples in the batch.
        sample: uint32[p-attributes, sampled tuples], region codes in order of arrival.
        costs: float[p-attributes], ns that the region of one value takes, sampled; None: all equal.
    """

    stream: str
    version: int
    tuples: int
    sample: Codes
    costs: npt.NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class JoinBound:
    """A join view is new or has changed; what was measured of it before counts no more.

    Attributes:
        stream: the view's name.
        version: of its plan.
        plan: what is joined.
        running: the order it is joined in until another is chosen.
        sorted_by: by input, numbers of the keys that there are runs sorted by; None: by event time alone. The first
            key it has a part in where not given.
    """

    stream: str
    version: int
    plan: JoinPlan
    running: JoinOrder
    sorted_by: SortOrders | None = None


@dataclass(frozen=True, slots=True, eq=False)
class JoinMeasured:
    """A monitoring period of a join is over.

    Attributes:
        stream: the view's name.
        version: of the plan that was joined by.
        measures: what was counted and timed.
    """

    stream: str
    version: int
    measures: JoinMeasures


@dataclass(frozen=True, slots=True, eq=False)
class OperatorsBound:
    """A group of unary operators is new or has changed.

    Attributes:
        stream: the stream's name.
        version: of the plan that holds them.
        running: their names, in the order they are run in until another is chosen.
        projections: names of those that are projections and stay behind the others.
    """

    stream: str
    version: int
    running: tuple[str, ...]
    projections: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class OperatorMeasure:
    """What an operator did.

    Attributes:
        name: of the operator.
        tuples: that came to it.
        passed: those it let through.
        seconds: of a processor.
    """

    name: str
    tuples: int
    passed: int
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class OperatorsMeasured:
    """A monitoring period of a group of unary operators is over.

    Attributes:
        stream: the stream's name.
        version: of the plan that was run.
        seconds: how long the period has lasted.
        operators: each one's measure.
    """

    stream: str
    version: int
    seconds: float
    operators: tuple[OperatorMeasure, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DeadlineBound:
    """A window view with a deadline is new or has changed; its instances so far and what was measured of it count no more.

    Attributes:
        stream: the view's name.
        version: of its plan.
        query: its deadline and the losses it allows.
        kin: views of the same one compute the same aggregates: before the first order of a view it is predicted by the orders of
            the others; "": there are none.
    """

    stream: str
    version: int
    query: DeadlineQuery
    kin: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class DeadlineDropped:
    """A window view with a deadline is gone, its waiting instances with it.

    Attributes:
        stream: the view's name.
        version: of its plan.
    """

    stream: str
    version: int


@dataclass(frozen=True, slots=True, eq=False)
class InstanceCreated:
    """A window slid.

    Attributes:
        stream: the view's name.
        version: of its plan.
        number: of the instance, ascending in a view.
        created: t_create, seconds by the controller's clock.
        span: its tuples.
        noticed: when that was known, by the same clock; None: at once.
    """

    stream: str
    version: int
    number: int
    created: float
    span: WindowSpan
    noticed: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class OrderEnded:
    """An order has worked its instance out, and the result is visible to the consumer by now.

    Attributes:
        stream: the view's name.
        version: of its plan.
        number: of the instance.
        seconds: from the order's start until the result was visible.
        adding_seconds: of these, for the new tuples.
        removing_seconds: of these, for the expired ones.
        work: what it was worked out from; None: what the order said.
        is_carried: whether later instances can be worked out from it.
        beside_seconds: of `seconds`, its share of what orders of one lot share: their job, their publication.
        together: orders in its lot.
    """

    stream: str
    version: int
    number: int
    seconds: float
    adding_seconds: float
    removing_seconds: float
    work: WindowWork | None = None
    is_carried: bool = True
    beside_seconds: float = 0.0
    together: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class LateAnswered:
    """The exact answer of a lost or approximated instance was worked out, late: no account changes.

    Attributes:
        stream: the view's name.
        version: of its plan.
        seconds: from the order's start to its end.
        adding_seconds: of these, for the tuples.
        work: what it was worked out from.
        beside_seconds: of `seconds`, what was not the order itself: its job.
    """

    stream: str
    version: int
    seconds: float
    adding_seconds: float
    work: WindowWork
    beside_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class OrderAbandoned:
    """An order was abandoned at its deadline: the instance would have taken longer.

    Attributes:
        stream: the view's name.
        version: of its plan.
        number: of the instance.
        seconds: it had worked by then: a lower bound of its cost.
    """

    stream: str
    version: int
    number: int
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class OrderFailed:
    """The user's aggregate raised or returned what it must not.

    Attributes:
        stream: the view's name.
        version: of its plan.
        number: of the instance.
        error: its message.
    """

    stream: str
    version: int
    number: int
    error: str


@dataclass(frozen=True, slots=True, eq=False)
class ProcessorsIdle:
    """Orders can be started: what is to be run now, and what is not worth waiting for any more?

    Attributes:
        processors: how many orders can be started at once.
        together_seconds: on each, orders may run behind each other as long as they themselves are predicted to take no longer than that; 0: one.
    """

    processors: int
    together_seconds: float = 0.0


Event = (
    SelectionsBound
    | StatisticsReported
    | JoinBound
    | JoinMeasured
    | OperatorsBound
    | OperatorsMeasured
    | DeadlineBound
    | DeadlineDropped
    | InstanceCreated
    | OrderEnded
    | LateAnswered
    | OrderAbandoned
    | OrderFailed
    | ProcessorsIdle
)
