"""Values of Kafka's records as Avro or Protobuf, with a schema registry or a file of types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
from google.protobuf.descriptor import Descriptor

from penstock.errors import ConnectionFailedError, InputError, SqlError, TypeMismatchError, UnknownNameError
from penstock.operators.wire.avro_writer import AvroColumnError, avro_schema, avro_values
from penstock.operators.wire.protobuf_programs import ProtobufFiles, ProtobufSchemaError
from penstock.operators.wire.protobuf_writer import ProtobufWriter, message_path
from penstock.spark.sinks import options
from penstock.spark.sinks.delivery import Delivery
from penstock.spark.sinks.providers import SinkTable
from penstock.spark.tasks.schema_registry import SchemaRegistry, SchemaRegistryError

URL, USER, SUBJECT = "schema.registry.url", "schema.registry.basic.auth.user.info", "schema.subject"
FILE, MESSAGE = "schema.file", "schema.message"
VALUE_OPTIONS = (URL, USER, SUBJECT, FILE, MESSAGE)

#: bytes or texts
Bytes: TypeAlias = pa.Array | pa.ChunkedArray
#: the values of rows
Encode = Callable[[Delivery, pa.Table], Bytes]


def avro_form(table: SinkTable) -> Encode:
    """Values as Avro, whose schema is made from the rows' columns and registered.

    Raises:
        InputError: an option has no allowed value, or a column has a name or a type that Avro has not.
    """
    _refuse(table, FILE, MESSAGE, form="format 'protobuf'")
    registry = _registry(table)
    try:
        avro_schema(table.columns, table.view)
    except AvroColumnError as error:
        raise TypeMismatchError(f"table {table.name}: {error}", *table.statement.at("using")) from None
    subject = _subject(table)
    numbers: dict[str, int] = {}

    def encode(_: Delivery, rows: pa.Table) -> Bytes:
        schema = avro_schema(rows.schema, table.view)
        if schema not in numbers:
            numbers[schema] = registry.register(subject, schema)
        return pa.array(avro_values(rows, b"\0" + numbers[schema].to_bytes(4, "big")), pa.binary())

    return encode


def protobuf_form(table: SinkTable) -> Encode:
    """Values as messages of a type that a registry or a file has.

    Raises:
        InputError: an option has no allowed value, the type is not there, or a column has no field that takes it.
        ConnectionFailedError: the registry does not answer, or the file cannot be read.
    """
    if (URL in table.options) == (FILE in table.options):
        which = "both" if URL in table.options else "none"
        raise SqlError(
            f"table {table.name}: format 'protobuf' needs {URL} or {FILE}; {which} is given.",
            *table.statement.at(FILE if FILE in table.options else "format"),
        )
    if FILE in table.options:
        _refuse(table, USER, SUBJECT, form="a registry")
    place = FILE if FILE in table.options else URL
    try:
        message, prefix = _file_type(table) if place == FILE else _registered_type(table)
        ProtobufWriter(message, table.columns)
    except ProtobufSchemaError as error:
        raise TypeMismatchError(f"table {table.name}: {error}", *table.statement.at(place)) from None
    writers: dict[pa.Schema, ProtobufWriter] = {}

    def encode(_: Delivery, rows: pa.Table) -> Bytes:
        if rows.schema not in writers:
            writers[rows.schema] = ProtobufWriter(message, rows.schema)
        return pa.array(writers[rows.schema].values(rows, prefix), pa.binary())

    return encode


def _file_type(table: SinkTable) -> tuple[Descriptor, bytes]:
    """The message of a file, and what is put before values: nothing."""
    file = table.options[FILE]
    try:
        serialized = Path(file).read_bytes()
    except OSError as error:
        raise ConnectionFailedError(
            f"table {table.name}: {FILE} {file} cannot be read: {error.strerror}", *table.statement.at(FILE)
        ) from error
    return ProtobufFiles.of_set(serialized).message(table.options.get(MESSAGE)), b""


def _registered_type(table: SinkTable) -> tuple[Descriptor, bytes]:
    """The message of the newest version of the subject, and Confluent's frame of it."""
    registry, subject = _registry(table), _subject(table)
    try:
        versions = registry.versions(subject)
        found = registry.version(subject, versions[-1]) if versions else None
        if found is None or found.number is None:
            raise UnknownNameError(
                f"table {table.name}: the registry has no subject {subject}. Register the type, or name another one in {SUBJECT}.",
                *table.statement.at(SUBJECT),
            )
        if found.kind != "PROTOBUF":
            raise ProtobufSchemaError(f"subject {subject} is {found.kind}, not PROTOBUF")
        files = registry.protobuf_files(found)
    except SchemaRegistryError as error:
        raise ConnectionFailedError(f"table {table.name}: {error}", *table.statement.at(URL)) from error
    except ValueError as error:
        if isinstance(error, UnknownNameError):
            raise
        raise ProtobufSchemaError(str(error)) from None
    message = ProtobufFiles(files).message(table.options.get(MESSAGE))
    return message, b"\0" + found.number.to_bytes(4, "big") + message_path(message)


def _registry(table: SinkTable) -> SchemaRegistry:
    try:
        return SchemaRegistry.of(options.required(table, URL), table.options.get(USER, ""))
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise SqlError(f"table {table.name}: {URL} {error}", *table.statement.at(URL)) from None


def _subject(table: SinkTable) -> str:
    return table.options.get(SUBJECT, f"{table.options.get('topic', '')}-value")


def _refuse(table: SinkTable, *names: str, form: str) -> None:
    for name in names:
        if name in table.options:
            raise SqlError(f"table {table.name}: {name} is for {form}. Remove it.", *table.statement.at(name))
