"""The options of tables whose values are Avro or Protobuf: where the schemas are, and whether the columns fit them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock.errors import ConnectionFailedError, InputError, SqlError, UnknownNameError
from penstock.operators.wire.avro_programs import AvroSchemaError
from penstock.operators.wire.protobuf_programs import ProtobufSchemaError
from penstock.operators.wire.readers import AVRO, PROTOBUF, TITLES, WantedColumn, misfit
from penstock.spark.analysis.schemas import arrow_schema, spark_type
from penstock.spark.sources.providers import StreamTable
from penstock.spark.tasks.schema_registry import RegisteredSchema, SchemaRegistry, SchemaRegistryError
from penstock.spark.tasks.value_formats import ValueFormat
from penstock.spark.tasks.value_stage import decoded_values
from penstock.sql.script.field_paths import path_place
from penstock.sql.script.statements import CreateTable

_URL, _USER, _FILE = "schema.registry.url", "schema.registry.basic.auth.user.info", "schema.file"
_SUBJECT, _MESSAGE, _FRAMED = "schema.subject", "schema.message", "schema.framed"
VALUE_OPTIONS = (_URL, _USER, _FILE, _SUBJECT, _MESSAGE, _FRAMED)
#: versions of a subject that are looked through for the field of a column
_VERSIONS = 20


@dataclass(frozen=True, slots=True)
class StoredValues:
    """How values become tuples.

    Attributes:
        columns: the tuple's columns.
        wanted: likewise, with the fields that they are taken from.
        form: of the values.
    """

    columns: StructType
    wanted: tuple[WantedColumn, ...]
    form: ValueFormat

    def of(self, records: DataFrame, max_record_bytes: int) -> DataFrame:
        """Kafka's records as tuples, see `decoded_values`."""
        own = records.select("value", "topic", "partition", "offset")
        return decoded_values(own, self.columns, self.wanted, self.form, max_record_bytes)


