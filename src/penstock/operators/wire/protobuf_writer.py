"""Rows as messages of a Protobuf type that exists: columns are its fields, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from penstock.operators.wire.protobuf_programs import ProtobufSchemaError, protobuf_type

_MILLION, _THOUSAND = 10**6, 1_000
#: columns whose values a field of a type takes
_WHOLE = (pa.types.is_integer,)
_TEXT = (pa.types.is_string, pa.types.is_large_string)
_TAKEN: Mapping[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "boolean": (pa.types.is_boolean,),
    "int": _WHOLE,
    "long": _WHOLE,
    "unsigned": _WHOLE,
    "float": (pa.types.is_float32,),
    "double": (pa.types.is_floating, pa.types.is_int32, pa.types.is_int16, pa.types.is_int8),
    "string": _TEXT,
    "enum": _TEXT,
    "bytes": (pa.types.is_binary, pa.types.is_large_binary),
    "moment": (pa.types.is_timestamp,),
}
#: the widest whole numbers that a field takes
_BITS = {"int": 32}


class ProtobufWriter:
    """Writes rows as messages.

    Args:
        message: the type.
        columns: of the rows.

    Raises:
        ProtobufSchemaError: a column has no field, or one of another type.
    """

    def __init__(self, message: Descriptor, columns: pa.Schema) -> None:
        self._new = message_factory.GetMessageClass(message)
        self._puts = _puts(message, list(columns))

    def values(self, rows: pa.Table, prefix: bytes = b"") -> list[bytes]:
        """Each row as a message; NULL is a field that is not set.

        Args:
            rows: with the columns.
            prefix: put before each.

        Raises:
            ValueError: a text is not a symbol of its field's enum, or a number is beyond its field.
        """
        numbered = pa.schema([pa.field(each.name, _numbered(each.type)) for each in rows.schema])
        found = []
        for row in rows.cast(numbered).to_pylist():
            message = self._new()
            for name, put in self._puts.items():
                if (value := row[name]) is not None:
                    put(message, value)
            found.append(prefix + message.SerializeToString(deterministic=True))
        return found


def message_path(message: Descriptor) -> bytes:
    """Where a message is in its file, as Confluent's frame has it: one byte for the first one."""
    path: list[int] = []
    inner: Descriptor | None = message
    while inner is not None:
        around = inner.containing_type
        level = list(around.nested_types if around is not None else inner.file.message_types_by_name.values())
        path.insert(0, level.index(inner))
        inner = around
    if path == [0]:
        return b"\0"
    return b"".join(map(_zigzag, (len(path), *path)))


def _zigzag(number: int) -> bytes:
    rest, found = 2 * number, bytearray()
    while rest >= 128:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*found, rest])


Put = Callable[[Any, Any], None]


def _puts(message: Descriptor, columns: list[pa.Field]) -> dict[str, Put]:
    names = message.fields_by_name
    for column in columns:
        if column.name not in names:
            raise ProtobufSchemaError(
                f"message {message.full_name} has no field {column.name}; fields: {', '.join(names)}. Rename the column with AS."
            )
    return {column.name: _put(names[column.name], column) for column in columns}


def _put(field: FieldDescriptor, column: pa.Field) -> Put:
    """What puts a value of a column into a message."""
    name, kind = field.name, column.type
    inner = field.message_type
    if inner is not None and pa.types.is_struct(kind) and not field.is_repeated:
        puts = _puts(inner, list(kind))

        def put_record(message: Any, value: Mapping[str, Any]) -> None:
            own = getattr(message, name)
            own.SetInParent()
            for each, put in puts.items():
                if value[each] is not None:
                    put(own, value[each])

        return put_record
    wire = protobuf_type(field)
    taken = () if wire is None else _TAKEN.get(wire.kind, ())
    is_wide = wire is not None and pa.types.is_integer(kind) and kind.bit_width > _BITS.get(wire.kind, 64)
    if wire is None or is_wide or not any(each(kind) for each in taken):
        of = "a list or map" if field.is_repeated else (wire.name if wire is not None else "a message")
        raise ProtobufSchemaError(f"column {column.name} is {kind}, and its field is {of}. CAST it.")
    if wire.kind == "moment":

        def put_moment(message: Any, value: int) -> None:
            own = getattr(message, name)
            own.seconds, own.nanos = value // _MILLION, value % _MILLION * _THOUSAND
            own.SetInParent()

        return put_moment
    if wire.kind == "enum":
        symbols = {each.name: each.number for each in field.enum_type.values}

        def put_symbol(message: Any, value: str) -> None:
            if value not in symbols:
                raise ValueError(f"'{value}' is not a symbol of {field.enum_type.full_name}")
            setattr(message, name, symbols[value])

        return put_symbol
    if inner is not None:

        def put_wrapped(message: Any, value: Any) -> None:
            own = getattr(message, name)
            own.value = value
            own.SetInParent()

        return put_wrapped
    return lambda message, value: setattr(message, name, value)


def _numbered(kind: pa.DataType) -> pa.DataType:
    """A type with moments as microseconds: no year is beyond them."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _numbered(each.type)) for each in kind])
    return kind
