"""The policies of joins that can be chosen by name: ours, the paper's, and those they are compared with (docs/decisions/0092)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations

from penstock.control.policies.output_rate import JoinOrderPolicy, OperatorOrderPolicy, SwitchSettings
from penstock.optimizer.join_model import JoinModel
from penstock.optimizer.operator_order import UnaryOperator
from penstock.optimizer.paper_orders import paper_order
from penstock.optimizer.printed_rates import group_rate
from penstock.optimizer.probe_orders import cardinality_order
from penstock.plan.joins import JoinOrder
from penstock.settings import JoinPolicyName

#: up to so many operators all permutations are tried, as printed; with more of them the running order remains
_MOST_PERMUTED = 7


@dataclass(frozen=True, slots=True)
class Paper:
    """Algorithms 1 and 2 with the printed formulas."""

    reason: str = "it has the largest output rate by the paper's formulas"

    def order(self, model: JoinModel) -> JoinOrder | None:
        """See `JoinChoice`."""
        return paper_order(model)

    def operators(self, running: Sequence[UnaryOperator], rate: float) -> Sequence[UnaryOperator]:
        """See `OperatorChoice`; of orders with equal rates the running one, then the first."""
        if len(running) > _MOST_PERMUTED:
            return running
        # rates that differ by rounding alone are equal
        return max(permutations(running), key=lambda order: float(f"{group_rate(order, rate):.9g}"))


@dataclass(frozen=True, slots=True)
class Cardinality:
    """The least sum of intermediate cardinalities; the cheapest method of each step, as it has none of its own."""

    reason: str = "it has the least intermediate cardinalities"

    def order(self, model: JoinModel) -> JoinOrder | None:
        """See `JoinChoice`."""
        return cardinality_order(model, cheapest_methods=True)

    def operators(self, running: Sequence[UnaryOperator], rate: float) -> Sequence[UnaryOperator]:  # noqa: ARG002
        """See `OperatorChoice`."""
        return sorted(running, key=lambda each: (each.is_projection, each.selectivity))


@dataclass(frozen=True, slots=True)
class Fixed:
    """The order of the query, for ever."""

    reason: str = "it is the order of the query"

    def order(self, model: JoinModel) -> JoinOrder | None:  # noqa: ARG002
        """See `JoinChoice`."""
        return None

    def operators(self, running: Sequence[UnaryOperator], rate: float) -> Sequence[UnaryOperator]:  # noqa: ARG002
        """See `OperatorChoice`."""
        return running


_CHOICES: dict[str, Paper | Cardinality | Fixed] = {
    "paper": Paper(),
    "cardinality": Cardinality(),
    "fixed": Fixed(),
}


def join_policy(
    name: JoinPolicyName, settings: SwitchSettings, clock: Callable[[], float]
) -> JoinOrderPolicy:
    """A policy of join orders.

    Args:
        name: of the setting `join_policy`.
        settings: thresholds, dwell time and half-life.
        clock: seconds.
    """
    return JoinOrderPolicy(settings, clock, choice=_CHOICES.get(name))


def operator_policy(
    name: JoinPolicyName, settings: SwitchSettings, clock: Callable[[], float]
) -> OperatorOrderPolicy:
    """A policy of the order of user predicates; arguments as of `join_policy`."""
    return OperatorOrderPolicy(settings, clock, _CHOICES.get(name))
