"""What looks wrong in a table beside its JSON files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.spark.sources.event_formats import Reads, time_warnings
from penstock.spark.sources.sampled_files import CHARACTERS, absent, lines, open_text, stored_columns
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
    found = absent(columns, names, "the sampled records")
    for column in columns:
        if not column.type_sql.upper().startswith("TIMESTAMP"):
            continue
        numbers = (record.get(column.name) for record in records)
        far = next((each for each in numbers if _is_far(each)), None)
        if far is not None:
            found.append(_misread(column.name, far, options))
    times = [record.get(options.get("eventtime", "")) for record in records]
    return [*found, *time_warnings(files[0], times, options, reads)] if files else found


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
