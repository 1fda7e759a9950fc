"""Aggregates of the user's: what they are declared as, and their values."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.errors import AggregateFailedError, InputError
from penstock.operators.python_values import python_values
from penstock.plan.deadlines import AggregateSignature, Arity

_ALLOWED = (
    "give a function that takes one pyarrow.Array for each argument and returns a value, or a class with "
    "add(arrays...), remove(arrays...) and result()"
)
_METHODS = ("add", "remove", "result")
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


class _State(Protocol):
    """What a class of the user's makes: tuples are added and removed, an array an argument."""

    def add(self, *arrays: pa.Array) -> object: ...

    def remove(self, *arrays: pa.Array) -> object: ...

    def result(self) -> object: ...


class _Once:
    """A function of the user's in the form of a class: all tuples are added at once, none is removed."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self._value: object = None

    def add(self, *arrays: pa.Array) -> None:
        self._value = self._function(*arrays)

    def remove(self, *_: pa.Array) -> None:
        raise AssertionError("a function is computed from scratch")

    def result(self) -> object:
        return self._value


@dataclass(frozen=True, slots=True)
class UserAggregate:
    """An aggregate of the user's; it can be pickled where what was given can.

    Attributes:
        name: its name in SQL.
        given: a function from arrays to a value, or a class with `add`, `remove` and `result`.
        type: of its values.
        type_sql: the same as Spark SQL writes it.
    """

    name: str
    given: Callable[..., Any]
    type: pa.DataType
    type_sql: str

    @property
    def is_incremental(self) -> bool:
        """Whether an instance can be worked out from the state of an earlier one."""
        return isinstance(self.given, type)

    @property
    def signature(self) -> AggregateSignature:
        """What a query has to know of it."""
        if self.is_incremental:
            arity = _own_arity(self.name, self.given, "add")
        else:
            arity = _arity(f"aggregate {self.name}", self.given)
        return AggregateSignature(self.name, self.type, arity, self.is_incremental)

    def begun(self) -> _State:
        """The state of no tuples.

        Raises:
            AggregateFailedError: the user's class raises.
        """
        if not self.is_incremental:
            return _Once(self.given)
        with self.told("__init__"):
            state: _State = self.given()
        return state

    def afresh(self, *arrays: pa.Array) -> pa.Scalar:
        """The value of some tuples, an array an argument, all of one length.

        Raises:
            AggregateFailedError: the user's code raises, or returns what does not fit the type.
        """
        state = self.begun()
        with self.told("add"):
            state.add(*arrays)
        return self.value(state)

    def value(self, state: _State) -> pa.Scalar:
        """The value of a state, NULL for None. Raises what `afresh` raises."""
        with self.told("result"):
            value = state.result()
        try:
            return _fitted(value, self.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise AggregateFailedError(
                f"aggregate {self.name} returned {type(value).__name__}, which does not fit its declared type {self.type_sql}: "
                f"{_words(error)}"
            ) from error

    @contextmanager
    def told(self, method: str) -> Iterator[None]:
        """Names the aggregate, of a class the method, and the line in whatever the user's code raises."""
        try:
            yield
        except (Exception, SystemExit) as error:
            what = "ended its Python process" if isinstance(error, SystemExit) else "raised"
            where = f" in {method}" if self.is_incremental else ""
            where += _place(error, self.given)
            words = _words(error)
            raise AggregateFailedError(
                f"aggregate {self.name} {what}{where}: {type(error).__name__}{': ' if words else ''}{words}"
            ) from error


def user_aggregate(name: str, given: object, kind: pa.DataType, type_sql: str) -> UserAggregate:
    """An aggregate as the user declares it.

    Args:
        name: its name in SQL.
        given: the function or class.
        kind: the type of its values.
        type_sql: the same as the user wrote it.

    Raises:
        InputError: the name is none that SQL can call, or what is given is no such function or class.
    """
    if not (isinstance(name, str) and name.isascii() and name.isidentifier()):
        raise InputError(
            f"aggregate {name!r}: the name may have letters, digits and _, and must not start with a digit"
        )
    if isinstance(given, type):
        _check_class(name, given)
    elif not callable(given):
        raise InputError(f"aggregate {name}: {_described(given)} is not callable; {_ALLOWED}")
    elif _arity(f"aggregate {name}", given).most == 0:
        raise InputError(f"aggregate {name}: the function takes no argument; {_ALLOWED}")
    return UserAggregate(name, given, kind, type_sql)


