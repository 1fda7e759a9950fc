"""Types of keys and arguments: which are compared, and which a user's aggregate takes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import TypeMismatchError, UnsupportedError
from penstock.plan.deadlines import AggregateSignature
from penstock.plan.spark_types import spark_name
from penstock.sql.text.clauses import Clause
from penstock.sql.windows.aggregate_calls import AggregateCall


def is_window_type(kind: pa.DataType) -> bool:
    """Whether a type is that of a window: two moments."""
    return pa.types.is_struct(kind) and [field.name for field in kind] == ["start", "end"]


def users_result(
    call: AggregateCall, arguments: Sequence[pa.DataType], known: AggregateSignature
) -> pa.DataType:
    """The type of a call of an aggregate of the user's, whose arguments are as many as it takes and have types it can be given."""
    place = call.clause
    if not known.arity.allows(len(arguments)):
        message = f"Your aggregate {known.name} takes {known.arity}, not {len(arguments)}."
        raise place.error(TypeMismatchError, message)
    for argument in arguments:
        if pa.types.is_null(argument):
            raise place.error(TypeMismatchError, "An argument is NULL in every tuple: CAST it to a type.")
        if argument == pa.month_day_nano_interval():
            raise uncompared(place, argument, "An argument")
    return known.type


def uncompared(place: Clause, kind: pa.DataType, what: str) -> UnsupportedError:
    """The refusal of a key or an argument whose values Penstock does not compare as Spark does; `what` names it."""
    collated = ", its collation being another than binary" if pa.types.is_string(kind) else ""
    message = f"{what} of type {spark_name(kind)} is not supported here{collated}."
    return place.error(UnsupportedError, message)
