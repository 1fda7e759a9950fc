"""Frozen dataclasses as JSON documents, Arrow types among their fields included; read back they are equal.

A dataclass is an object of its fields, a tuple an array. A type is `{"$arrow": "..."}`: the Arrow IPC message of a
schema with one column of it, in base64. That message is part of Arrow's format, which every later version reads, and
says of a type all there is: precision, unit, zone, the names and nullability of nested fields.
"""

from __future__ import annotations

import base64
from types import GenericAlias
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pydantic import ConfigDict, TypeAdapter
from pydantic_core import to_jsonable_python

_Value = TypeVar("_Value")

_TYPE = "$arrow"


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
        return to_jsonable_python(value, fallback=_written)

    def value(self, document: Any) -> _Value:
        """The value of a document.

        Raises:
            ValueError: it is none of the type: a field is missing or unknown, or not of its type.
        """
        (value,) = self._adapter.validate_python((_with_types(document),))
        return value


def _written(kind: object) -> dict[str, str]:
    if not isinstance(kind, pa.DataType):
        raise TypeError(f"{type(kind).__name__} has no form on disk")
    schema = pa.schema([("", kind)])
    return {_TYPE: base64.b64encode(schema.serialize().to_pybytes()).decode()}


def _with_types(document: Any) -> Any:
    if isinstance(document, list):
        return [_with_types(each) for each in document]
    if not isinstance(document, dict):
        return document
    if document.keys() == {_TYPE}:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document[_TYPE]))).field(0).type
    return {name: _with_types(each) for name, each in document.items()}
