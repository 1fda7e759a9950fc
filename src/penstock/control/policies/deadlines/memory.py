"""What a deadline policy knows of a query that outlasts the process: its allowance, its newest losses, what its orders cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.control.policies.deadlines.allowance import CurrentConstraint
from penstock.control.policies.deadlines.prediction import UnitCosts


@dataclass(frozen=True, slots=True)
class QueryMemory:
    """What is known of a query.

    Attributes:
        constraint: (k', m').
        lost: whether each of its last m - 1 instances was, oldest first.
        violations: runs of m consecutive instances with more than k losses.
        rho: factor of predictions.
        costs: unit costs as measured.
        measured: the sums they were measured by, of the newest orders.
    """

    constraint: CurrentConstraint
    lost: tuple[bool, ...]
    violations: int
    rho: float
    costs: UnitCosts
    measured: Mapping[str, float] = field(default_factory=dict)
