"""The user predicates of a join view: made ready to be run, and kept in the order that takes the least time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.control.actions import ReorderOperators
from penstock.control.events import OperatorMeasure, OperatorsBound, OperatorsMeasured
from penstock.control.policies.join_choices import operator_policy
from penstock.control.policies.output_rate import OperatorsStanding, SwitchSettings
from penstock.errors import InputError
from penstock.operators.functions.caller import FunctionProgram
from penstock.operators.joins.user_predicates import PredicateMeasure, PredicateProgram
from penstock.operators.selection.selector import compile_selections
from penstock.plan.joins import JoinPlan, UserPredicate
from penstock.settings import Settings
from penstock.spark.analysis.arguments import argument, given_type
from penstock.sql.conditions.bind import bind_selections
from penstock.sql.joins.user_predicates import VALUE
from penstock.sql.text.lexing import quote

#: the one version of a lane's plan
_VERSION = 0


class PredicatePlanner:
    """Keeps the user predicates of one join in the best order; the lane's thread owns it, others may read `order`.

    Args:
        spark: the session.
        plan: the join.
        functions: the users' functions by name.
        settings: which policy chooses, by which thresholds.
        clock: seconds, for rates and dwell times.

    Raises:
        InputError: a function is not registered.
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: JoinPlan,
        functions: Mapping[str, Callable[..., Any]],
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._programs = [_program(spark, plan, each, functions) for each in plan.predicates]
        #: by number
        self._names = tuple(each.text for each in plan.predicates)
        #: numbers of the plan's predicates as the next cut runs them; replaced as a whole
        self.order: tuple[int, ...] = tuple(range(len(self._names)))
        self._is_fixed = settings.join_policy == "fixed"
        self._policy = operator_policy(settings.join_policy, SwitchSettings.of(settings), clock)
        self._bind()
        self._clock = clock
        self._measured = clock()

    def document(self) -> dict[str, Any]:
        """The running order and the statistics, as JSON."""
        return {
            "order": [self._names[number] for number in self.order],
            "statistics": self._policy.statistics(self._plan.name),
        }

    def restore(self, document: Mapping[str, Any]) -> None:
        """Goes on from what an earlier life followed and knew.

        Args:
            document: see `document`; one of other predicates changes nothing.
        """
        if sorted(document["order"]) != sorted(self._names):
            return
        if not self._is_fixed:
            self.order = tuple(self._names.index(name) for name in document["order"])
        self._bind()
        self._policy.restore(self._plan.name, document["statistics"])

    def _bind(self) -> None:
        running = tuple(self._names[number] for number in self.order)
        self._policy.handle(OperatorsBound(self._plan.name, _VERSION, running))

    @property
    def standing(self) -> OperatorsStanding | None:
        """How the running order stands, each predicate named by its text; None before all were measured."""
        return self._policy.standing(self._plan.name)

    def programs(self, order: Iterable[int]) -> tuple[PredicateProgram, ...]:
        """What a cut runs.

        Args:
            order: numbers of the plan's predicates.
        """
        return tuple(self._programs[number] for number in order)

    def measured(
        self, order: Sequence[int], cells: Iterable[Sequence[PredicateMeasure]]
    ) -> list[ReorderOperators]:
        """Takes in a cut.

        Args:
            order: in which it ran the predicates.
            cells: what each did, in that order, by cell.

        Returns:
            The change of order it gives rise to, if any.
        """
        now = self._clock()
        seconds, self._measured = max(now - self._measured, 1e-3), now
        every = list(cells)
        operators = tuple(
            OperatorMeasure(
                self._names[number],
                sum(own[place].tuples for own in every),
                sum(own[place].passed for own in every),
                sum(own[place].seconds for own in every),
            )
            for place, number in enumerate(order)
        )
        event = OperatorsMeasured(self._plan.name, _VERSION, seconds, operators)
        found = [each for each in self._policy.handle(event) if isinstance(each, ReorderOperators)]
        for each in found:
            self.order = tuple(self._names.index(name) for name in each.order)
        return found


def _program(
    spark: SparkSession, plan: JoinPlan, predicate: UserPredicate, functions: Mapping[str, Callable[..., Any]]
) -> PredicateProgram:
    # Spark does not look at the case of names
    known = {name.upper(): function for name, function in functions.items()}
    function = known.get(predicate.function.upper())
    if function is None:
        raise InputError(
            f"view {plan.name}: function {predicate.function} is not registered in this run. Register it, or drop the view."
        )
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    selection = None
    if predicate.condition != quote(VALUE):
        schema = pa.schema([(VALUE, predicate.type)])
        bound = bind_selections({"": predicate.condition}, schema, None, zone)
        selection = compile_selections(bound.selections)
    arguments = tuple(argument(spark, each) for each in predicate.arguments)
    types = {column.name: column.type for each in plan.inputs for column in each.columns}
    kinds = (each.type if isinstance(each, pa.Scalar) else types[each] for each in arguments)
    given = tuple(given_type(kind, zone) for kind in kinds)
    return PredicateProgram(FunctionProgram(function, arguments, given, predicate.type), selection)
