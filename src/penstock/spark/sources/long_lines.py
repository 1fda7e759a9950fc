"""Lines of text files that are longer than a record may be: found by a few reads of a file, and kept from Spark's reader.

Spark's reader holds a line whole, several times over: one of 100 MB ends a JVM of 1 GB. Hadoop's reader passes over
longer ones than `line.maxlength` without a word, so they have to be known before.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pyspark.sql import SparkSession

from penstock.monitor.figures import counted
from penstock.spark.tasks.parquet_files import local_path, other_kind

#: why a line is set aside
TOO_LARGE = "record too large"
#: what ends a line by default: each of these, or both as a pair
ANY_END = b"\r\n"
#: bytes that end a line at the most
_END_BYTES = 2
#: bytes of one read, and those of a long line that the quarantine keeps
_BLOCK_BYTES = 1 << 16
_KEPT_BYTES = 1 << 10
#: lines of so many bytes or more, their end included, are passed over; consumed whole only where no split ends within them
_MAX_LENGTH = "mapreduce.input.linerecordreader.line.maxlength"
_ONE_SPLIT_A_FILE = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
_ANY_BYTES = str(1 << 50)
#: files whose bytes are not their lines'
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate", ".xz")


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line that is longer than a record may be.

    Attributes:
        path: the file's URI.
        line: its number, from 1.
        size: bytes, without those that end it.
        beginning: its first bytes.
    """

    path: str
    line: int
    size: int
    beginning: bytes

    @property
    def origin(self) -> str:
        """The place and the size, as the quarantine says them."""
        return f"{self.path}:{self.line} ({counted(self.size, 'byte')})"


def line_ends(kind: str, options: Mapping[str, str]) -> bytes:
    """The bytes each of which ends a record for a reader; none where records are no lines, or end with several bytes.

    Args:
        kind: the format.
        options: of the table, by plain name.
    """
    whole = [options.get(name, "false").lower() for name in ("multiline", "wholetext")]
    if kind not in ("csv", "json", "text") or "true" in whole:
        return b""
    ends = options.get("linesep", ANY_END.decode()).encode()
    return ends if ends == ANY_END or len(ends) == 1 else b""


def long_lines(uri: str, most: int, ends: bytes) -> list[LongLine]:
    """The lines of a file that are longer than `most` bytes; of a file that is compressed, gone or not local none.

    Hadoop counts the bytes that end a line: one that fewer than two end may be longer by the rest.

    Args:
        uri: the file's URI.
        most: bytes that a line may have.
        ends: see `line_ends`.
    """
    path = local_path(uri)
    if path is None or path.endswith(COMPRESSED) or other_kind(uri) is not None:
        return []
    try:
        size = Path(path).stat().st_size
        if size <= most:
            return []
        with Path(path).open("rb") as file:
            return list(_found(file, uri, size, most, ends))
    except OSError:  # whatever it is, reading the file tells it
        return []


def shorter_than(most: int) -> Mapping[str, str]:
    """The option that keeps what `long_lines` finds from Spark's reader; see `whole_files`."""
    return {_MAX_LENGTH: str(most + _END_BYTES + 1)}


@contextmanager
def whole_files(spark: SparkSession) -> Iterator[None]:
    """Lets jobs read each file in one piece: where one ends within a long line, the rest of it would be a line."""
    before = {name: spark.conf.get(name) for name in _ONE_SPLIT_A_FILE}
    try:
        for name in before:
            spark.conf.set(name, _ANY_BYTES)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))


def _found(file: IO[bytes], uri: str, size: int, most: int, ends: bytes) -> Iterator[LongLine]:
    # as Hadoop counts: with the bytes that end the line
    length = most + _END_BYTES + 1
    start = len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0
    number, counted = 1, start
    while size - start >= length:
        last = _last_end(file, start, start + length - 1, ends)
        if last is not None:
            start = last
            continue
        end, is_ended = _next_end(file, start + length - _END_BYTES, size, ends)
        number, counted = number + _count(file, counted, start, ends), start
        file.seek(start)
        beginning = file.read(_KEPT_BYTES)
        yield LongLine(uri, number, end - start - is_ended, beginning)
        start = end


def _last_end(file: IO[bytes], first: int, until: int, ends: bytes) -> int | None:
    """Where the last line ends that ends behind `first`, at `until` at the most; None where none does."""
    upper = until
    while upper > first:
        lower = max(first, upper - _BLOCK_BYTES)
        file.seek(lower)
        block = file.read(upper - lower + 1)
        own, behind = block[: upper - lower], block[upper - lower :]
        # a carriage return at the end of the block ends no line if a line feed follows it
        is_cut = ends == ANY_END and own.endswith(b"\r") and behind == b"\n"
        found = max(own.rfind(end, 0, len(own) - is_cut) for end in ends)
        if found >= 0:
            return lower + found + 1
        upper = lower
    return None


def _next_end(file: IO[bytes], first: int, size: int, ends: bytes) -> tuple[int, int]:
    """Where the line ends that `first` is in, and how many bytes end it."""
    file.seek(first)
    position = first
    while block := file.read(_BLOCK_BYTES):
        places = [place for end in ends if (place := block.find(end)) >= 0]
        if places:
            position += min(places)
            file.seek(position)
            width = 2 if ends == ANY_END and file.read(2) == b"\r\n" else 1
            return position + width, width
        position += len(block)
    return size, 0


def _count(file: IO[bytes], first: int, until: int, ends: bytes) -> int:
    """How many lines end between two places, at both of which a line begins."""
    file.seek(first)
    found, left, was_return = 0, until - first, False
    while left > 0 and (block := file.read(min(left, 16 * _BLOCK_BYTES))):
        found += sum(block.count(end) for end in ends)
        if ends == ANY_END:
            found -= block.count(b"\r\n") + (was_return and block.startswith(b"\n"))
        was_return = block.endswith(b"\r")
        left -= len(block)
    return found
