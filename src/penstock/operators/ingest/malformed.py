"""Which column a malformed record failed at, made for records that are set aside only.

Spark's readers go on behind a field that does not fit and leave its column NULL: a column without a value, whose field in the
record has one, is the column. So types, locales and formats of times are judged by the reader itself, and the record is only taken apart here.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.plan.spark_types import spark_name

#: reasons given by sources, by the form of their records
JSON_REASONS = ("malformed JSON", "malformed json record")
CSV_REASONS = ("malformed csv record",)
#: records of a block whose reason is looked into
_MOST_EXPLAINED = 10_000
#: more fields than these are not counted in a reason, so that there are few of those
_MOST_FIELDS = 1_000
#: escapes in the option sep
_SEPARATORS = {"\\t": "\t", "\\\\": "\\", "\\u0000": "\0", "\\0": "\0"}
#: a folder whose name gives a column to the files in it
_PARTITION = re.compile(r"/([^/=]+)=[^/]*(?=/)")


@dataclass(frozen=True, slots=True)
class RecordForm:
    """How a table's reader takes records apart.

    Attributes:
        columns: names of the columns that records have, in order; empty: all of the tuple's.
        separator, quote, escape: of CSV; an empty quote: none.
        null: text of a field without a value.
        encoding: of the files' texts, as Java or Python calls it.
        stored: the tuple's columns as records have them, where these are others.
        is_nested: whether columns are fields within objects of the records, so that their names are not those of the record.
    """

    columns: tuple[str, ...] = ()
    separator: str = ","
    quote: str = '"'
    escape: str = "\\"
    null: str = ""
    encoding: str = "utf-8"
    stored: pa.Schema | None = None
    is_nested: bool = False

    @classmethod
    def of(cls, kind: str, columns: Sequence[str], options: Mapping[str, str]) -> RecordForm:
        """The form that a table's options say.

        Args:
            kind: the table's format.
            columns: of its records.
            options: by plain name.
        """
        separator = options.get("sep", options.get("delimiter", ","))
        encoding = options.get("encoding", options.get("charset", "utf-8"))
        return cls(
            tuple(columns),
            _SEPARATORS.get(separator, separator),
            options.get("quote", '"'),
            options.get("escape", "\\"),
            options.get("nullvalue", ""),
            # Spark hands a JSON record on as if its bytes were UTF-8
            encoding if kind == "csv" else "utf-8",
        )

    def fields(self, record: str) -> list[str] | None:
        """The fields of a CSV record, or None where they cannot be told."""
        if len(self.separator) != 1 or len(self.quote) > 1 or len(self.escape) > 1:
            return record.split(self.separator) if not self.quote or self.quote not in record else None
        # Spark's escape is one of quotes only
        escapes = bool(self.quote and self.escape) and self.escape + self.quote in record
        try:
            found = list(
                csv.reader(
                    io.StringIO(record, newline=""),
                    delimiter=self.separator,
                    quotechar=self.quote or None,
                    quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
                    escapechar=self.escape if escapes and self.escape != self.quote else None,
                )
            )
        except (csv.Error, ValueError):
            return None
        return found[0] if len(found) == 1 else None


#: columns that the reader has found values of in a row
Found = frozenset[str]


def explained(
    reason: str, record: bytes, schema: pa.Schema, form: RecordForm, rows: Sequence[Found] = ()
) -> str:
    """A reason with the first column and its type that do not fit, as far as that can be told.

    Args:
        reason: as the source gave it.
        record: the record's text, UTF-8.
        schema: the tuple's columns.
        form: of the records.
        rows: of each row that Spark made of the record, which columns have a value; nothing where that is not known.

    Returns:
        One of few texts a schema, so that they can be counted.
    """
    wanted = [schema.field(name) for name in form.columns or schema.names]
    text = record.decode("utf-8", errors="replace")
    found = None
    if reason in JSON_REASONS:
        found = _json(text, wanted, rows)
    elif reason in CSV_REASONS:
        found = _csv(text, wanted, form, rows)
    return f"{reason}: {found}" if found else reason


class Repeats:
    """Knows a JSON array in a line again, of which Spark makes a row for each element: the line is one record.

    One for all blocks of a task, whose rows come in the order of their lines.
    """

    def __init__(self) -> None:
        self._last: tuple[str | None, bytes | None] = (None, None)
        self._left = 0

    def groups(self, records: Sequence[bytes | None], origins: Sequence[str | None]) -> list[list[int]]:
        """The rows of each record that begins here, by their numbers."""
        found: list[list[int]] = []
        for number, place in enumerate(zip(origins, records, strict=True)):
            if self._left and place == self._last:
                self._left -= 1
                if found:
                    found[-1].append(number)
                continue
            self._last, self._left = place, _elements(place[1]) - 1
            found.append([number])
        return found


def explained_each(
    aside: pa.RecordBatch,
    schema: pa.Schema,
    form: RecordForm,
    repeats: Repeats,
    has_value: Mapping[str, pa.BooleanArray],
) -> pa.RecordBatch:
    """The records of rows that are set aside, each once and with its reason explained; of the last of many it stays.

    Args:
        aside: of the rows record (binary), origin and reason (string).
        schema: the tuple's columns.
        form: of the records.
        repeats: of the task.
        has_value: of each column, in which rows the reader has found a value; its names are those of the schema.

    Returns:
        Rows like those of `aside`.
    """
    records, origins, reasons = (aside.column(name).to_pylist() for name in ("record", "origin", "reason"))
    groups = repeats.groups(records, origins)
    known = {name: values.to_pylist() for name, values in has_value.items()}
    told = []
    for count, group in enumerate(groups):
        first = group[0]
        reason = reasons[first]
        if count < _MOST_EXPLAINED and reason in (*JSON_REASONS, *CSV_REASONS):
            own = _without_partitions(form, schema, origins[first])
            rows = [frozenset(name for name, values in known.items() if values[row]) for row in group]
            reason = explained(reason, records[first] or b"", schema, own, rows if known else ())
        told.append(reason)
    kept = aside.take(pa.array([group[0] for group in groups], pa.int64()))
    return kept.set_column(kept.schema.get_field_index("reason"), "reason", pa.array(told, pa.string()))


def _without_partitions(form: RecordForm, schema: pa.Schema, origin: str | None) -> RecordForm:
    """The form of a file whose folders give it columns."""
    given = {name.lower() for name in _PARTITION.findall(origin or "")}
    if not given:
        return form
    names = [name for name in form.columns or schema.names if name.lower() not in given]
    return replace(form, columns=tuple(names))


def _elements(record: bytes | None) -> int:
    """How many rows Spark makes of a record."""
    if record is None or not record.lstrip().startswith(b"["):
        return 1
    try:
        value = json.loads(record)
    except (ValueError, RecursionError):
        return 1
    # it makes one of the whole where an element is no object
    return max(1, len(value)) if all(isinstance(each, dict) for each in value) else 1


class _Pairs(dict[str, Any]):
    """A JSON object that knows all values of a name that stands in it several times."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.every: dict[str, list[Any]] = {}
        for name, value in pairs:
            self.every.setdefault(name, []).append(value)