def stored_values(opened: StreamTable, form: str) -> StoredValues | None:
    """How the values of a table become tuples; None of JSON.

    Args:
        opened: the table.
        form: of its values.

    Raises:
        SqlError: options contradict each other, a schema is none, or a column does not fit it.
        ConnectionFailedError: the registry does not answer.
        UnknownNameError: no schema has the field of a column.
    """
    table, options = opened.statement, opened.options
    if form not in (AVRO, PROTOBUF):
        for name in VALUE_OPTIONS:
            if name in options:
                message = f"table {table.name}: {name} is for format '{AVRO}' and '{PROTOBUF}'. Remove it."
                raise SqlError(message, *table.at(name))
        return None
    stored = _format(table, options, form)
    try:
        schemas = [] if stored.registry is None else _newest(table, options, stored.registry)
        columns = opened.columns
        if columns is None:
            columns = _all_columns(table, options, stored, schemas)
        kinds = arrow_schema(columns)
        paths = {each.name: each.path or (each.name,) for each in table.columns}
        wanted = tuple(
            WantedColumn(each.name, each.type, paths.get(each.name, (each.name,))) for each in kinds
        )
        _check(table, stored, schemas, wanted)
    except SchemaRegistryError as error:
        raise ConnectionFailedError(f"table {table.name}: {error}", *table.at(_URL)) from error
    except (AvroSchemaError, ProtobufSchemaError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        place = _FILE if stored.registry is None else _URL
        raise SqlError(f"table {table.name}: {error}", *table.at(place)) from error
    return StoredValues(columns, wanted, stored)


def _format(table: CreateTable, options: Mapping[str, str], form: str) -> ValueFormat:
    url, file = options.get(_URL), options.get(_FILE)
    if (url is None) == (file is None):
        which = "both" if url else "none"
        message = f"table {table.name}: format '{form}' needs {_URL} or {_FILE}; {which} is given."
        raise SqlError(message, *table.at(_FILE if url else "format"))
    if form == AVRO and _MESSAGE in options:
        raise SqlError(f"table {table.name}: {_MESSAGE} is for Protobuf. Remove it.", *table.at(_MESSAGE))
    framed = options.get(_FRAMED, "false" if url is None else "true").lower()
    if framed not in ("true", "false") or (url is not None and framed == "false"):
        allowed = (
            "'true' or 'false'"
            if url is None
            else "'true': a registry's values begin with the number of their schema"
        )
        message = f"table {table.name}: {_FRAMED} is '{options[_FRAMED]}'; allowed: {allowed}"
        raise SqlError(message, *table.at(_FRAMED))
    message_name = options.get(_MESSAGE)
    if url is not None:
        try:
            registry = SchemaRegistry.of(url, options.get(_USER, ""))
        except ValueError as error:
            raise SqlError(f"table {table.name}: {_URL} {error}", *table.at(_URL)) from None
        return ValueFormat(form, registry, message=message_name)
    assert file is not None, "either of both is given"
    try:
        schema = Path(file).read_bytes()
    except OSError as error:
        raise ConnectionFailedError(
            f"table {table.name}: {_FILE} {file} cannot be read: {error.strerror}", *table.at(_FILE)
        ) from error
    return ValueFormat(form, None, schema, message_name, framed == "true")


def _newest(
    table: CreateTable, options: Mapping[str, str], registry: SchemaRegistry
) -> list[RegisteredSchema]:
    """The newest versions of the table's subject, the newest first; none where it cannot be known or has none yet."""
    subject = options.get(_SUBJECT)
    if subject is None and "," not in options.get("subscribe", ","):
        subject = f"{options['subscribe'].strip()}-value"
    versions = [] if subject is None else registry.versions(subject)
    if not versions and _SUBJECT in options:
        message = f"table {table.name}: the registry has no subject {subject}."
        raise UnknownNameError(message, *table.at(_SUBJECT))
    if not versions:
        # asks at least whether somebody answers
        registry.versions(subject or table.name)
        return []
    found = (registry.version(str(subject), each) for each in versions[: -_VERSIONS - 1 : -1])
    return [each for each in found if each is not None]


def _all_columns(
    table: CreateTable, options: Mapping[str, str], stored: ValueFormat, schemas: Sequence[RegisteredSchema]
) -> StructType:
    """A column for each field of the newest schema."""
    if stored.registry is not None and not schemas:
        topics = options.get("subscribe", "a pattern")
        raise SqlError(
            f"table {table.name}: the registry has no schema of {topics}. Declare the columns, or set {_SUBJECT}.",
            *table.at(),
        )
    names = stored.field_names(schemas[0] if schemas else None)
    guessed = [WantedColumn(name, pa.null(), (name,)) for name in names]
    reader, _ = stored.reader_of(schemas[0], guessed) if schemas else stored.reader_of_file(guessed)
    odd = [name for name, kind in zip(names, reader.types, strict=True) if kind is None]
    if odd:
        raise SqlError(
            f"table {table.name}: fields {', '.join(odd)} are lists, maps, records or of several types. Declare the columns that you "
            "need; PATH takes a field from a record.",
            *table.at(),
        )
    columns = StructType()
    for name, kind in zip(names, reader.types, strict=True):
        assert kind is not None, "odd ones are refused"
        columns.add(name, spark_type(kind.columns[0]))
    return columns


def _check(
    table: CreateTable,
    stored: ValueFormat,
    schemas: Sequence[RegisteredSchema],
    wanted: Sequence[WantedColumn],
) -> None:
    """Makes sure that each column has a field in a schema, and fits the newest one.

    Raises:
        UnknownNameError, SqlError: not so.
    """
    missing = {each.name for each in wanted}
    for number, schema in enumerate(schemas or [None]):
        if schema is None and stored.registry is not None:
            return
        reader, has_field = (
            stored.reader_of_file(wanted) if schema is None else stored.reader_of(schema, wanted)
        )
        odd = misfit(wanted, reader, has_field) if number == 0 else None
        if odd is not None:
            name, what = odd
            title = TITLES[stored.form]
            raise SqlError(f"table {table.name}: {name} {what} in the {title} schema.", *table.at(name))
        missing -= {each.name for each, is_there in zip(wanted, has_field, strict=True) if is_there}
        if not missing:
            return
    column = next(each for each in wanted if each.name in missing)
    names = stored.field_names(schemas[0] if schemas else None)
    place = path_place(column.name) if len(column.path) > 1 else column.name
    owner = f"table {table.name}: the schema"
    error = UnknownNameError.among("field", ".".join(column.path), names, "Fields", owner=owner)
    raise error.at(*table.at(place))
