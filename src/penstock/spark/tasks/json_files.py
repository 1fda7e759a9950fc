"""The map stage in the scan of JSON files: Spark hands over paths, the worker reads the lines and decodes them.

Lines that only Spark reads are copied to staged files, one for each file that a task meets them in, which a second job of the same
batch reads. So Spark says what is malformed, and each line stays with its file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.operators.ingest.event_times import EpochTimes
from penstock.operators.ingest.json_blocks import BlockDecoder, LateColumnsError
from penstock.operators.ingest.json_records import Records
from penstock.operators.ingest.record_fields import RecordFields
from penstock.spark.sessions.numbered_tasks import run_numbered
from penstock.spark.tasks.parquet_files import local_path, stamp_of
from penstock.spark.tasks.worker import Task, TaskContextData, TaskReport

#: bytes that are read and decoded at a time
_PIECE_BYTES = 16 << 20
#: bytes of a segment of a file, a part of a task
_SEGMENT_BYTES = 32 << 20
_SEARCHED_BYTES = 1 << 16
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Segment:
    """The lines of a file that begin between two places.

    Attributes:
        path: the file's URI.
        begin, end: bytes from the file's beginning.
        step: the file's arrival step.
    """

    path: str
    begin: int
    end: int
    step: int = 0


@dataclass(frozen=True, slots=True)
class Copied:
    """Lines of a file that Spark has to read.

    Attributes:
        path: the file's URI.
        copy: a staged file that holds them.
    """

    path: str
    copy: str


def segments(path: str, size: int, step: int) -> list[Segment]:
    """A file in segments."""
    return [
        Segment(path, begin, min(begin + _SEGMENT_BYTES, size), step)
        for begin in range(0, size, _SEGMENT_BYTES)
    ]


def run_json_files(
    spark: SparkSession,
    splits: list[list[Segment]],
    schema: pa.Schema,
    times: EpochTimes | None,
    context: TaskContextData,
    fields: RecordFields | None = None,
) -> list[TaskReport]:
    """Runs one job whose tasks read the segments themselves.

    Args:
        spark: the session.
        splits: segments of each task.
        schema: the columns of the records.
        times: the event time, where it is stored as numbers.
        context: what the tasks need.
        fields: where the columns are in a record; None: at its top, by their names.

    Returns:
        One report a task; `refused` lists what is `Copied`.
    """
    return run_numbered(
        spark.sparkContext,
        lambda number: run_segments(context, number, splits[number], schema, times, fields),
        len(splits),
    )


def run_segments(
    context: TaskContextData,
    partition: int,
    own: Sequence[Segment],
    schema: pa.Schema,
    times: EpochTimes | None,
    fields: RecordFields | None = None,
) -> TaskReport:
    """Answers the lines that the worker decodes, and copies the others.

    Where a matched record turns out to need Spark, the task begins anew and decodes all columns of each record.

    Raises:
        OSError: a file or its file system does not answer.
    """
    for is_whole in (False, True):
        task = Task(context, partition)
        decoder = BlockDecoder(schema, task.stage.program, times, fields, is_whole=is_whole)
        copies = _Copies(context)
        try:
            for segment in own:
                _run_segment(task, segment, decoder, copies)
            break
        except LateColumnsError:
            task.abandon()
            copies.abandon()
    task.refused = copies.files()
    return task.report()


class _Copies:
    """The copies of a task."""

    def __init__(self, context: TaskContextData) -> None:
        self._context = context
        self._copies: dict[str, Path] = {}

    def add(self, path: str, lines: pa.Buffer) -> None:
        """Copies lines of a file."""
        copy = self._copies.get(path)
        if copy is None:
            name = f"copied-{self._context.job}-{uuid.uuid4().hex}.json"
            copy = self._copies[path] = self._context.store.local / name
            copy.parent.mkdir(parents=True, exist_ok=True)
        with copy.open("ab") as file:
            file.write(lines)

    def files(self) -> list[Copied]:
        """What was copied."""
        return [Copied(path, str(copy)) for path, copy in self._copies.items()]

    def abandon(self) -> None:
        """Removes them."""
        for copy in self._copies.values():
            copy.unlink()


def _run_segment(task: Task, segment: Segment, decoder: BlockDecoder, copies: _Copies) -> None:
    most = task.stage.program.settings.batch_rows
    stamp = stamp_of(segment.path)
    assert stamp is not None, "planned for local files"
    arrived = stamp.modified_ns // 1_000
    for text in _pieces(segment):
        lines = Records.of_lines(text)
        for first in range(0, len(lines), most):
            records = lines[first : first + most]
            batch, tuples, is_decoded = decoder.decode(records)
            if not is_decoded.all():
                copies.add(segment.path, records.where(~is_decoded).as_lines())
            if batch.num_rows:
                task.process(batch, tuples, steps=task.steps_of(batch, segment.step), arrived=arrived)


def _pieces(segment: Segment) -> Iterator[bytes]:
    """The text of a segment's lines, each piece whole lines."""
    path = local_path(segment.path)
    assert path is not None, "planned for local files"
    with Path(path).open("rb") as file:
        size = file.seek(0, 2)
        begin, end = (_line_at(file, place, size) for place in (segment.begin, segment.end))
        file.seek(begin)
        rest = b""
        while begin < end:
            text = file.read(min(_PIECE_BYTES, end - begin))
            if not text:
                break
            if begin == 0:
                text = text.removeprefix(_BOM)
            begin = file.tell()
            text = rest + text
            cut = len(text) if begin >= end else _last_end(text)
            rest = text[cut:]
            if cut:
                yield text[:cut]
        if rest:
            yield rest


def _last_end(text: bytes) -> int:
    """Where the last line ends that is known to end; a carriage return at the end may have its line feed behind it."""
    return text.rfind(b"\n") + 1 or text.rfind(b"\r", 0, len(text) - 1) + 1


def _line_at(file: IO[bytes], place: int, size: int) -> int:
    """Where the first line begins that begins at a place or behind it, as line feeds tell."""
    if place == 0:
        return 0
    place -= 1
    while place < size:
        file.seek(place)
        block = file.read(_SEARCHED_BYTES)
        found = block.find(b"\n")
        if found >= 0:
            return place + found + 1
        place += len(block) or size
    return size
