"""What looks wrong in a table beside its JSON files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.operators.ingest.record_fields import FieldOf
from penstock.spark.sources.event_formats import Reads, time_warnings
from penstock.spark.sources.sampled_files import CHARACTERS, absent, lines, listed, open_text, stored_columns
from penstock.spark.sources.stored_fields import record_field
from penstock.sql.script.statements import CreateTable

#: numbers beyond the year 5138, if they are seconds, are none
_MOST_SECONDS = 100_000_000_000
#: digits before the point of a moment of today, in each unit
_UNITS = ((14, "millis"), (17, "micros"), (99, "nanos"))
_SECONDS_A_YEAR = 31_556_952


def json_warnings(
    table: CreateTable, files: list[Path], options: Mapping[str, str], reads: Reads | None
) -> list[str]:
    """Warnings of columns that no record has, and of numbers that Spark reads as moments far from what they mean.

    Args:
        table: the declaration.
        files: some of its files.
        options: plain names to values.
        reads: see `table_warnings`.
    """
    records = list(_records(files, options))
    names = {name for record in records for name in record}
    columns = stored_columns(table, files)
    places = {each.name: record_field(each, options) for each in columns}
    found = absent(
        [each for each in columns if places[each.name].path == (each.name,)], names, "the sampled records"
    )
    found += _absent_paths([each for each in places.values() if each.path != (each.column,)], records)
    for column in columns:
        if not column.type_sql.upper().startswith("TIMESTAMP"):
            continue
        numbers = (_value(record, places[column.name]) for record in records)
        far = next((each for each in numbers if _is_far(each)), None)
        if far is not None:
            found.append(_misread(column.name, far, options))
    place = places.get(options.get("eventtime", ""))
    times = [] if place is None else [_value(record, place) for record in records]
    return [*found, *time_warnings(files[0], times, options, reads)] if files else found


def _absent_paths(places: Iterable[FieldOf], records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A warning of paths that no record has."""
    missing = [
        f"$.{'.'.join(each.path)}"
        for each in places
        if records and not any(_has(record, path) for record in records for path in each.paths)
    ]
    return [f"the sampled records have no {listed(missing)}, which will be NULL"] if missing else []


def _has(record: Mapping[str, Any], path: Sequence[str]) -> bool:
    inner = _at(record, path[:-1])
    return isinstance(inner, dict) and path[-1] in inner


def _value(record: Mapping[str, Any], place: FieldOf) -> Any:
    """The value of a column in a record."""
    has_object = isinstance(_at(record, place.path[:-1]), dict)
    return _at(record, place.path if has_object or not place.otherwise else place.otherwise)


def _at(record: Mapping[str, Any], path: Sequence[str]) -> Any:
    found: Any = record
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _is_far(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) > _MOST_SECONDS


def _misread(name: str, number: float, options: Mapping[str, str]) -> str:
    digits = len(str(abs(int(number))))
    unit = next(unit for most, unit in _UNITS if digits < most)
    way = (
        f"add the option event_time_format '{unit}'"
        if options.get("eventtime") == name
        else f"write timestamp_{unit}({name}) in queries"
        if unit != "nanos"
        else f"write timestamp_micros({name} div 1000) in queries"
    )
    year = 1970 + int(number) // _SECONDS_A_YEAR
    return (
        f"{name} has numbers such as {number}, which Spark reads as seconds, in the year {year}. "
        f"Declare {name} BIGINT and {way}"
    )


def _records(files: list[Path], options: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    whole = options.get("multiline", "false").lower() == "true"
    for file in files:
        with suppress(Exception), open_text(file, options.get("encoding", "utf-8-sig")) as text:
            for record in [text.read(CHARACTERS)] if whole else lines(text):
                yield from _objects(record)


def _objects(record: str) -> Iterator[dict[str, Any]]:
    try:
        value = json.loads(record)
    except (ValueError, RecursionError):
        return
    yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict))