def _check_class(name: str, given: type) -> None:
    missing = [each for each in _METHODS if not callable(getattr(given, each, None))]
    if missing:
        raise InputError(
            f"aggregate {name}: class {given.__name__} has no {' and no '.join(missing)}; {_ALLOWED}"
        )
    if least := _arity(f"aggregate {name}", given).least:
        raise InputError(
            f"aggregate {name}: class {given.__name__} must need no arguments, but its __init__ takes {least}"
        )
    own = {each: _own_arity(name, given, each) for each in _METHODS}
    if own["result"].least:
        raise InputError(f"aggregate {name}: {given.__name__}.result() must need no arguments")
    for each in ("add", "remove"):
        if own[each].most == 0:
            raise InputError(f"aggregate {name}: {given.__name__}.{each}() takes no argument; {_ALLOWED}")
    if own["add"] != own["remove"]:
        raise InputError(
            f"aggregate {name}: {given.__name__}.add() takes {own['add']}, remove() {own['remove']}; "
            "both receive one array for each argument in SQL"
        )


def _own_arity(name: str, given: Callable[..., object], method: str) -> Arity:
    """The arity of a method, the instance apart."""
    arity = _arity(f"aggregate {name}: {given.__name__}.{method}()", getattr(given, method))
    if isinstance(inspect.getattr_static(given, method), staticmethod | classmethod):
        return arity
    return Arity(max(arity.least - 1, 0), None if arity.most is None else max(arity.most - 1, 0))


def _arity(what: str, function: Callable[..., object]) -> Arity:
    """How many arguments a function takes by position; any number where Python does not know.

    Raises:
        InputError: it needs an argument by name, which SQL does not give.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return Arity(0, None)
    positional = [
        each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and each.default is each.empty:
            raise InputError(
                f"{what}: it needs {each.name}= by name, but Penstock passes arguments by position"
            )
    least = sum(each.default is each.empty for each in positional)
    is_open = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    return Arity(least, None if is_open else len(positional))


def _place(error: BaseException, given: Callable[..., Any]) -> str:
    """Where the user's code raised: the innermost line in a file of the aggregate's, else the innermost one; "" where none is known."""
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_globals.get("__name__", "").startswith("penstock.")
    ]
    files = _files(given)
    own = [each for each in frames if each[0] in files] or frames
    return f" at {Path(own[-1][0]).name} line {own[-1][1]}" if own else ""


def _files(given: Callable[..., Any]) -> set[str]:
    """The files that a function, or the methods of a class, are written in."""
    if isinstance(given, type):
        parts = [getattr(given, name) for name in ("__init__", *_METHODS)]
    else:
        parts = [given, getattr(given, "func", None), type(given).__call__]
    codes = (getattr(inspect.unwrap(part), "__code__", None) for part in parts if part is not None)
    return {code.co_filename for code in codes if code is not None}


def _described(given: object) -> str:
    return f"an instance of {type(given).__name__}"


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())


def _fitted(value: object, kind: pa.DataType) -> pa.Scalar:
    """A value of the user's as one of the type; raises pyarrow's errors, or ValueError."""
    if isinstance(value, pa.Array | pa.ChunkedArray | np.ndarray):
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            raise ValueError("return one value, not an array")
        value = value.tolist() if isinstance(value, np.ndarray) else _as_list(value)
    if isinstance(value, pa.Scalar):
        if value.is_valid and _is_text(value.type) != _is_text(kind):
            raise ValueError(f"it is of type {value.type}")
        fitted = value if value.type == kind else value.cast(kind)
        value = python_values(pa.array([fitted], kind))[0] if pa.types.is_nested(kind) else None
    else:
        fitted = pa.scalar(value, kind)
    _check_inside(value, kind)
    return fitted


def _as_list(values: pa.Array | pa.ChunkedArray) -> pa.Scalar:
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return pa.LargeListArray.from_arrays(pa.array([0, len(whole)], pa.int64()), whole)[0]


def _is_text(kind: pa.DataType) -> bool:
    while pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    return any(each(kind) for each in _TEXTS)


def _check_inside(value: object, kind: pa.DataType) -> None:
    """Raises ValueError for what pyarrow lets pass: fractions cut off, NULL in a field that is NOT NULL."""
    if pa.types.is_integer(kind) and isinstance(value, float | np.floating) and not float(value).is_integer():
        raise ValueError(f"{value} is not a whole number")
    if pa.types.is_struct(kind) and isinstance(value, dict):
        for field in kind:
            inner = value.get(field.name)
            if inner is None and not field.nullable:
                raise ValueError(f"field {field.name} is NULL, but NOT NULL")
            _check_inside(inner, field.type)
    elif (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and isinstance(value, list | tuple):
        for each in value:
            _check_inside(each, kind.value_type)
