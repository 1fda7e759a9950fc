"""What looks wrong in a table beside its CSV files."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from penstock.spark.sources.event_formats import Reads, time_warnings
from penstock.spark.sources.sampled_files import lines, listed, open_text, stored_columns
from penstock.sql.script.statements import Column, CreateTable

#: a number with a decimal comma, and the types of columns that are no place for one
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
_NUMBERS = ("DOUBLE", "FLOAT", "REAL", "DECIMAL", "DEC", "NUMERIC", "INT", "BIGINT", "SMALLINT", "TINYINT")
#: separators that are tried where one field is a whole line
_SEPARATORS = (",", ";", "\t", "|")


def csv_warnings(
    table: CreateTable, file: Path, options: Mapping[str, str], reads: Reads | None
) -> list[str]:
    """Warnings of columns that a CSV file has not got, or has in another order or number.

    Args:
        table: the declaration.
        file: one of its files.
        options: plain names to values.
        reads: see `table_warnings`.
    """
    columns = stored_columns(table, [file])
    declared = [column.name for column in columns]
    separator, quote = options.get("sep", options.get("delimiter", ",")), options.get("quote", '"')
    # Spark reads what Python writes as an escape
    separator = {"\\t": "\t"}.get(separator, separator)
    if len(separator) != 1 or len(quote) > 1:
        return []
    with open_text(file, options.get("encoding", options.get("charset", "utf-8-sig"))) as text:
        found = [line for line in lines(text) if not _is_skipped(line, options.get("comment"))]
    records = _split(found, separator, quote, options.get("escape", "\\"))
    has_header = options.get("header", "false").lower() == "true"
    header = [name.strip() for name in records[0]] if has_header and records else []
    wrong = _fields(file, records[1:] or records if has_header else records, declared, separator, found)
    if wrong:
        return [wrong]
    rows = records[1:] if has_header else records
    values = {
        column: [row[place].strip() for row in rows if place < len(row)]
        for place, column in enumerate(columns)
    }
    times = next((texts for column, texts in values.items() if column.name == options.get("eventtime")), [])
    found_in = [*_decimal_commas(file, values), *time_warnings(file, times, options, reads)]
    return [*_order(file, header, declared), *found_in] if header else found_in


def _decimal_commas(file: Path, values: Mapping[Column, Sequence[str]]) -> list[str]:
    """Warnings of numbers with a decimal comma, which Spark does not read."""
    found = []
    for column, texts in values.items():
        example = next((text for text in texts if _DECIMAL_COMMA.fullmatch(text)), None)
        if example is not None and column.type_sql.upper().startswith(_NUMBERS):
            found.append(
                f"column {column.name} of {file} has decimal commas, such as {example}; Spark does not read them as "
                f"{column.type_sql}, and Penstock will set such records aside. Declare {column.name} STRING and convert it in "
                f"queries: try_cast(replace({column.name}, ',', '.') AS DOUBLE)"
            )
    return found


def _is_skipped(line: str, comment: str | None) -> bool:
    return not line.strip() or bool(comment and line.startswith(comment))


def _split(found: list[str], separator: str, quote: str, escape: str) -> list[list[str]]:
    """The fields of records, as far as Spark splits them so too."""
    plain = [line for line in found if not escape or escape == quote or escape not in line]
    if not quote:
        return list(csv.reader(plain, delimiter=separator, quoting=csv.QUOTE_NONE))
    return list(csv.reader(plain, delimiter=separator, quotechar=quote))


def _fields(
    file: Path, records: list[list[str]], declared: list[str], separator: str, found: list[str]
) -> str | None:
    """What is said where most records have another number of fields than the table has columns."""
    if not records:
        return None
    fields, often = Counter(map(len, records)).most_common(1)[0]
    if fields == len(declared) or often * 2 <= len(records):
        return None
    text = (
        f"the records of {file} have {_counted(fields, 'field')}, and the table declares "
        f"{_counted(len(declared), 'column')}: Penstock will set such records aside"
    )
    for other in _SEPARATORS if fields == 1 else ():
        if all(len(record) == len(declared) for record in islice(csv.reader(found, delimiter=other), 20)):
            written = "\\t" if other == "\t" else other
            return f"{text}. They are separated by '{written}', not by '{separator}': add the option sep '{written}'"
    if fields == len(declared) + 1 and all(not record[-1] for record in records if len(record) == fields):
        return f"{text}. The last field is empty; declare a column for it, such as rest STRING"
    return f"{text}. Declare the columns that the file has"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _order(file: Path, header: list[str], declared: list[str]) -> list[str]:
    """What is said of a header with other names; a field without a name may be any column."""
    given = [
        declared[place].lower() if not name and place < len(declared) else name.lower()
        for place, name in enumerate(header)
    ]
    if given[: len(declared)] == [name.lower() for name in declared]:
        return []
    shown = ", ".join(name or "''" for name in header)
    if all(name.lower() in given for name in declared):
        return [
            f"the declared columns and the header of {file} differ in order. Spark reads CSV by position, "
            f"so {_swapped(declared, given, header)}. Declare the columns in the order of the header: {shown}"
        ]
    missing = [name for name in declared if name.lower() not in given]
    return [
        f"the header of {file} has no {listed(missing)}; Spark reads CSV by position, so "
        f"{_swapped(declared, given, header)}. The header: {shown}"
    ]


def _swapped(declared: list[str], given: list[str], header: list[str]) -> str:
    """What the first column that is not its namesake holds."""
    for place, name in enumerate(declared):
        if place >= len(given):
            return f"{name} is NULL"
        if name.lower() != given[place]:
            return f"{name} gets the values of {header[place]}"
    return "the names differ"
