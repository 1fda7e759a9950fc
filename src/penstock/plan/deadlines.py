"""Window views with deadlines, the losses they allow and the aggregates of the user's that they call: frozen data.

Source: Wu, Gu, Lyu, Yu, definitions 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.plan.windows import WindowPlan


@dataclass(frozen=True, slots=True)
class LossConstraint:
    """(k, m): among any m consecutive instances of a query at most k may miss their deadline.

    Attributes:
        k: the window numerator, instances.
        m: the window denominator, instances.

    Raises:
        ValueError: not 0 <= k <= m, or m < 1.
    """

    k: int
    m: int

    def __post_init__(self) -> None:
        if self.m < 1 or not 0 <= self.k <= self.m:
            raise ValueError(f"(k, m) must be 0 <= k <= m and m >= 1, got ({self.k}, {self.m})")

    @property
    def factor(self) -> float:
        """The constraint factor C = k / m."""
        return self.k / self.m


@dataclass(frozen=True, slots=True)
class DeadlineQuery:
    """A window view with a deadline.

    Attributes:
        name: the view's.
        deadline: D_Q: seconds from an instance's creation to its release.
        constraint: the losses it allows; without the hint all of them, (1, 1).
        incremental: whether an instance can be worked out from the state of an earlier one; else each is worked out afresh.
        approximate: whether one that would be shed may be answered by a sample.

    Raises:
        ValueError: the deadline is not above 0.
    """

    name: str
    deadline: float
    constraint: LossConstraint = LossConstraint(1, 1)
    incremental: bool = True
    approximate: bool = False

    def __post_init__(self) -> None:
        if not self.deadline > 0:
            raise ValueError(f"the deadline of {self.name!r} must be above 0 s, got {self.deadline}")


@dataclass(frozen=True, slots=True)
class Arity:
    """How many arguments a function takes.

    Attributes:
        least: the fewest.
        most: the most; None: any number.
    """

    least: int
    most: int | None

    def allows(self, number: int) -> bool:
        """Whether it takes so many."""
        return self.least <= number and (self.most is None or number <= self.most)

    def __str__(self) -> str:
        if self.most is None:
            return f"{self.least} arguments or more"
        if self.least < self.most:
            return f"{self.least} to {self.most} arguments"
        return f"{self.least} argument{'s' * (self.least != 1)}"


@dataclass(frozen=True, slots=True)
class AggregateSignature:
    """What a query has to know of an aggregate of the user's.

    Attributes:
        name: as it was registered.
        type: of its values.
        arity: how many arguments it takes.
        is_incremental: whether a window can be worked out from the state of an earlier one.
    """

    name: str
    type: pa.DataType
    arity: Arity
    is_incremental: bool


@dataclass(frozen=True, slots=True)
class UserCall:
    """A call of an aggregate of the user's in a view.

    Attributes:
        name: the aggregate's, as it was registered.
        arguments: columns of the tuples, one or more.
        type: of its values.
    """

    name: str
    arguments: tuple[str, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class DeadlineView:
    """What the instances of a window view with a deadline are worked out from.

    Attributes:
        query: its name, deadline and allowance.
        plan: windows, keys and Spark's aggregates over `columns`, and the error bound by which slack lets a window close.
        calls: the user's aggregates, in place of Spark's: the n-th of either is `_an` of a group.
        late: whether the exact answer of an instance that was shed, missed or approximated still comes, as a correction marked so.
        columns: (Spark SQL over the stream's columns, name): what is needed of a tuple, its event time first.
        waits: whether windows wait for late tuples, so that the error bound of `plan` holds; else they close as soon as the
            stream's time has passed their end.
    """

    query: DeadlineQuery
    plan: WindowPlan
    calls: tuple[UserCall, ...]
    late: bool
    columns: tuple[tuple[str, str], ...]
    waits: bool = False


@dataclass(frozen=True, slots=True)
class WindowSpan:
    """Which tuples a window instance holds, as places in the stream: those of its mapped tuples in order of time.

    Attributes:
        first: tuples that lie before the window.
        last: tuples that lie before its end.
    """

    first: int
    last: int

    @property
    def tuples(self) -> int:
        """How many the instance holds."""
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class WindowWork:
    """What an instance is worked out from.

    Attributes:
        new: tuples to be added.
        expired: tuples to be removed.
        carried: from the state of the last processed instance; else from nothing.
    """

    new: int
    expired: int
    carried: bool


def carried_work(span: WindowSpan, base: WindowSpan) -> WindowWork:
    """Work from the last processed instance: new = W_t - W_base, expired = W_base - W_t, whatever was shed between.

    The base may be the later of them: silence creates windows before others that end sooner.
    """
    common = max(0, min(span.last, base.last) - max(span.first, base.first))
    return WindowWork(span.tuples - common, base.tuples - common, carried=True)


def fresh_work(span: WindowSpan) -> WindowWork:
    """Work from nothing: every tuple of the window is new."""
    return WindowWork(span.tuples, 0, carried=False)
