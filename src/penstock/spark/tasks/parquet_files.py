"""Parquet files as the driver plans them and workers read them: row groups that are whole, or the reason why not.

Files are read by plain reads, not mapped into memory: one that is cut off while it is mapped ends the process.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from penstock.operators.ingest.event_times import EpochTimes
from penstock.spark.recovery.messages import first_line
from penstock.spark.sessions.file_systems import object_address
from penstock.stores.object_reader import CHANGED, ObjectReader, ObjectVersion, version_of

#: which Spark wrote a file; those before the other version had the Julian calendar before 1582
_VERSION, _GREGORIAN_SINCE = b"org.apache.spark.version", b"3.0.0"
#: marks of files of later versions whose old dates and timestamps Spark shifts between calendars
_REBASED = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
#: bytes of one read: a column chunk in one piece costs more in new memory than it saves
_READ_BYTES = 1 << 18
#: what opening and reading a Parquet file raises
READ_ERRORS = (OSError, pa.ArrowException)
#: values that take more bytes of a row group each are long and distinct: no dictionary is made of them
_LONG_BYTES = 64
_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)
#: waits before a file that its file system did not give is tried again
_WAITS_SECONDS = (0.0, 0.2, 1.0)
#: what is no file; whoever opens some of it waits until somebody writes to it
_OTHER_KINDS = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFDIR: "folder",
}
#: a file that is written to for longer is given up
_MOST_SETTLING_SECONDS = 60.0


class UnreadableError(Exception):
    """Columns of a row group could not be read.

    Args:
        columns: the columns that were wanted.
    """

    def __init__(self, message: str, columns: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.columns = list(columns)


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells two contents of a file apart.

    Attributes:
        size: bytes.
        modified_ns: time of the last modification, nanoseconds since the epoch.
        etag: of an object in a store: its own mark of this content.
    """

    size: int
    modified_ns: int
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a file.

    Attributes:
        path: the URI Spark gave.
        number: its number in the file.
        rows: rows in it.
        stamp: of the file when the batch began; None where the file system is neither a local one nor an object store.
        step: the arrival step of its rows.
        times: the event time, where it is stored as numbers.
        missing: columns of the stream that the file does not have: NULL.
        store: options of the object store that has the file, see `StoreAddress`.
    """

    path: str
    number: int
    rows: int
    stamp: Stamp | None
    step: int = 0
    times: EpochTimes | None = None
    missing: tuple[pa.Field, ...] = ()
    store: tuple[tuple[str, str], ...] = ()


def local_path(uri: str) -> str | None:
    """The path of a file on a local or mounted file system, or None where it is elsewhere."""
    # Spark's paths are not escaped: %, # and ? are letters of a name
    scheme, colon, rest = uri.partition(":")
    if not colon or "/" in scheme:
        return uri
    return re.sub("^//+", "/", rest) if scheme == "file" else None


def other_kind(uri: str) -> str | None:
    """What a local name stands for if it is no file: FIFO, socket, device or folder. None of a file, and of what is gone or elsewhere."""
    path = local_path(uri)
    try:
        mode = Path(path).stat().st_mode if path is not None else stat.S_IFREG
    except OSError:
        return None
    return _OTHER_KINDS.get(stat.S_IFMT(mode))


def stamp_of(uri: str) -> Stamp | None:
    """The stamp of a file, or None where its file system is neither a local one nor an object store.

    Raises:
        OSError: it is gone, or its file system does not answer.
        ConnectionFailedError: wrong credentials, no permission.
    """
    path = local_path(uri)
    if path is None:
        address = object_address(uri)
        if address is None:
            return None
        version = version_of(address)
        return Stamp(version.size, version.modified_ns, version.etag)
    found = Path(path).stat()
    return Stamp(found.st_size, found.st_mtime_ns)


def is_fault_of_file(error: BaseException | None) -> bool:
    """Whether an error is the file's own: it is gone, or its bytes cannot be read.

    All others (a file that may not be read, too many open files, a file system or a memory that fails) say nothing of
    it: the same file may be read later.
    """
    if isinstance(error, MemoryError):
        return False
    # errors of the system have a number, those of the content have none
    return not isinstance(error, OSError) or error.errno in (None, errno.ENOENT)


def open_parquet(
    uri: str,
    dictionaries: Sequence[str] = (),
    stamp: Stamp | None = None,
    store: Iterable[tuple[str, str]] = (),
) -> pq.ParquetFile:
    """Opens a Parquet file by the URI Spark gave; pages that have a checksum are compared with it.

    Args:
        uri: the URI.
        dictionaries: columns to read as dictionaries.
        stamp: of an object: the version to read; None: the one that it has now.
        store: options of the object store that has it; those of the environment without.

    Raises:
        OSError, pyarrow.ArrowException: it cannot be opened or is no Parquet file.
    """
    local = local_path(uri)
    if (kind := other_kind(uri)) is not None:
        raise pa.ArrowInvalid(f"{local} is a {kind}, not a file")
    if local is not None:
        return pq.ParquetFile(
            local,
            pre_buffer=False,
            buffer_size=_READ_BYTES,
            page_checksum_verification=True,
            read_dictionary=dictionaries,
        )
    address = object_address(uri, dict(store))
    if address is None:
        filesystem, path = pafs.FileSystem.from_uri(uri)
        return pq.ParquetFile(
            path, filesystem=filesystem, page_checksum_verification=True, read_dictionary=dictionaries
        )
    if stamp is None:
        version = version_of(address)
    else:
        version = ObjectVersion(stamp.size, stamp.modified_ns, stamp.etag)
    return pq.ParquetFile(
        pa.PythonFile(ObjectReader(address, version), mode="r"),
        metadata=_footer(uri, version, tuple(store)),
        # neighbouring columns are one request
        pre_buffer=True,
        page_checksum_verification=True,
        read_dictionary=dictionaries,
    )


@lru_cache(maxsize=8)
def _footer(uri: str, version: ObjectVersion, store: tuple[tuple[str, str], ...]) -> pq.FileMetaData:
    """The footer of an object: a task asks for it once, however many of its row groups it reads."""
    address = object_address(uri, dict(store))
    assert address is not None, "it is an object"
    return pq.read_metadata(pa.PythonFile(ObjectReader(address, version), mode="r"))


def readable_in_scan(file: pq.ParquetFile, schema: pa.Schema, *, others_as_they_are: bool = True) -> bool:
    """Whether the scan reads what Spark reads.

    The columns of the stream that the file has are of the stream's types and spelled alike (no widening, no INT96), and
    Spark does not shift its dates and timestamps from the calendar of Spark 2 to today's.

    Args:
        file: the file.
        schema: the stream's columns.
        others_as_they_are: whether Spark takes dates of files that Spark has not written as they are.
    """
    stored = file.schema_arrow
    if any(map(has_moments, schema.types)) and is_rebased(file, others_as_they_are=others_as_they_are):
        return False
    missing = {field.name.lower() for field in missing_columns(file, schema)}
    if missing.intersection(name.lower() for name in stored.names):
        return False
    return all(
        field.name.lower() in missing
        or (stored.get_field_index(field.name) >= 0 and stored.field(field.name).type == field.type)
        for field in schema
    )


def missing_columns(file: pq.ParquetFile, schema: pa.Schema) -> tuple[pa.Field, ...]:
    """The columns of a stream that a file does not have by that name.

    Args:
        file: the file.
        schema: the stream's columns.
    """
    stored = set(file.schema_arrow.names)
    return tuple(field for field in schema if field.name not in stored)


def has_moments(kind: pa.DataType) -> bool:
    """Whether a type holds dates or timestamps."""
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind) or any(map(has_moments, inner))


def is_rebased(file: pq.ParquetFile, *, others_as_they_are: bool) -> bool:
    """Whether Spark shifts the file's old dates and times between calendars.

    As Spark's DataSourceUtils has it, texts of versions compared as texts.
    """
    told = file.metadata.metadata or {}
    version = told.get(_VERSION)
    if version is None:
        return not others_as_they_are
    return version < _GREGORIAN_SINCE or any(key in told for key in _REBASED)


class RowGroupReader:
    """Reads columns of one row group of a file that has not changed since its batch began.

    Args:
        group: the row group.
        dictionaries: columns of text whose distinct values are wanted: read as dictionaries where that is no dearer.

    Raises:
        UnreadableError: the file cannot be opened or has changed; from every method, also where the columns cannot
            be read.
    """

    def __init__(self, group: RowGroup, dictionaries: Sequence[str] = ()) -> None:
        self.group = group
        self._check()
        try:
            self._file = open_parquet(group.path, (), group.stamp, group.store)
            if dictionaries:
                repeating = _repeating(self.metadata, dictionaries)
                self._file = open_parquet(group.path, repeating, group.stamp, group.store)
            rows = self._file.metadata.row_group(group.number).num_rows
        except READ_ERRORS as error:
            raise UnreadableError(first_line(error)) from error
        if rows != group.rows:
            raise UnreadableError(CHANGED)

    @property
    def metadata(self) -> pq.RowGroupMetaData:
        """What the file's footer says of the row group."""
        return self._file.metadata.row_group(self.group.number)

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The row group's rows in batches; its end is reached only where all of them came."""
        rows, times = 0, self.group.times
        try:
            for batch in self._file.iter_batches(
                batch_size=batch_rows,
                row_groups=[self.group.number],
                columns=self._stored(columns),
                use_threads=False,
            ):
                rows += batch.num_rows
                whole = self._completed(batch, columns)
                yield whole if times is None else times.of(whole)
        except READ_ERRORS as error:
            raise UnreadableError(first_line(error), columns) from error
        self._check_rows(rows, columns)

    def ends(self, column: str) -> pa.RecordBatch | None:
        """Two rows with the least and the largest value of a column of moments, by the footer; None where it does not say."""
        schema = self._file.schema_arrow
        number = schema.get_field_index(column)
        if number < 0 or self.group.times is not None or not pa.types.is_timestamp(schema.field(number).type):
            return None
        found = [
            chunk.statistics
            for index in range(self.metadata.num_columns)
            if (chunk := self.metadata.column(index)).path_in_schema == column and chunk.is_stats_set
        ]
        if not found or not found[0].has_min_max:
            return None
        ends = pa.array([found[0].min_raw, found[0].max_raw], pa.int64())
        return pa.record_batch([ends.cast(schema.field(number).type)], names=[column])

    def table(self, columns: Sequence[str]) -> pa.Table:
        """All rows of the row group."""
        try:
            stored = self._stored(columns)
            table = self._file.read_row_group(self.group.number, columns=stored, use_threads=False)
        except READ_ERRORS as error:
            raise UnreadableError(first_line(error), columns) from error
        self._check_rows(table.num_rows, columns)
        table = self._completed(table, columns)
        times = self.group.times
        return table if times is None else pa.Table.from_batches(map(times.of, table.to_batches()))

    def _stored(self, columns: Sequence[str]) -> list[str]:
        """Those that the file has; one of its own where it has none of them, for the number of rows."""
        missing = {field.name for field in self.group.missing}
        return [name for name in columns if name not in missing] or self._file.schema_arrow.names[:1]

    def _completed(self, read: _Rows, columns: Sequence[str]) -> _Rows:
        if not self.group.missing:
            return read
        missing = {field.name: field.type for field in self.group.missing}
        arrays = [
            pa.nulls(read.num_rows, missing[name]) if name in missing else read.column(name)
            for name in columns
        ]
        return type(read).from_arrays(arrays, names=list(columns))

    def _check_rows(self, rows: int, columns: Sequence[str]) -> None:
        if rows != self.group.rows:
            raise UnreadableError(f"{rows:,} rows, but the footer has {self.group.rows:,}", columns)
        self._check()

    def _check(self) -> None:
        if local_path(self.group.path) is None:
            # the reader of an object reads one version of it
            return
        try:
            stamp = stamp_of(self.group.path)
        except OSError as error:
            raise UnreadableError(first_line(error)) from error
        if stamp != self.group.stamp:
            raise UnreadableError(CHANGED)


