"""What is left of a query's allowed losses: the paper's current (k', m'), and an exact account of the last m instances.

Source: Wu, Gu, Lyu, Yu, table 3 (the update of dynamic window-constrained scheduling); Hamdaoui and Ramanathan for the distance
to a dynamic failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from penstock.plan.deadlines import LossConstraint


@dataclass(frozen=True, slots=True)
class CurrentConstraint:
    """(k', m') of a query, starting at (k, m).

    Attributes:
        k: k', losses that are left in what is left of a window of m instances.
        m: m', instances that are left of it; one more for each loss beyond.
        violating: an instance was lost beyond the allowance and none was satisfied since.
    """

    k: int
    m: int
    violating: bool = False

    @classmethod
    def of(cls, constraint: LossConstraint) -> Self:
        """That of a query that has just begun, or begins anew."""
        return cls(constraint.k, constraint.m)

    @property
    def factor(self) -> float:
        """C' = k' / m'."""
        return self.k / self.m

    def satisfied(self, constraint: LossConstraint) -> CurrentConstraint:
        """After an instance that met its deadline."""
        if self.violating:
            return self.of(constraint)
        if self.m > self.k:
            return self._or_anew(self.k, self.m - 1, constraint)
        return self._or_anew(self.k - 1, self.m - 1, constraint)

    def missed(self, constraint: LossConstraint) -> CurrentConstraint:
        """After an instance that missed it."""
        if self.k > 0:
            return self._or_anew(self.k - 1, self.m - 1, constraint)
        return CurrentConstraint(0, self.m + 1, violating=True)

    @classmethod
    def _or_anew(cls, k: int, m: int, constraint: LossConstraint) -> CurrentConstraint:
        return cls.of(constraint) if k == m == 0 else cls(k, m)


class LossHistory:
    """The outcomes of the last m instances of a query.

    Args:
        constraint: its (k, m).

    Attributes:
        violations: runs of m consecutive instances so far that held more than k losses, overlapping ones counted each
            (dynamic failures); what lies before the first instance counts as satisfied.
    """

    def __init__(self, constraint: LossConstraint) -> None:
        self._constraint = constraint
        self._lost: deque[bool] = deque([False] * constraint.m, maxlen=constraint.m)
        self.violations = 0

    def add(self, lost: bool) -> bool:
        """Takes an outcome in; whether the last m instances hold too many losses."""
        self._lost.append(lost)
        violated = sum(self._lost) > self._constraint.k
        self.violations += violated
        return violated

    def recall(self, lost: Iterable[bool], violations: int) -> None:
        """Goes on behind outcomes.

        Args:
            lost: whether each of the last instances was, oldest first.
            violations: so many runs were violations.
        """
        self._lost.extend(lost)
        self.violations = violations

    def distance(self) -> int:
        """Consecutive losses from now on that lead to a violation, at least 1; m + 1 where none do. 0: the next instance is in a
        violation whatever becomes of it."""
        lost = self.recent
        counted = sum(lost)
        if counted > self._constraint.k:
            return 0
        # each further one lets go of the oldest that counted
        for losses, leaves in enumerate([*lost, False], start=1):
            if counted + losses > self._constraint.k:
                return losses
            counted -= leaves
        return self._constraint.m + 1

    @property
    def recent(self) -> list[bool]:
        """Whether each of the last m - 1 instances was lost, oldest first."""
        return list(self._lost)[1:]

    @property
    def constraint(self) -> LossConstraint:
        """(k, m)."""
        return self._constraint
