"""Columns that are taken from inside records: PATH of a column, and the envelopes of Debezium."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from penstock.errors import SqlError, UnsupportedError
from penstock.operators.ingest.record_fields import (
    FieldOf,
    Names,
    RecordFields,
    SharedFieldError,
    Tree,
    field_tree,
)
from penstock.operators.wire.readers import AVRO, PROTOBUF
from penstock.spark.recovery.messages import quoted
from penstock.sql.script.field_paths import path_place
from penstock.sql.script.statements import Column as DeclaredColumn
from penstock.sql.script.statements import CreateTable

#: the format of Debezium's change events, and the option that says that their schema is beside them
DEBEZIUM, WITH_SCHEMA = "debezium-json", "schemainclude"
#: where an event of Kafka Connect's JsonConverter is, beside its schema
_PAYLOAD = "payload"
_AFTER, _BEFORE = "after", "before"


@dataclass(frozen=True, slots=True)
class StoredFields:
    """How the columns of a stream are taken from its records.

    Attributes:
        columns: the columns.
        stored: the records as Spark reads them.
        fields: where each column is.
    """

    columns: StructType
    stored: StructType
    fields: RecordFields

    def of(self, frame: DataFrame) -> DataFrame:
        """A frame of the columns, of one of the records and others."""
        own = set(self.stored.fieldNames())
        others = [F.col(quoted(name)) for name in frame.columns if name not in own]
        return frame.select(*(_taken(each) for each in self.fields.fields), *others)


def stored_fields(
    table: CreateTable, columns: StructType | None, options: Mapping[str, str], kind: str
) -> StoredFields | None:
    """How the columns of a table are taken from its records; None where each is a field of the record with its own name.

    Args:
        table: the statement.
        columns: the declared columns; None: none are declared.
        options: by plain name.
        kind: the format of the records.

    Raises:
        SqlError: paths contradict each other, or options do.
        UnsupportedError: records of this format have no fields within fields.
    """
    is_debezium = options.get("format") == DEBEZIUM and kind == "json"
    if WITH_SCHEMA in options and not is_debezium:
        raise SqlError(
            f"table {table.name}: schema_include is for format '{DEBEZIUM}' alone. Remove it.",
            *table.at("schema_include"),
        )
    given = next((each for each in table.columns if each.path), None)
    if given is not None and kind in (AVRO, PROTOBUF):
        return None
    if given is not None and kind != "json":
        raise UnsupportedError(
            f"table {table.name}: PATH names a field within JSON, Avro or Protobuf, and {kind} is read by columns. Select the field in queries.",
            *table.at(path_place(given.name)),
        )
    if not is_debezium and given is None:
        return None
    if columns is None:
        raise SqlError(
            f"table {table.name}: format '{DEBEZIUM}' needs the columns of the row. Declare them in CREATE TABLE.",
            *table.at(),
        )
    _refuse_other_values(table, options)
    fields = RecordFields(tuple(record_field(each, options) for each in table.columns))
    try:
        tree = field_tree(fields.fields, lambda name: columns[name].dataType)
    except SharedFieldError as error:
        place = path_place(error.column) if path_place(error.column) in table.places else error.column
        raise SqlError(
            f"table {table.name}: columns {error.other} and {error.column} need the field $.{'.'.join(error.path)} in two "
            "forms. Declare one of them, or the same type for both.",
            *table.at(place),
        ) from None
    return StoredFields(columns, _struct(tree), fields)


def records_kind(table: CreateTable, options: Mapping[str, str]) -> str:
    """The format of a table's records; `options` by plain name."""
    if table.source == "replay":
        return options.get("format", "parquet")
    if table.source == "kafka":
        return "json" if options.get("format", "json") in ("json", DEBEZIUM) else options["format"]
    return table.source.lower()


def without_format(table: CreateTable, options: Mapping[str, str]) -> dict[str, str]:
    """The options of files that Spark's reader is given, those about the form of JSON records left out.

    Raises:
        SqlError: the format is not one of JSON records.
    """
    if table.source != "json":
        return dict(options)
    found = options.get("format", "json")
    if found not in ("json", DEBEZIUM):
        raise SqlError(
            f"table {table.name}: format is '{found}'; allowed: 'json', '{DEBEZIUM}'", *table.at("format")
        )
    return {name: value for name, value in options.items() if name not in ("format", WITH_SCHEMA)}


def record_field(column: DeclaredColumn, options: Mapping[str, str]) -> FieldOf:
    """Where a declared column is in the records; `options` by plain name."""
    top: Names = (_PAYLOAD,) if options.get(WITH_SCHEMA, "").lower() == "true" else ()
    if column.path or options.get("format") != DEBEZIUM:
        return FieldOf(column.name, (*top, *(column.path or (column.name,))))
    return FieldOf(column.name, (*top, _AFTER, column.name), (*top, _BEFORE, column.name))


def _refuse_other_values(table: CreateTable, options: Mapping[str, str]) -> None:
    value = options.get(WITH_SCHEMA, "false")
    if value.lower() not in ("true", "false"):
        raise SqlError(
            f"table {table.name}: schema_include is '{value}'. Write 'true' or 'false'.",
            *table.at("schema_include"),
        )


def _struct(tree: Mapping[str, DataType | Tree[DataType]]) -> StructType:
    return StructType(
        [StructField(name, _struct(each) if isinstance(each, dict) else each) for name, each in tree.items()]
    )


def _taken(field: FieldOf) -> Column:
    found = _at(field.path)
    if field.otherwise:
        has_object = _at(field.path[:-1]).isNotNull()
        found = F.when(has_object, found).otherwise(_at(field.otherwise))
    return found.alias(field.column)


def _at(path: Names) -> Column:
    return F.col(".".join(map(quoted, path)))
