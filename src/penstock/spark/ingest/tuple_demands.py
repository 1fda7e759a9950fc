"""Demands of a stream's tuples, bound to its columns: what the map stage keeps, and what is computed for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import InputError
from penstock.operators.ingest.tuple_stage import TuplePlan, TupleProgram
from penstock.operators.routing.routers import router_of
from penstock.operators.runs.run import RunPlan
from penstock.operators.windows.pane_plan import PaneColumn
from penstock.plan.expressions import Derived, ExpressionHost
from penstock.plan.names import free_name
from penstock.spark.storage.demands import DemandRegister, NumberedDemand, TupleDemand
from penstock.sql.text.lexing import name_of, tokenize

_TIMES = (pa.timestamp("us", "UTC"), pa.timestamp("us"))


@dataclass(frozen=True, slots=True, eq=False)
class CompiledDemands:
    """The demands of one plan version.

    Attributes:
        program: what the map stage keeps; None where nothing is asked for.
        conditions: the distinct conditions; `program` numbers those given first, then these.
        derived: the columns that are computed for `program`.
    """

    program: TupleProgram | None
    conditions: tuple[str, ...]
    derived: tuple[Derived, ...]


def compile_demands(
    register: DemandRegister, schema: pa.Schema, host: ExpressionHost, conditions: Sequence[str] = ()
) -> CompiledDemands:
    """Binds demands.

    Args:
        register: the demands.
        schema: the stream's columns.
        host: Spark's analysis of expressions.
        conditions: those that the program has already, which demands may share.

    Raises:
        InputError: a demand that cannot be met.
    """
    columns = {column.upper(): column for column in schema.names}
    numbers = {condition: number for number, condition in enumerate(conditions)}
    derived: dict[str, Derived] = {}
    plans = []
    for numbered in register.demands:
        demand = numbered.demand
        texts = [text for text, _ in demand.columns]
        types = dict(zip(texts, host.types(texts), strict=True))
        computed = [text for text in texts if _single_name(text) not in columns]
        unseen = [text for text in dict.fromkeys(computed) if text not in derived]
        for text, raises in zip(unseen, host.may_raise(unseen), strict=True):
            name = free_name(f"__t{len(derived)}", columns, also="_error")
            derived[text] = Derived(name, text, types[text], f"{name}_error" if raises else None)
        names = {
            text: derived[text].name if text in derived else columns[_single_name(text)] for text in texts
        }
        plan = TuplePlan(
            id=numbered.id,
            selection=None
            if demand.condition is None
            else numbers.setdefault(demand.condition, len(numbers)),
            columns=tuple(PaneColumn(names[text], name, types[text]) for text, name in demand.columns),
            raising=_errors(derived, (text for text, name in demand.columns if name not in demand.or_null)),
            or_null=_errors(derived, (text for text, name in demand.columns if name in demand.or_null)),
            run=RunPlan(demand.key, demand.time, router_of(demand.router), demand.is_untimed),
        )
        _check(demand, plan, host)
        plans.append(plan)
    return CompiledDemands(
        TupleProgram(tuple(plans)) if plans else None,
        tuple(numbers)[len(conditions) :],
        tuple(derived.values()),
    )


def _errors(derived: Mapping[str, Derived], texts: Iterable[str]) -> tuple[str, ...]:
    """The columns that are true where one of these expressions raised."""
    found = (derived[text].error_column for text in texts if text in derived)
    return tuple(dict.fromkeys(name for name in found if name is not None))


def _check(demand: TupleDemand, plan: TuplePlan, host: ExpressionHost) -> None:
    """Refuses what could not be written."""
    names = [name for _, name in demand.columns]
    if len(set(names)) < len(names):
        raise InputError(f"a demand of tuples has two columns of one name: {', '.join(names)}")
    missing = [name for name in (*demand.key, demand.time) if name not in names]
    if missing:
        raise InputError(f"a demand of tuples has no column {missing[0]}; it has {', '.join(names)}")
    schema = pa.schema([(each.name, each.type) for each in plan.columns])
    if schema.field(demand.time).type not in _TIMES:
        raise InputError(
            f"the event time {demand.time} of a demand of tuples is {schema.field(demand.time).type}; it must be a TIMESTAMP"
        )
    texts = {name: text for text, name in demand.columns}
    keys = [texts[name] for name in demand.key]
    for text, is_plain in zip(keys, host.plain(keys), strict=True):
        if not is_plain:
            raise InputError(
                f"the key {text} of a demand of tuples is of a type that is left to Spark to compare"
            )
    try:
        plan.run.router.deal(schema.empty_table())
    except KeyError as error:
        raise InputError(
            f"the router of a demand of tuples needs a column it does not have: {error}"
        ) from None


def _single_name(text: str) -> str:
    """The name in upper case that is all of a text; "" where it is something else."""
    tokens = tokenize(text)
    name = name_of(tokens[0]) if len(tokens) == 1 else None
    return "" if name is None else name.upper()


def only(demand: TupleDemand) -> DemandRegister:
    """A register of one demand."""
    return DemandRegister((NumberedDemand(0, demand),), 1)
