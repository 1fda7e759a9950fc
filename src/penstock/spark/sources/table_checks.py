"""What looks wrong in a table beside its files: a sample of them is read without Spark, when the table is declared."""

from __future__ import annotations

import csv
import glob
import gzip
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

from penstock.spark.sources.listing import is_passed_over
from penstock.spark.sources.patterns import is_pattern
from penstock.spark.sources.reader_options import known_options, plain_option
from penstock.sql.script.script import CreateTable

if TYPE_CHECKING:
    import pyarrow as pa

#: files that are looked at, entries of folders among which they are found, records a file, characters of a record
_FILES = 3
_ENTRIES = 1000
_RECORDS = 200
_CHARACTERS = 1 << 20
#: columns that a warning names
_NAMED = 8
#: as which SQL types Spark reads a column of a Parquet file, by Arrow type; others are not judged
_SMALL_INTEGER = {
    "TINYINT",
    "BYTE",
    "SMALLINT",
    "SHORT",
    "INT",
    "INTEGER",
    "BIGINT",
    "LONG",
    "DOUBLE",
    "DATE",
    "DECIMAL",
}
_TEXT = {"STRING", "VARCHAR", "CHAR", "BINARY"}
_READ_AS = {
    **dict.fromkeys(("int8", "int16", "int32"), _SMALL_INTEGER),
    "int64": {"BIGINT", "LONG", "DECIMAL"},
    "float": {"FLOAT", "REAL", "DOUBLE"},
    "double": {"DOUBLE"},
    **dict.fromkeys(("string", "large_string"), _TEXT),
    "bool": {"BOOLEAN"},
    "timestamp": {"TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "BIGINT", "LONG"},
    "date32": _SMALL_INTEGER - {"DECIMAL"} | {"TIMESTAMP_NTZ"},
}


def table_warnings(table: CreateTable) -> list[str]:
    """What is allowed and seldom meant in the declaration of a stream.

    Args:
        table: a declaration whose path exists.

    Returns:
        A text each: columns that no record has, columns in another order than a CSV header's, columns of Parquet files whose type
        cannot be read as the declared one, options that nobody knows. Files that cannot be read are passed over: reading them is the stream's business.
    """
    options = {plain_option(name): value for name, value in table.options.items()}
    found = _unknown_options(table)
    kind = options.get("format", "parquet") if table.source == "replay" else table.source
    if table.columns and "path" in options and kind in ("csv", "json", "parquet"):
        try:
            files = list(islice(_files(options["path"]), _FILES))
            if kind == "csv":
                found += _csv(table, files[:1], options)
            elif kind == "json":
                found += _absent(table, _json_names(files, options), "the records looked at")
            else:
                types = _parquet_types(files)
                found += _absent(table, set(types), "the files looked at", folded=True)
                found += _unreadable(table, types)
        except Exception:  # whatever a file holds, it is the stream's business
            return found
    return found


def _unknown_options(table: CreateTable) -> list[str]:
    if table.source not in ("csv", "json", "parquet", "orc", "text", "kafka", "rate", "replay"):
        return []
    known = known_options(table.source, table.options.get("format"))
    return [
        f"option {name} is known neither to Penstock nor to Spark's reader of {table.source}"
        for name in table.options
        if plain_option(name) not in known and not name.startswith(("kafka.", "spark."))
    ]


def _files(path: str) -> Iterator[Path]:
    """The files of a path, by name where they are few; of another file system none."""
    if "://" in path:
        return
    found = islice(glob.iglob(path), _ENTRIES) if is_pattern(path) else [path]  # noqa: PTH207, may be absolute
    for folder in map(Path, sorted(found)):
        for file in sorted(islice(_below(folder), _ENTRIES)) if folder.is_dir() else [folder]:
            if file.is_file() and file.stat().st_size and not is_passed_over(file.name):
                yield file


def _below(folder: Path) -> Iterator[Path]:
    """All that is in a folder and its folders, in no order, read as it is asked for."""
    folders = [str(folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    folders.append(entry.path)
                yield Path(entry.path)


def _open(file: Path, encoding: str) -> IO[str]:
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding=encoding, newline="")
    return file.open(encoding=encoding, newline="")


def _csv(table: CreateTable, files: list[Path], options: dict[str, str]) -> list[str]:
    if options.get("header", "false").lower() != "true":
        return []
    declared = [column.name for column in table.columns]
    for file in files:
        with _open(file, options.get("encoding", options.get("charset", "utf-8-sig"))) as text:
            first = text.readline(_CHARACTERS)
        quote = options.get("quote", '"') or None
        separator = options.get("sep", options.get("delimiter", ","))
        if len(separator) != 1 or (quote is not None and len(quote) != 1):
            return []
        header = [
            name.strip() for name in next(csv.reader([first], delimiter=separator, quotechar=quote), [])
        ]
        names = [name.lower() for name in header]
        if names[: len(declared)] == [name.lower() for name in declared]:
            continue
        if all(name.lower() in names for name in declared):
            return [
                f"the columns are declared in another order than the header of {file} has them. CSV is read by position, "
                f"so {_swapped(declared, header)}; declare them in the header's order: {', '.join(header)}"
            ]
        missing = [name for name in declared if name.lower() not in names]
        return [
            f"the header of {file} has no {_listed(missing)}; CSV is read by position, so "
            f"{_swapped(declared, header)}. The header: {', '.join(header)}"
        ]
    return []


def _swapped(declared: list[str], header: list[str]) -> str:
    """What the first column that is not its namesake holds."""
    for place, name in enumerate(declared):
        if place >= len(header):
            return f"{name} is NULL"
        if name.lower() != header[place].lower():
            return f"{name} holds what the header calls {header[place]}"
    return "the names differ"


def _json_names(files: list[Path], options: dict[str, str]) -> set[str]:
    names: set[str] = set()
    whole = options.get("multiline", "false").lower() == "true"
    for file in files:
        with suppress(Exception), _open(file, options.get("encoding", "utf-8-sig")) as text:
            for record in [text.read(_CHARACTERS)] if whole else _lines(text):
                names |= _keys(record)
    return names


def _lines(text: IO[str]) -> Iterator[str]:
    """The first records that are lines, of long ones the beginning."""
    return islice(iter(lambda: text.readline(_CHARACTERS), ""), _RECORDS)


def _keys(record: str) -> set[str]:
    try:
        value = json.loads(record)
    except (ValueError, RecursionError):
        return set()
    values = value if isinstance(value, list) else [value]
    return {key for each in values if isinstance(each, dict) for key in each}


def _parquet_types(files: list[Path]) -> dict[str, pa.DataType]:
    """The columns of some files; of one that has several types the first."""
    import pyarrow.parquet as pq

    types: dict[str, pa.DataType] = {}
    for file in files:
        with suppress(Exception):
            types = {each.name: each.type for each in pq.read_schema(file)} | types
    return types


def _unreadable(table: CreateTable, types: dict[str, pa.DataType]) -> list[str]:
    """Columns whose type in the files cannot be read as the declared one."""
    known = {name.lower(): str(own) for name, own in types.items()}
    wrong = []
    for column in table.columns:
        own = known.get(column.name.lower(), "")
        read_as = _READ_AS.get(own.split("[")[0])
        declared = column.type_sql.upper().replace("(", " ").split()[0]
        if read_as is not None and declared not in read_as:
            wrong.append(f"{column.name} as {own} (declared {column.type_sql})")
    if not wrong:
        return []
    return [
        f"the files looked at have {_listed(wrong)}, which Spark does not read so: their rows will be set aside unread"
    ]


def _absent(table: CreateTable, names: set[str], where: str, *, folded: bool = False) -> list[str]:
    """Declared columns that are not among the names of a sample; no sample, no word."""
    if not names:
        return []
    known = {name.lower() for name in names} if folded else names
    missing = [
        column.name
        for column in table.columns
        if (column.name.lower() if folded else column.name) not in known
    ]
    if not missing:
        return []
    slips = {
        name: get_close_matches(name.lower(), {each.lower(): each for each in names}, 1) for name in missing
    }
    meant = {name: near[0] for name, near in slips.items() if near}
    hint = (
        "; did you mean " + ", ".join(_original(names, near) for near in meant.values()) + "?"
        if meant
        else ""
    )
    return [
        f"{where} have no {_listed(missing)}, which will be NULL{hint} They have: {_listed(sorted(names))}"
    ]


def _original(names: Iterable[str], lower: str) -> str:
    return next(name for name in names if name.lower() == lower)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
