"""The columns that a CREATE TABLE declares, as Spark's types."""

from __future__ import annotations

import re
from collections.abc import Sequence

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from penstock.errors import SqlError, UnknownNameError, UnsupportedError
from penstock.spark.recovery.messages import first_sentence, quoted
from penstock.sql.script.statements import Column, CreateTable

#: types that a misspelt one may mean
_TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "STRING"),
    *("CHAR", "VARCHAR", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "ARRAY", "MAP", "STRUCT", "VARIANT"),
)
#: a time with the digits of its seconds, which Spark takes for nanoseconds alone
_PRECISE = re.compile(r"\bTIMESTAMP\w*\s*\(", re.IGNORECASE)
#: a text with a length, which no frame of Spark has
_SIZED = re.compile(r'"(?:var)?char\(\d+\)"')
#: how a text with a length is written, and one whose length is missing
_WRITTEN_SIZED = re.compile(r"\b(?:VARCHAR|CHARACTER|CHAR)\b(?:\s*\(\s*\d+\s*\))?", re.IGNORECASE)


def declared_columns(table: CreateTable) -> StructType | None:
    """The columns that a table declares, None without any.

    Raises:
        SqlError, UnknownNameError: Spark does not know a type.
        UnsupportedError: a text has a length.
    """
    if not table.columns:
        return None
    try:
        found = _columns(table.columns)
    except (PySparkException, Py4JJavaError) as error:
        for column in table.columns:
            try:
                _columns([column])
            except (PySparkException, Py4JJavaError) as own:
                raise _refusal(table, column, own) from own
        raise SqlError(f"table {table.name}: {first_sentence(str(error))}") from error
    for column, field in zip(table.columns, found, strict=True):
        if _SIZED.search(field.dataType.json()):
            raise _text_refused(table, column)
    return found


def _columns(columns: Sequence[Column]) -> StructType:
    kind = StructType.fromDDL(", ".join(f"{quoted(column.name)} {column.type_sql}" for column in columns))
    return kind if isinstance(kind, StructType) else StructType().add("value", kind)


def _refusal(table: CreateTable, column: Column, error: PySparkException | Py4JJavaError) -> SqlError:
    """The mistake in the type of a column, which Spark does not know."""
    text, _, end = table.at(column.name)
    if isinstance(error, PySparkException):
        condition, parameters = error.getCondition(), error.getMessageParameters() or {}
        name = parameters.get("typeName", "").strip('"')
        if condition == "UNSUPPORTED_DATATYPE" and (found := text.find(name, end)) >= 0:
            unknown = UnknownNameError.among(f"table {table.name}: type", name, _TYPES)
            return unknown.at(text, found, found + len(name))
        if condition == "DATATYPE_MISSING_SIZE":
            return _text_refused(table, column)
        return SqlError(f"table {table.name}: {first_sentence(str(error))}", *table.at(column.name))
    if (precise := _PRECISE.search(column.type_sql)) is None:
        told = first_sentence(str(error.java_exception).partition(": ")[2])
        return SqlError(f"table {table.name}: {told}", *table.at(column.name))
    kind = precise[0].rstrip("( ")
    told = f"table {table.name}: times have microseconds. Write {kind} without the digits of its seconds."
    found = text.find("(", text.find(precise[0], end))
    return SqlError(told, text, found, text.find(")", found) + 1)


def _text_refused(table: CreateTable, column: Column) -> UnsupportedError:
    """The refusal of a text with a length."""
    text, start, end = table.at(column.name)
    if (written := _WRITTEN_SIZED.search(text, end)) is not None:
        start, end = written.span()
    told = f"table {table.name}: {text[start:end]} is not supported. Write STRING."
    return UnsupportedError(told, text, start, end)
