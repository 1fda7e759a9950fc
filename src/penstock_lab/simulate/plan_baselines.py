"""What plans are compared with: plans by cardinalities, re-planned as often and by the same statistics."""

from __future__ import annotations

from penstock.control.actions import Action, ReorderOperators, SwitchJoin
from penstock.control.events import Event, JoinBound, JoinMeasured, OperatorsBound, OperatorsMeasured
from penstock.optimizer.averages import AveragingSettings
from penstock.optimizer.join_measures import JoinAverages
from penstock.optimizer.join_model import JoinModel
from penstock.optimizer.probe_orders import cardinality_order
from penstock.plan.joins import JoinOrder


class CardinalityPolicy:
    """Joins by the least sum of intermediate cardinalities, unary operators by selectivity; what either takes is not
    looked at.

    Args:
        averaging: of measurements.
        cheapest_methods: see `cardinality_order`.
    """

    def __init__(self, averaging: AveragingSettings, cheapest_methods: bool = False) -> None:
        self._averaging = averaging
        self._cheapest_methods = cheapest_methods
        self._joins: dict[str, tuple[JoinBound, JoinAverages]] = {}
        self._running: dict[str, JoinOrder] = {}
        self._operators: dict[str, tuple[str, ...]] = {}

    def handle(self, event: Event) -> list[Action]:
        """Takes an event and returns the actions it gives rise to."""
        match event:
            case JoinBound():
                self._joins[event.stream] = event, JoinAverages(self._averaging)
                self._running[event.stream] = event.running
            case JoinMeasured():
                return self._join(event)
            case OperatorsBound():
                self._operators[event.stream] = event.running
            case OperatorsMeasured():
                return self._order(event)
        return []

    def _join(self, event: JoinMeasured) -> list[Action]:
        bound, averages = self._joins[event.stream]
        averages.add(event.measures)
        model = JoinModel(bound.plan, averages.statistics(), bound.sorted_by)
        order = cardinality_order(model, self._cheapest_methods)
        if order == self._running[event.stream]:
            return []
        self._running[event.stream] = order
        return [
            SwitchJoin(event.stream, event.version, "it has the least intermediate cardinalities", {}, order)
        ]

    def _order(self, event: OperatorsMeasured) -> list[Action]:
        selectivity = {each.name: each.passed / max(1, each.tuples) for each in event.operators}
        order = tuple(sorted(self._operators[event.stream], key=selectivity.__getitem__))
        if order == self._operators[event.stream]:
            return []
        self._operators[event.stream] = order
        return [ReorderOperators(event.stream, event.version, "the most selective first", {}, order)]
