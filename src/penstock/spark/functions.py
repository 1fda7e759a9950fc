"""User functions that say their own name when they fail."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from penstock.errors import FunctionFailedError, FunctionRaisedError, InputError


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
        InputError: `returns` is no type.
    """
    try:
        expected = to_arrow_type(DataType.fromDDL(returns), timezone="UTC")
    except PySparkException as error:
        raise InputError(
            f"function {name}: returns '{returns}', which is no Spark SQL type; allowed: 'DOUBLE', 'STRING', ..."
        ) from error

    def failed(error: BaseException) -> FunctionFailedError:
        words = " ".join(str(error).split())
        is_over = isinstance(error, SystemExit)
        what = "ended its process" if is_over else "raised"
        kind = FunctionFailedError if is_over else FunctionRaisedError
        return kind(f"function {name} {what}: {type(error).__name__}{': ' if words else ''}{words}")

    def guarded(results: Iterator[pa.Array]) -> Iterator[pa.Array]:
        try:
            yield from results
        except (Exception, SystemExit) as error:
            raise failed(error) from error

    @functools.wraps(function)
    def call(*arguments: Any, **keyed: Any) -> Any:
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
        given = next(iter((*arguments, *keyed.values())), None)
        if given is not None and len(result) != len(given):
            raise FunctionFailedError(
                f"function {name} returned {len(result)} values for {len(given)} rows; it must return one a row"
            )
        if result.type != expected:
            try:
                result.cast(expected)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise FunctionFailedError(
                    f"function {name} returned {result.type}, which does not fit its type {returns}: {error}"
                ) from error
        return result

    return call