def _json(text: str, wanted: Sequence[pa.Field], rows: Sequence[Found]) -> str | None:
    try:
        value = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        # Spark takes single quotes too, and more where it is told to
        return None if "'" in text or any(rows) else "not a JSON value"
    elements = value if isinstance(value, list) and value else [value]
    for number, element in enumerate(elements):
        if not isinstance(element, _Pairs):
            return "not a JSON object"
        found = _of_object(element, wanted, rows[number] if number < len(rows) else None)
        if found:
            return found
    return None


def _of_object(element: _Pairs, wanted: Sequence[pa.Field], found: Found | None) -> str | None:
    """The column at which one object failed: one that does not fit for sure, else one whose value the reader has not found."""
    for field in wanted:
        for value in element.every.get(field.name, ()):
            if value is not None and (misfit := _misfit(value, field.type, field.name)):
                return misfit
    given = [field for field in wanted if element.get(field.name) is not None]
    missing = [field for field in given if found is not None and field.name not in found]
    # a reader that has found nothing at all does not say which it was
    if missing and (len(missing) < len(given) or len(given) == 1):
        return f"{missing[0].name} is no {spark_name(missing[0].type)}"
    twice = [field.name for field in wanted if len(element.every.get(field.name, ())) > 1]
    return f"{twice[0]} appears twice" if twice else None


def _csv(text: str, wanted: Sequence[pa.Field], form: RecordForm, rows: Sequence[Found]) -> str | None:
    fields = form.fields(text)
    if fields is None:
        return None
    if len(fields) != len(wanted):
        number = (
            f"more than {_MOST_FIELDS:,} fields" if len(fields) > _MOST_FIELDS else _counted(fields, "field")
        )
        return f"{number}, {_counted(wanted, 'column')}"
    for value, field in zip(fields, wanted, strict=True):
        if rows and value and value != form.null and field.name not in rows[0]:
            return f"{field.name} is no {spark_name(field.type)}"
    return None


def _counted(things: Sequence[object], name: str) -> str:
    return f"{len(things):,} {name}{'' if len(things) == 1 else 's'}"


def _misfit(value: Any, kind: pa.DataType, name: str) -> str | None:
    """The innermost part of a JSON value that Spark surely does not take for its type, None where there is none."""
    if value is None:
        return None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parts = (
            [(each, kind.value_type, f"{name}.element") for each in value]
            if isinstance(value, list)
            else None
        )
    elif pa.types.is_struct(kind):
        parts = (
            [(value.get(each.name), each.type, f"{name}.{each.name}") for each in kind]
            if isinstance(value, dict)
            else None
        )
    elif pa.types.is_map(kind):
        parts = (
            [(each, kind.item_type, f"{name}.value") for each in value.values()]
            if isinstance(value, dict)
            else None
        )
    else:
        parts = [] if _fits(value, kind) else None
    if parts is None:
        return f"{name} is no {spark_name(kind)}"
    return next((found for part in parts if (found := _misfit(*part))), None)


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Whether Spark may take a JSON value for a type without parts."""
    if pa.types.is_integer(kind):
        return isinstance(value, int) and not isinstance(value, bool) and _in_range(value, kind)
    if pa.types.is_floating(kind):
        return (isinstance(value, int | float) and not isinstance(value, bool)) or value in _NOT_FINITE
    if pa.types.is_decimal(kind):
        if isinstance(value, int | float) and not isinstance(value, bool):
            most: Decimal = Decimal(10) ** (kind.precision - kind.scale)
            number = Decimal(str(value))
            return number.is_finite() and abs(number) < most
        return isinstance(value, str)
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        if isinstance(value, str):
            return any(letter.isdigit() for letter in value)
        return isinstance(value, int) and not isinstance(value, bool)
    return True


_NOT_FINITE = ("NaN", "Infinity", "-Infinity", "+Infinity", "INF", "-INF", "+INF")


def _in_range(value: int, kind: pa.DataType) -> bool:
    most: int = 1 << (kind.bit_width - 1)
    return -most <= value < most