def reason_of(group: RowGroup, columns: Sequence[str]) -> str | None:
    """Why columns of a row group cannot be read; None where they can be, so that what failed before has passed.

    Raises:
        OSError, MemoryError: not the file is at fault, or its folder does not answer either.
    """
    for wait in _WAITS_SECONDS:
        time.sleep(wait)
        try:
            RowGroupReader(group).table(columns)
            return None
        except UnreadableError as error:
            reason, cause = str(error), error.__cause__
        if not isinstance(cause, MemoryError) and (not isinstance(cause, OSError) or cause.errno is None):
            return reason
    if cause is not None and not is_fault_of_file(cause):
        raise cause
    check_folder(group.path)
    return reason


def check_folder(uri: str) -> None:
    """Makes sure that a file's folder can be listed.

    Raises:
        OSError: it cannot.
    """
    path = local_path(uri)
    if path is not None:
        with os.scandir(Path(path).parent) as entries:
            next(entries, None)


def _repeating(metadata: pq.RowGroupMetaData, columns: Collection[str]) -> list[str]:
    """Those of some columns whose values are short or repeat, by the bytes that the row group has of them."""
    chunks = (metadata.column(number) for number in range(metadata.num_columns))
    return [
        chunk.path_in_schema
        for chunk in chunks
        if chunk.path_in_schema in columns
        and chunk.total_uncompressed_size <= _LONG_BYTES * max(1, chunk.num_values)
    ]


