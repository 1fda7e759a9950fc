"""Rows as records of Kafka: keys, headers, and values as JSON, as they are, or as `kafka_values` has them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import InputError, SqlError, TypeMismatchError
from penstock.plan.spark_types import spark_name
from penstock.spark.results.json_columns import json_column
from penstock.spark.results.texts import has_form, json_texts
from penstock.spark.sinks import options
from penstock.spark.sinks.delivery import Delivery
from penstock.spark.sinks.kafka_values import VALUE_OPTIONS, Bytes, Encode, avro_form, protobuf_form
from penstock.spark.sinks.providers import SinkTable
from penstock.spark.sinks.templates import Template, objects_of

RECORD_OPTIONS = ("format", "record_key", "headers", *VALUE_OPTIONS)
_JSON, _AVRO, _PROTOBUF = "json", "avro", "protobuf"
#: headers that tell a repeated record
_OWN = "penstock-"
_BATCH, _ORDINAL, _DEFINITION = f"{_OWN}batch", f"{_OWN}ordinal", f"{_OWN}definition"


@dataclass(frozen=True, slots=True)
class RecordForm:
    """What records are made of.

    Attributes:
        values: of rows.
        key: columns; (): a record has no key, or the column `key` of the query.
        headers: names and texts with places for columns; None: none but our own.
    """

    values: Encode
    key: tuple[str, ...]
    headers: Template | None = field(repr=False)

    def of(self, delivery: Delivery) -> pa.Table:
        """The records of a delivery, in order, as `KafkaProducer.send` takes them."""
        rows = delivery.rows
        count = rows.num_rows
        columns = [("key", _keys(rows, self.key)), ("value", self.values(delivery, rows))]
        columns.append((_BATCH, _repeated(str(delivery.batch), count)))
        if delivery.definition is not None:
            columns.append((_DEFINITION, _repeated(str(delivery.definition), count)))
        columns.append((_ORDINAL, pa.array(delivery.ordinals, pa.string())))
        columns += _named(self.headers, rows)
        return pa.table([each for _, each in columns], [name for name, _ in columns])


def record_form(table: SinkTable) -> RecordForm:
    """How a sink's table wants its records.

    Raises:
        InputError: an option has no allowed value, or a column has a type that the form has not.
    """
    key = options.columns(table, "record_key")
    form = options.choice(table, "format", (_JSON, _AVRO, _PROTOBUF))
    template = _template(table)
    written = [*key, *(template.names if template is not None else ())]
    for each in table.columns:
        if each.name in written and not has_form(each.type):
            raise TypeMismatchError(
                f"table {table.name}: column {each.name} is {spark_name(each.type)}, which cannot be a key or a header. CAST it.",
                *table.statement.at("using"),
            )
    if form != _JSON:
        return RecordForm(avro_form(table) if form == _AVRO else protobuf_form(table), key, template)
    for option in VALUE_OPTIONS:
        if option in table.options:
            raise SqlError(
                f"table {table.name}: {option} belongs to format 'avro' or 'protobuf'.",
                *table.statement.at(option),
            )
    if _is_plain(table.columns):
        for each in table.columns:
            if not _is_bytes(each.type):
                raise TypeMismatchError(
                    f"table {table.name}: column {each.name} is {spark_name(each.type)}; a record has text or bytes. CAST it to STRING.",
                    *table.statement.at("using"),
                )
    return RecordForm(_json_values, key, template)


def _is_plain(columns: pa.Schema) -> bool:
    return "value" in columns.names and set(columns.names) <= {"key", "value"}


def _is_bytes(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(each(kind) for each in kinds)


def _json_values(delivery: Delivery, rows: pa.Table) -> Bytes:
    if _is_plain(rows.schema):
        return rows.column("value")
    if all(has_form(each.type) for each in rows.schema):
        return _objects(rows)
    return pa.array(delivery.json_by_spark(), pa.large_string())


def _objects(rows: pa.Table) -> pa.ChunkedArray:
    return pa.chunked_array([json_column(each) for each in rows.to_batches()], pa.large_string())


def _keys(rows: pa.Table, names: Sequence[str]) -> Bytes:
    if not names and _is_plain(rows.schema) and "key" in rows.column_names:
        names = ("key",)
    if not names:
        return pa.nulls(rows.num_rows, pa.binary())
    if len(names) > 1:
        return _objects(rows.select(list(names)))
    column = rows.column(names[0])
    if _is_bytes(column.type):
        return column
    texts = json_texts(column.combine_chunks())
    return pa.array([None if text is None else text.strip('"') for text in texts], pa.large_string())


def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _template(table: SinkTable) -> Template | None:
    text = table.options.get("headers")
    if text is None:
        return None
    try:
        template = Template.parsed(text, table.columns.names)
    except InputError as error:
        raise SqlError(f"table {table.name}: headers: {error}", *table.statement.at("headers")) from error
    body = template.body
    if not isinstance(body, dict) or not all(isinstance(each, str) for each in body.values()):
        raise SqlError(
            f'table {table.name}: headers is not an object of texts; write {{"name": "text or ${{column}}"}}',
            *table.statement.at("headers"),
        )
    if taken := [name for name in body if name.startswith(_OWN)]:
        raise SqlError(
            f"table {table.name}: headers has {taken[0]}; names that begin with {_OWN} are Penstock's.",
            *table.statement.at("headers"),
        )
    return template


def _named(template: Template | None, rows: pa.Table) -> list[tuple[str, Bytes]]:
    """The headers that the user has chosen."""
    if template is None or not rows.num_rows:
        return []
    names = list(template.body)
    if not template.names:
        filled = [template.body] * rows.num_rows
    else:
        objects = objects_of(rows.select(list(template.names)))
        filled = [json.loads(template.filled(each)) for each in objects]
    return [(name, pa.array([_header_value(each[name]) for each in filled], pa.binary())) for name in names]


def _header_value(value: Any) -> bytes | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()
