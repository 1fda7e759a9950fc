"""Functions and aggregates of the user's that say their own name when they fail."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from penstock.errors import DuplicateNameError, FunctionFailedError, FunctionRaisedError, InputError
from penstock.operators.deadlines.aggregates import UserAggregate, user_aggregate
from penstock.spark.analysis.functions import is_spark_s

if TYPE_CHECKING:
    from pyspark.sql._typing import UserDefinedFunctionLike


#: why a function has an argument
_NEEDS_ONE = "it must take at least one pyarrow.Array, whose length is the number of rows"


def named(name: str, function: Callable[..., Any], returns: str) -> Callable[..., Any]:
    """A vectorised function that checks what it returns, and names itself in whatever goes wrong.

    Args:
        name: its name in SQL.
        function: takes one `pyarrow.Array` an argument, returns one of the same length.
        returns: its Spark SQL type.

    Returns:
        A function for `arrow_udf`. It raises `FunctionRaisedError` in the worker where the function raises, and
        `FunctionFailedError` where it does not keep to what it is registered as.

    Raises:
        InputError: `returns` is no type, or the function takes no argument.
    """
    expected = _arrow_type(f"function {name}", returns)
    _refuse_no_arguments(name, function)

    def failed(error: BaseException) -> FunctionFailedError:
        words = " ".join(str(error).split())
        is_over = isinstance(error, SystemExit)
        what = "ended its Python process" if is_over else "raised"
        kind = FunctionFailedError if is_over else FunctionRaisedError
        return kind(f"function {name} {what}: {type(error).__name__}{': ' if words else ''}{words}")

    def guarded(results: Iterator[pa.Array]) -> Iterator[pa.Array]:
        try:
            yield from results
        except (Exception, SystemExit) as error:
            raise failed(error) from error

    @functools.wraps(function)
    def call(*arguments: Any, **keyed: Any) -> Any:
        if not (arguments or keyed):
            raise FunctionFailedError(f"Function {name} is called without arguments; {_NEEDS_ONE}")
        try:
            result = function(*arguments, **keyed)
        except (Exception, SystemExit) as error:
            raise failed(error) from error
        if isinstance(result, Iterator):
            return guarded(result)
        if not isinstance(result, pa.Array | pa.ChunkedArray):
            raise FunctionFailedError(
                f"function {name} returned {type(result).__name__}, not a pyarrow.Array"
            )
        given = next(iter((*arguments, *keyed.values())))
        if len(result) != len(given):
            raise FunctionFailedError(
                f"function {name} returned {len(result)} values for {len(given)} rows; return one value for each row"
            )
        if result.type != expected:
            try:
                result.cast(expected)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise FunctionFailedError(
                    f"function {name} returned {result.type}, which does not fit its declared type {returns}: {error}"
                ) from error
        return result

    return call


def register_aggregate(spark: SparkSession, name: str, given: object, returns: str) -> UserAggregate:
    """Registers an aggregate of the user's with Spark: over a static table it is worked out afresh for each group.

    Args:
        spark: whose SQL is to know it.
        name: its name in SQL.
        given: a function from arrays to a value, or a class with `add`, `remove` and `result`.
        returns: its Spark SQL type.

    Returns:
        The aggregate.

    Raises:
        InputError: `returns` is no type, or what is given is no such function or class.
        DuplicateNameError: Spark has a function of that name.
    """
    aggregate = user_aggregate(name, given, _arrow_type(f"aggregate {name}", returns), returns)
    refuse_builtin(f"aggregate {name}", name)

    def call(*arrays: pa.Array) -> Any:
        return aggregate.afresh(*arrays)

    udf: UserDefinedFunctionLike = arrow_udf(call, returnType=returns)  # type: ignore[call-overload]
    spark.udf.register(name, udf)
    return aggregate


def refuse_builtin(what: str, name: str) -> None:
    """Makes sure that a name is none of Spark's functions: these would be called in its place.

    Raises:
        DuplicateNameError: it is.
    """
    if is_spark_s(name):
        raise DuplicateNameError(f"{what}: Spark has a function of that name. Choose another name.")


def _refuse_no_arguments(name: str, function: Callable[..., Any]) -> None:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # compiled ones may not tell
        return
    if not parameters:
        raise InputError(f"Function {name} takes no arguments; {_NEEDS_ONE}")


def _arrow_type(what: str, returns: str) -> pa.DataType:
    try:
        if not (isinstance(returns, str) and returns.strip()):
            raise TypeError("a type is a text")
        return to_arrow_type(DataType.fromDDL(returns), timezone="UTC")
    except (PySparkException, TypeError) as error:
        raise InputError(
            f"{what}: {returns!r} is not a Spark SQL type. Write one such as 'DOUBLE' or 'STRING'."
        ) from error
