"""Which column a malformed record failed at: a guess for people, made for records that are set aside only."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.plan.spark_types import spark_name

#: reasons given by sources, by the form of their records
JSON_REASONS = ("malformed JSON", "malformed json record")
CSV_REASONS = ("malformed csv record",)
#: records of a block whose reason is looked into
_MOST_EXPLAINED = 10_000


def explained(reason: str, record: bytes, schema: pa.Schema) -> str:
    """A reason with the first column and its type that do not fit, as far as that can be told.

    Args:
        reason: as the source gave it.
        record: the record's text.
        schema: the tuple's columns.

    Returns:
        One of few texts a schema, so that they can be counted.
    """
    find = _json if reason in JSON_REASONS else _csv if reason in CSV_REASONS else None
    found = find(record, schema) if find else None
    return f"{reason}: {found}" if found else reason


def explained_each(reasons: pa.Array, records: pa.Array, schema: pa.Schema) -> pa.Array:
    """Likewise of many: of the first ones, the others keep their reasons.

    Args:
        reasons: string.
        records: binary, as many.
        schema: the tuple's columns.
    """
    told = [
        explained(why.as_py(), record.as_py() or b"", schema) if number < _MOST_EXPLAINED else why.as_py()
        for number, (why, record) in enumerate(zip(reasons, records, strict=True))
    ]
    return pa.array(told, pa.string())


def _json(record: bytes, schema: pa.Schema) -> str | None:
    try:
        value = json.loads(record)
    except (ValueError, RecursionError):
        return "no JSON value"
    if not isinstance(value, dict):
        return "no JSON object"
    for field in schema:
        given = value.get(field.name)
        if given is not None and not _fits(given, field.type):
            return f"{field.name} is no {spark_name(field.type)}"
    return None


def _csv(record: bytes, schema: pa.Schema) -> str | None:
    try:
        (fields,) = csv.reader([record.decode("utf-8")])
    except (ValueError, csv.Error):
        return None
    if len(fields) != len(schema):
        return None
    for text, field in zip(fields, schema, strict=True):
        if text and not _reads_as(text.strip(), field.type):
            return f"{field.name} is no {spark_name(field.type)}"
    return None


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Whether Spark takes a JSON value for a type; True where that is not known."""
    if pa.types.is_integer(kind):
        return isinstance(value, int) and not isinstance(value, bool) and _in_range(value, kind)
    if pa.types.is_floating(kind):
        return (isinstance(value, int | float) and not isinstance(value, bool)) or value in _NOT_FINITE
    if pa.types.is_decimal(kind):
        return isinstance(value, int | float | str) and not isinstance(value, bool)
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, str) and _reads_as(value, kind)
        )
    if pa.types.is_list(kind):
        return isinstance(value, list)
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return isinstance(value, dict)
    return True


def _reads_as(text: str, kind: pa.DataType) -> bool:
    """Whether a text reads as a value of a type; True where that is not known."""
    if pa.types.is_integer(kind):
        return _parses(int, text) and _in_range(int(text), kind)
    if pa.types.is_floating(kind):
        return _parses(float, text)
    if pa.types.is_decimal(kind):
        return _parses(float, text)
    if pa.types.is_boolean(kind):
        return text.lower() in ("true", "false")
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return any(letter.isdigit() for letter in text)
    return True


_NOT_FINITE = ("NaN", "Infinity", "-Infinity", "+Infinity", "INF", "-INF", "+INF")


def _parses(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


def _in_range(value: int, kind: pa.DataType) -> bool:
    most: int = 1 << (kind.bit_width - 1)
    return -most <= value < most
