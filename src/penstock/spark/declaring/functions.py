"""Functions and aggregates of the user's that say their own name when they fail."""

from __future__ import annotations

import datetime
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

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


#: Spark SQL types by the annotations of functions over arrays
_ARRAY_TYPES: Mapping[Any, str] = {
    pa.BooleanArray: "BOOLEAN",
    pa.Int32Array: "INT",
    pa.Int64Array: "BIGINT",
    pa.FloatArray: "FLOAT",
    pa.DoubleArray: "DOUBLE",
    pa.StringArray: "STRING",
    pa.Date32Array: "DATE",
}
#: likewise of aggregates, which return one value
_VALUE_TYPES: Mapping[Any, str] = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    str: "STRING",
    datetime.date: "DATE",
    datetime.datetime: "TIMESTAMP",
}


def registering(
    register: Callable[[str, Callable[..., Any], str], None],
    type_of: Callable[[str, Callable[..., Any]], str],
    name: Any,
    given: Callable[..., Any] | None,
    returns: str | None,
) -> Any:
    """Register what a call or a decorator is given.

    Args:
        register: takes a name in SQL, what is registered, and its Spark SQL type.
        type_of: tells the type from the name and the annotation.
        name: the name in SQL, or what a decorator without arguments is given.
        given: what is registered; None of a decorator.
        returns: the Spark SQL type; None: that of the annotation.

    Returns:
        None of a call; what a decorator without arguments is given; otherwise the decorator.
    """

    def declare(known_as: str | None, decorated: Callable[..., Any]) -> Callable[..., Any]:
        called = known_as or decorated.__name__
        register(called, decorated, type_of(called, decorated) if returns is None else returns)
        return decorated

    if callable(name):
        return declare(None, name)
    if given is None:
        return functools.partial(declare, name)
    declare(name, given)
    return None


def function_type(name: str, function: Callable[..., Any]) -> str:
    """The Spark SQL type of a function by the array that it is annotated to return.

    Raises:
        InputError: it is not annotated, or with something else.
    """
    return _annotated(f"function {name}", function, _ARRAY_TYPES, "pyarrow.")


def aggregate_type(name: str, given: Callable[..., Any]) -> str:
    """The Spark SQL type of an aggregate by the value that the function, or `result` of the class, is annotated to return.

    Raises:
        InputError: it is not annotated, or with something else.
    """
    returning = getattr(given, "result", None) if isinstance(given, type) else given
    return _annotated(f"aggregate {name}", returning, _VALUE_TYPES, "")


def _annotated(what: str, returning: Any, types: Mapping[Any, str], module: str) -> str:
    annotation = _hints(returning).get("return")
    left = set(get_args(annotation)) - {NoneType}
    kind = left.pop() if len(left) == 1 else annotation
    if kind not in types:
        allowed = ", ".join(f"{module}{each.__name__}" for each in types)
        raise InputError(
            f"{what}: its Spark SQL type is missing. Give returns='DOUBLE', or annotate what it returns with one of {allowed}."
        )
    return types[kind]


def _hints(given: Any) -> dict[str, Any]:
    """The annotations of a function, evaluated; {} where a name of them is for type checkers only, or it cannot have any."""
    try:
        return get_type_hints(given)
    except (NameError, TypeError):
        return {}


def named(name: str, function: Callable[..., Any], returns: str) -> Callable[..., Any]:
    """A vectorised function that checks what it returns, and names itself in whatever goes wrong.

    Args:
        name: its name in SQL.
        function: takes one `pyarrow.Array` an argument, returns one of the same length.
        returns: its Spark SQL type.

    Returns:
        A function for `arrow_udf`. It raises `FunctionRaisedError` in the worker where the function raises, and
        `FunctionFailedError` where it does not keep to what it is registered as, lacks a module or memory, or ends its process.

    Raises:
        InputError: `returns` is no type, or the function takes no argument.
    """
    expected = _arrow_type(f"function {name}", returns)
    _refuse_no_arguments(name, function)

    def failed(error: BaseException) -> FunctionFailedError:
        words = " ".join(str(error).split())
        what = "ended its Python process" if isinstance(error, SystemExit) else "raised"
        # a module that is not there and memory that is used up are no matter of a row
        is_of_rows = not isinstance(error, (SystemExit, ImportError, MemoryError))
        kind = FunctionRaisedError if is_of_rows else FunctionFailedError
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

    arrays = {
        each: pa.Array
        for each, hint in _hints(function).items()
        if isinstance(hint, type) and issubclass(hint, pa.Array)
    }
    # Spark takes a function that is annotated with another class of arrays for an aggregate
    call.__annotations__ = {**call.__annotations__, **arrays}
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
