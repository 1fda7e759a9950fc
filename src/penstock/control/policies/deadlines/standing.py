"""How a query with a deadline stands: what the status and the ledger tell."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.control.policies.deadlines.admission import ViewLoad
from penstock.control.policies.deadlines.allowance import CurrentConstraint
from penstock.control.policies.deadlines.prediction import UnitCosts


@dataclass(slots=True)
class Outcomes:
    """What became of the instances of a query.

    Attributes:
        created: all.
        released: visible by their deadline.
        shed: given up by prediction.
        missed: their deadline passed while they waited or were worked on.
        failed: by the user's aggregate.
        approximated: answered by a sample by their deadline.
    """

    created: int = 0
    released: int = 0
    shed: int = 0
    missed: int = 0
    failed: int = 0
    approximated: int = 0


@dataclass(frozen=True, slots=True)
class DeadlineStanding:
    """How a query stands: what the status and the ledger tell.

    Attributes:
        outcomes: what became of its instances.
        waiting: instances that wait.
        constraint: (k', m').
        violations: runs of m consecutive instances with more than k losses.
        rho: factor of predictions.
        costs: unit costs as measured.
        overloaded: by the last monitoring period.
        failing: most instances fail, by the current monitoring period or the last one.
        load: what it asks of the processors, by its newest instances and measured costs; None while fewer than three are known.
        notice_seconds: from the arrival of the tuple that closes a window until that is known, the mean of the newest ones.
    """

    outcomes: Outcomes
    waiting: int
    constraint: CurrentConstraint
    violations: int
    rho: float
    costs: UnitCosts
    overloaded: bool
    failing: bool
    notice_seconds: float
    load: ViewLoad | None
