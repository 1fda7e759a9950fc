"""Frozen dataclasses as JSON documents, Arrow types among their fields included; read back they are equal.

A dataclass is an object of its fields, a tuple an array. A type is `{"$arrow": "..."}`: the Arrow IPC message of a
schema with one column of it, in base64. That message is part of Arrow's format, which every later version reads, and
says of a type all there is: precision, unit, zone, the names and nullability of nested fields. Where a field takes any
value, JSON does not tell a number of many digits or a day from a text: they are `{"$decimal": "..."}` and `{"$date": "..."}`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from types import GenericAlias
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pydantic import ConfigDict, TypeAdapter
from pydantic_core import to_jsonable_python

_Value = TypeVar("_Value")

_TYPE, _DECIMAL, _DATE = "$arrow", "$decimal", "$date"


class Codec(Generic[_Value]):
    """Writes and reads values of one type: a dataclass, or a tuple of them.

    Args:
        kind: the type.
    """

    def __init__(self, kind: type[_Value]) -> None:
        # pydantic lets a dataclass that stands alone bring its own settings only
        one: Any = GenericAlias(tuple, (kind,))
        settings = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
        self._adapter: TypeAdapter[tuple[_Value]] = TypeAdapter(one, config=settings)

    def document(self, value: _Value) -> Any:
        """A value as what `json` writes."""
        return _written(value)

    def value(self, document: Any) -> _Value:
        """The value of a document.

        Raises:
            ValueError: it is none of the type: a field is missing or unknown, or not of its type.
        """
        (value,) = self._adapter.validate_python((_with_types(document),))
        return value


def _written(value: object) -> Any:
    if is_dataclass(value):
        return {each.name: _written(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple | list):
        return [_written(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _written(each) for name, each in value.items()}
    if isinstance(value, pa.DataType):
        schema = pa.schema([("", value)])
        return {_TYPE: base64.b64encode(schema.serialize().to_pybytes()).decode()}
    if isinstance(value, Decimal):
        return {_DECIMAL: str(value)}
    if isinstance(value, date) and not isinstance(value, datetime):
        return {_DATE: value.isoformat()}
    return to_jsonable_python(value)


def _type_of(text: str) -> pa.DataType:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))).field(0).type


#: how a value is read, by its only member
_READ: dict[str, Callable[[str], Any]] = {_TYPE: _type_of, _DECIMAL: Decimal, _DATE: date.fromisoformat}


def _with_types(document: Any) -> Any:
    if isinstance(document, list):
        return [_with_types(each) for each in document]
    if not isinstance(document, dict):
        return document
    if len(document) == 1:
        ((name, text),) = document.items()
        if name in _READ and isinstance(text, str):
            return _READ[name](text)
    return {name: _with_types(each) for name, each in document.items()}
