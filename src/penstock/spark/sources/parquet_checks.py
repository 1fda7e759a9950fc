"""What looks wrong in a table beside its Parquet files: columns they lack, and types that Spark reads otherwise than is meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.sources.sampled_files import RECORDS, absent, listed, stored_columns
from penstock.sql.script.statements import CreateTable

if TYPE_CHECKING:
    import pyarrow as pa


class Reading(Enum):
    """What Spark makes of a column of a Parquet file that is declared with a type."""

    EXACT = "its values are what was written"
    WRAPPED = "values that do not fit are others without a word, or their file is not read"
    NONE = "its file is not read"


#: other names of SQL types
_NAMES = {
    **{"BYTE": "TINYINT", "SHORT": "SMALLINT", "INTEGER": "INT", "LONG": "BIGINT", "REAL": "FLOAT"},
    **{"DEC": "DECIMAL", "NUMERIC": "DECIMAL", "VARCHAR": "STRING", "CHAR": "STRING"},
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
#: bits of integers
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_OF_INT32 = frozenset({*_BITS, "DOUBLE", "DATE"})
#: digits that a DECIMAL needs before its point for all integers of a stored width
_DIGITS = {32: 10, 64: 20}
#: the one DECIMAL as which unsigned integers are read, and those of 64 bits only
_UNSIGNED = (64, 20, 0)
#: as which types others are read, by the beginning of Arrow's name
_READ_AS = {
    "float": {"FLOAT", "DOUBLE"},
    "double": {"DOUBLE"},
    **dict.fromkeys(("string", "large_string", "binary", "large_binary"), frozenset({"STRING", "BINARY"})),
    **dict.fromkeys(("fixed_size_binary", "halffloat"), frozenset({"BINARY"})),
    "bool": {"BOOLEAN"},
    "timestamp": {"TIMESTAMP", "TIMESTAMP_NTZ", "BIGINT"},
    "time32": _OF_INT32,
    "time64": {"BIGINT"},
    "date32": _OF_INT32 | {"TIMESTAMP_NTZ"},
}
_NANOSECONDS = (
    "Spark does not read timestamps in nanoseconds. Write microseconds "
    "(pandas: to_parquet(path, coerce_timestamps='us', allow_truncated_timestamps=True)), or declare {0} BIGINT"
    " and, if it is the event time, add the option event_time_format 'nanos'"
)


def parquet_warnings(table: CreateTable, files: list[Path]) -> list[str]:
    """Warnings of columns that the files lack, and of those whose type is not read as the declared one.

    Args:
        table: the declaration.
        files: some of its files.
    """
    stored = list(_stored(files))
    columns = stored_columns(table, files)
    found = absent(columns, {name for name, _ in stored}, "the sampled files", folded=True)
    types: dict[str, dict[str, pa.DataType]] = {}
    for name, kind in stored:
        types.setdefault(name.lower(), {})[str(kind)] = kind
    told: dict[Reading, list[str]] = {Reading.WRAPPED: [], Reading.NONE: []}
    nanoseconds: list[str] = []
    for column in columns:
        for kind in types.get(column.name.lower(), {}).values():
            reading = reading_of(kind, column.type_sql)
            if reading in told:
                told[reading].append(f"{column.name} as {kind} (declared {column.type_sql})")
                if _is_nanoseconds(kind) and column.name not in nanoseconds:
                    nanoseconds.append(column.name)
    if told[Reading.NONE]:
        way = f". {_NANOSECONDS.format(listed(nanoseconds))}" if nanoseconds else ""
        found.append(
            f"the sampled files have {listed(told[Reading.NONE])}, which Spark cannot read: "
            f"Penstock will set their rows aside{way}"
        )
    if told[Reading.WRAPPED]:
        found.append(
            f"the sampled files have {listed(told[Reading.WRAPPED])}: Spark reads values that do not fit as other "
            "numbers, or Penstock sets their rows aside. Declare a wider type"
        )
    return found


def parquet_event_times(files: list[Path], column: str) -> list[Any]:
    """The first values of a column of Parquet files that has the event time."""
    import pyarrow.parquet as pq

    for file in files:
        source = pq.ParquetFile(file)
        if column in source.schema_arrow.names and source.metadata.num_row_groups:
            (values,) = source.read_row_group(0, columns=[column]).slice(0, RECORDS).columns
            return list(values.to_pylist())
    return []


def nanosecond_columns(files: list[Path]) -> list[str]:
    """The columns of Parquet files that are timestamps in nanoseconds."""
    return list(dict.fromkeys(name for name, kind in _stored(files) if _is_nanoseconds(kind)))


def nanoseconds_refused(columns: list[str]) -> str:
    """Why files with such columns are refused, and what to do."""
    return f"{listed(columns)} of its Parquet files is timestamp[ns]. {_NANOSECONDS.format(listed(columns))}"


def reading_of(kind: pa.DataType, declared: str) -> Reading | None:
    """What Spark makes of values of a type where another is declared; None where that is not known."""
    import pyarrow as pa

    name, *numbers = re.findall(r"\w+", declared.upper())
    name = _NAMES.get(name, name)
    if pa.types.is_dictionary(kind):
        return reading_of(kind.value_type, declared)
    if pa.types.is_integer(kind):
        return _integer(kind, name, [int(number) for number in numbers if number.isdecimal()])
    if pa.types.is_decimal(kind):
        return _decimal(kind, name, [int(number) for number in numbers if number.isdecimal()])
    if _is_nanoseconds(kind):
        return Reading.EXACT if name == "BIGINT" else Reading.NONE
    read_as = _READ_AS.get(str(kind).split("[")[0])
    return None if read_as is None else Reading.EXACT if name in read_as else Reading.NONE


def _integer(kind: pa.DataType, name: str, numbers: list[int]) -> Reading:
    is_unsigned = str(kind).startswith("u")
    width = max(32, kind.bit_width)
    if name == "DECIMAL":
        precision, scale = (*numbers, *((10, 0)[len(numbers) :]))
        fits = (
            precision - scale >= _DIGITS[width]
            if not is_unsigned
            else (kind.bit_width, precision, scale) == _UNSIGNED
        )
        return Reading.EXACT if fits else Reading.NONE
    if kind.bit_width == 64:
        fitting, read = (set() if is_unsigned else {"BIGINT"}), {"BIGINT"}
    else:
        needed = kind.bit_width + is_unsigned
        fitting = {each for each, bits in _BITS.items() if bits >= needed} | {"DOUBLE", "DATE"}
        read = set(_OF_INT32)
        if needed > 32:
            fitting, read = {"BIGINT"}, {*_BITS, "DOUBLE"}
    return Reading.EXACT if name in fitting else Reading.WRAPPED if name in read else Reading.NONE


def _decimal(kind: pa.DataType, name: str, numbers: list[int]) -> Reading:
    if name != "DECIMAL":
        return Reading.EXACT if name == "BINARY" else Reading.NONE
    precision, scale = (*numbers, *((10, 0)[len(numbers) :]))
    fits = scale >= kind.scale and precision - scale >= kind.precision - kind.scale
    return Reading.EXACT if fits else Reading.NONE


def _is_nanoseconds(kind: pa.DataType) -> bool:
    return str(kind).startswith("timestamp[ns")


def _stored(files: list[Path]) -> Iterator[tuple[str, pa.DataType]]:
    """The columns of all files with their types; of files that are none nothing."""
    import pyarrow.parquet as pq

    for file in files:
        with suppress(Exception):
            yield from [(each.name, each.type) for each in pq.read_schema(file)]
