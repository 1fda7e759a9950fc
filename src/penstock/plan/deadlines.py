"""Deadlines of window views and the losses they allow: frozen data.

Source: Wu, Gu, Lyu, Yu, definitions 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass


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

    Raises:
        ValueError: the deadline is not above 0.
    """

    name: str
    deadline: float
    constraint: LossConstraint = LossConstraint(1, 1)
    incremental: bool = True

    def __post_init__(self) -> None:
        if not self.deadline > 0:
            raise ValueError(f"the deadline of {self.name!r} must be above 0 s, got {self.deadline}")


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
    """Work from the last processed instance: new = W_t - W_base, expired = W_base - W_t, whatever was shed between."""
    return WindowWork(
        span.last - max(span.first, base.last), min(span.first, base.last) - base.first, carried=True
    )


def fresh_work(span: WindowSpan) -> WindowWork:
    """Work from nothing: every tuple of the window is new."""
    return WindowWork(span.tuples, 0, carried=False)