def row_groups(
    path: str, stamp: Stamp | None, metadata: pq.FileMetaData, missing: tuple[pa.Field, ...] = ()
) -> list[RowGroup]:
    """The row groups of a file, in order.

    Args:
        path: the URI Spark gave.
        stamp: of the file.
        metadata: its footer.
        missing: columns of the stream that it does not have.
    """
    return [
        RowGroup(path, number, metadata.row_group(number).num_rows, stamp, missing=missing)
        for number in range(metadata.num_row_groups)
    ]


def open_settled(uri: str, settle_seconds: float) -> tuple[Stamp | None, pq.ParquetFile] | None:
    """Opens a file; one that is no Parquet file and has just been written to is waited for.

    Args:
        uri: the URI Spark gave.
        settle_seconds: how long the file must have been left alone before it is given up.

    Returns:
        The file and the stamp it had before it was opened, or None where it is gone or no Parquet file.

    Raises:
        OSError, MemoryError: not the file is at fault.
    """
    gives_up = time.monotonic() + _MOST_SETTLING_SECONDS
    waits = iter(_WAITS_SECONDS)
    while True:
        stamp = None
        try:
            stamp = stamp_of(uri)
            return stamp, open_parquet(uri, (), stamp)
        except READ_ERRORS as error:
            if not is_fault_of_file(error):
                wait = next(waits, None)
                if wait is None:
                    raise
                time.sleep(wait)
                continue
            age = settle_seconds if stamp is None else time.time() - stamp.modified_ns / 1e9
            if age >= settle_seconds or time.monotonic() > gives_up:
                return None
        time.sleep(min(0.2, settle_seconds))
