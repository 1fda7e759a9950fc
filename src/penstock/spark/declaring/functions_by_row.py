"""A user's function as one that tells for each row a value, or what was raised there: see `spark.analysis.rows_alone`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType

from penstock.operators.functions.caller import FunctionCaller, FunctionProgram
from penstock.spark.analysis.rows_alone import ERROR, VALUE, registered_name
from penstock.sql.text.lexing import quote


def register_by_row(spark: SparkSession, name: str, function: Callable[..., pa.Array], returns: str) -> None:
    """Registers a function a second time, see `rows_alone`.

    Args:
        spark: the session.
        name: its name in SQL.
        function: as `named` makes it, from arrays to an array.
        returns: its Spark SQL type.
    """
    kind = DataType.fromDDL(returns)
    told = StructType([StructField(VALUE, kind), StructField(ERROR, StringType())])
    rows = by_row(function, to_arrow_type(kind, timezone="UTC"))
    udf = arrow_udf(rows, returnType=told)  # type: ignore[call-overload]
    spark.udf.register(registered_name(name), udf)


def drop_by_row(spark: SparkSession, name: str) -> None:
    """Takes such a registration back, if there is one."""
    spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {quote(registered_name(name))}")


def by_row(function: Callable[..., pa.Array], kind: pa.DataType) -> Callable[..., pa.Array]:
    """A function that returns a struct of VALUE and ERROR for each row; one of both is NULL at least.

    Arguments may be such structs: where one has an error, the function is not called, and that is the error.

    Args:
        function: raises `FunctionRaisedError` where a row is at fault.
        kind: the Arrow type of its values.
    """
    #: calls that a worker has made so far, which know how long pieces should be
    callers: dict[tuple[tuple[str, ...], tuple[pa.DataType, ...]], FunctionCaller] = {}

    def rows(*arguments: pa.Array, **keyed: pa.Array) -> pa.Array:
        taken, errors = _without_errors([*arguments, *keyed.values()])
        names, types = tuple(keyed), tuple(each.type for each in taken)
        if (names, types) not in callers:
            call = _positional(function, names)
            program = FunctionProgram(call, ("",) * len(taken), types, kind)
            callers[names, types] = FunctionCaller(program)
        sound = np.flatnonzero([each is None for each in errors])
        called = callers[names, types].call(taken, None if len(sound) == len(errors) else sound, len(sound))
        for place, reason in called.raised:
            errors[sound[place]] = reason
        values = _spread(called.values, sound[called.places], len(errors), kind)
        return pa.StructArray.from_arrays([values, pa.array(errors, pa.string())], [VALUE, ERROR])

    return rows


def _without_errors(given: Sequence[pa.Array]) -> tuple[list[pa.Array], list[str | None]]:
    """The arguments themselves, and by row what was raised for one of them."""
    errors: list[str | None] = [None] * len(given[0])
    taken = []
    for each in given:
        if pa.types.is_struct(each.type) and [field.name for field in each.type] == [VALUE, ERROR]:
            value, error = each.flatten()
            errors = [one or other for one, other in zip(errors, error.to_pylist(), strict=True)]
            taken.append(value)
        else:
            taken.append(each)
    return taken, errors


def _positional(function: Callable[..., pa.Array], names: Sequence[str]) -> Callable[..., pa.Array]:
    if not names:
        return function

    def call(*given: pa.Array) -> pa.Array:
        first = len(given) - len(names)
        return function(*given[:first], **dict(zip(names, given[first:], strict=True)))

    return call


def _spread(
    pieces: Sequence[pa.Array], places: npt.NDArray[np.int64], rows: int, kind: pa.DataType
) -> pa.Array:
    """Values at their places among rows, the others NULL."""
    if not pieces:
        return pa.nulls(rows, kind)
    values = pa.concat_arrays(pieces)
    if len(values) == rows:
        return values
    numbers = np.zeros(rows, np.int64)
    has_none = np.ones(rows, np.bool_)
    numbers[places], has_none[places] = np.arange(len(places)), False
    return values.take(pa.array(numbers, mask=has_none))
