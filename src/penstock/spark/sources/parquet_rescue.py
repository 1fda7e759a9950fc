"""Parquet files that stop Spark's reader: their row groups that can be read all the same."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from penstock.spark.tasks.parquet_files import (
    READ_ERRORS,
    RowGroupReader,
    UnreadableError,
    check_folder,
    is_fault_of_file,
    is_rebased,
    open_parquet,
    reason_of,
    row_groups,
    stamp_of,
)
from penstock.spark.tasks.worker import SetAside

#: how the reason of a whole file begins
UNREADABLE = "unreadable Parquet file"
#: what Spark says of a column whose type it cannot turn into the declared one
_OTHER_TYPE = re.compile(r"SchemaColumnConvertNotSupportedException: column: \[([^\],]+)\]")


def in_types(path: str, reason: str, schema: StructType) -> str:
    """Why Spark cannot read a file, by its column and both types where that is the reason.

    Args:
        path: the file's URI.
        reason: as Spark says it.
        schema: the stream's columns.
    """
    column = _OTHER_TYPE.search(reason)
    name = column.group(1) if column else None
    try:
        stored = {field.name: field.type for field in open_parquet(path).schema_arrow} if name else {}
    except READ_ERRORS:
        return reason
    if name not in stored or name not in schema.fieldNames():
        return reason
    kind, wanted = stored[name], schema[name].dataType.simpleString().upper()
    remedy = ""
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        remedy = "; write it in microseconds (pandas: to_parquet(..., coerce_timestamps='us'))"
    return f"column {name} is stored as {kind}, which Spark does not read as {wanted}{remedy}"


def rescue(path: str, reason: str, columns: Sequence[str], folder: Path) -> tuple[str | None, list[SetAside]]:
    """Copies the row groups of a file that pyarrow can read.

    Args:
        path: the file's URI.
        reason: why Spark cannot read it.
        columns: the stream's columns; the file's others are left out.
        folder: for the copy.

    Returns:
        The copy, or None where no row group can be read, and what is set aside.

    Raises:
        OSError, MemoryError: not the file is at fault, or its folder does not answer.
    """
    check_folder(path)
    whole = f"{UNREADABLE}: {reason}"
    try:
        stamp, file = stamp_of(path), open_parquet(path)
    except READ_ERRORS as error:
        if not is_fault_of_file(error):
            raise
        return None, [SetAside(path, None, None, whole)]
    groups = row_groups(path, stamp, file.metadata)
    if is_rebased(file, others_as_they_are=True) or any(
        column.physical_type == "INT96" for column in _columns(file)
    ):
        # a copy might shift its times
        return None, [SetAside(path, None, file.metadata.num_rows, whole)]
    wanted = {name.lower() for name in columns}
    stored = file.schema_arrow
    names = [field.name for field in stored if field.name.lower() in wanted]
    aside: list[SetAside] = []
    copy = folder / f"rescued-{uuid.uuid4().hex}.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([stored.field(name) for name in names], file.metadata.metadata)
    with pq.ParquetWriter(copy, schema, store_schema=False) as writer:
        copied = 0
        for group in groups:
            try:
                table = RowGroupReader(group).table(names)
            except UnreadableError as error:
                told = reason_of(group, names)
                if told is None:
                    raise OSError(f"{path}: row group {group.number}: {error}") from error
                aside.append(SetAside(path, group.number, group.rows, f"unreadable row group: {told}"))
            else:
                writer.write_table(table.replace_schema_metadata(schema.metadata))
                copied += 1
    return (str(copy) if copied else None), aside


def _columns(file: pq.ParquetFile) -> list[pq.ColumnSchema]:
    return [file.schema.column(number) for number in range(len(file.schema))]
