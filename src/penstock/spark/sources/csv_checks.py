"""What looks wrong in a table beside its CSV files."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from penstock.spark.sources.sampled_files import lines, listed, open_text, stored_columns
from penstock.sql.script.script import CreateTable

#: separators that are tried where one field is a whole line
_SEPARATORS = (",", ";", "\t", "|")


def csv_warnings(table: CreateTable, file: Path, options: Mapping[str, str]) -> list[str]:
    """Warnings of columns that a CSV file has not got, or has in another order or number.

    Args:
        table: the declaration.
        file: one of its files.
        options: plain names to values.
    """
    declared = [column.name for column in stored_columns(table, [file])]
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
    return _order(file, header, declared) if header else []


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
        f"{_counted(len(declared), 'column')}: such records will be set aside"
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
            f"the columns are declared in another order than the header of {file} has them. CSV is read by position, "
            f"so {_swapped(declared, given, header)}; declare them in the header's order: {shown}"
        ]
    missing = [name for name in declared if name.lower() not in given]
    return [
        f"the header of {file} has no {listed(missing)}; CSV is read by position, so "
        f"{_swapped(declared, given, header)}. The header: {shown}"
    ]


def _swapped(declared: list[str], given: list[str], header: list[str]) -> str:
    """What the first column that is not its namesake holds."""
    for place, name in enumerate(declared):
        if place >= len(given):
            return f"{name} is NULL"
        if name.lower() != given[place]:
            return f"{name} holds what the header calls {header[place]}"
    return "the names differ"
