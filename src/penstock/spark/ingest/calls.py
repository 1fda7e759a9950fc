"""The calls of users' functions of a plan version, compiled for the workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from penstock.operators.functions.judging import CallProgram, CallsProgram
from penstock.operators.selection.selector import SelectionPlan, compile_selections
from penstock.plan.calls import Argument
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.trees import Every, Test, Values
from penstock.plan.value_sets import ValueSet, intersect
from penstock.spark.analysis.arguments import argument, given_type
from penstock.sql.conditions.bind import BoundSelections

#: what tests call the values of a call: ordered, and as text that is matched against patterns
_ORDERED, _TEXT = 0, 1


class CallCompiler:
    """Compiles calls; it evaluates constants once.

    Args:
        spark: the session.
        schema: the stream's columns.
        functions: the users' functions that take arrays and return one, by name; others may follow.
    """

    def __init__(
        self, spark: SparkSession, schema: pa.Schema, functions: Mapping[str, Callable[..., Any]]
    ) -> None:
        self._spark = spark
        self._schema = schema
        self._functions = functions
        self._constants: dict[str, pa.Scalar] = {}

    def compile(
        self, bound: BoundSelections, owners: npt.NDArray[np.int64], first: int
    ) -> CallsProgram | None:
        """Compiles the calls of conditions.

        Args:
            bound: the conditions.
            owners: int64[branches], the number of the query of each branch.
            first: number of the query of the first branch.

        Returns:
            None where there are none.
        """
        if not bound.branches:
            return None
        zone = self._spark.conf.get("spark.sql.session.timeZone") or "UTC"
        kinds = {field.name: field.type for field in self._schema}
        kinds |= {each.name: each.type for each in bound.arguments}
        kinds |= {each.name: each.type for each in bound.calls}
        numbers = {call.name: number for number, call in enumerate(bound.calls)}
        tests: list[dict[tuple[Values, ...], int]] = [{} for _ in bound.calls]
        tested = np.full((len(bound.calls), len(bound.branches)), -1, np.int32)
        for place, branch in enumerate(bound.branches):
            by_call: dict[str, list[Values]] = {}
            for name, values in branch.tests:
                by_call.setdefault(name, []).append(values)
            for name, several in by_call.items():
                known = tests[numbers[name]]
                tested[numbers[name], place] = known.setdefault(tuple(several), len(known))
        calls = []
        for call, known in zip(bound.calls, tests, strict=True):
            given = tuple(self._argument(each) for each in call.arguments)
            own = (each.type if isinstance(each, pa.Scalar) else kinds[each] for each in given)
            types = tuple(given_type(kind, zone) for kind in own)
            calls.append(
                CallProgram(
                    call.name,
                    call.text,
                    given,
                    types,
                    call.type,
                    call.raising,
                    _compiled(call.type, list(known)),
                )
            )
        by_name = {name.upper(): function for name, function in self._functions.items()}
        functions: bytes = cloudpickle.dumps(  # type: ignore[no-untyped-call]
            tuple(by_name[call.function] for call in bound.calls)
        )
        return CallsProgram(tuple(calls), functions, first, owners, tested)

    def _argument(self, given: Argument) -> str | pa.Scalar:
        if given.constant is None:
            return argument(self._spark, given)
        if given.constant not in self._constants:
            found = argument(self._spark, given)
            assert isinstance(found, pa.Scalar), "constants have values"
            self._constants[given.constant] = found
        return self._constants[given.constant]


def _compiled(kind: pa.DataType, tests: Sequence[tuple[Values, ...]]) -> SelectionPlan | None:
    """Tests of the values of a call, a query each."""
    if not tests:
        return None
    attributes = (Attribute("value", kind, "value"), Attribute("value", kind, "value"))
    queries = []
    for number, several in enumerate(tests):
        if all(isinstance(each, ValueSet) for each in several):
            values = several[0]
            for other in several[1:]:
                values = intersect(values, other)  # type: ignore[arg-type]
            queries.append(Query(str(number), (Term(((_ORDERED, values),)),)))  # type: ignore[arg-type]
        else:
            parts = tuple(Test(_ORDERED if isinstance(each, ValueSet) else _TEXT, each) for each in several)
            queries.append(Query(str(number), (), Every(parts)))
    return compile_selections(SelectionSet(attributes, tuple(queries)))
