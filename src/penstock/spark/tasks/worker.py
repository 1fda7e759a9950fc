"""The worker's side of an ingest batch: one task, its staged files and its report.

A task stores what it matched in files of its own (named by batch, job, partition and attempt) and
returns one small row; only the driver publishes.
"""

from __future__ import annotations

import json
import pickle
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import Broadcast, TaskContext

from penstock.monitor.figures import counted
from penstock.operators.ingest.arrivals import Ints
from penstock.operators.ingest.malformed import RecordForm
from penstock.operators.ingest.map_stage import MapStage
from penstock.operators.ingest.stage_counts import StageCounts
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.operators.python_values import python_values
from penstock.operators.selection.matches import DEFINITIONS, queries_name
from penstock.operators.selection.selector import TooManyMatchesError
from penstock.operators.windows.arrival_steps import Steps
from penstock.operators.windows.shard import Envelope
from penstock.spark.log.envelopes import file_kind, write_envelopes
from penstock.spark.log.runs import write_run_file
from penstock.spark.publication.staged import BatchFiles, StagedFile, WrittenFile
from penstock.spark.sessions.priority import give_way
from penstock.spark.storage.layout import tuples_kind
from penstock.spark.tasks.quarantined_lines import QuarantinedLines, quarantined

#: schema of the row every task returns: a pickled TaskReport
REPORT_SCHEMA = "report BINARY"
_KEPT_STAGES = 4
#: a row group is written when so many rows or bytes are held
_ROW_GROUP_ROWS = 1_000_000
_HELD_BYTES = 128 << 20
#: how reasons begin whose rest (offsets, sizes, paths) differs from file to file: they are counted without it
_UNREADABLE = "unreadable "
#: of values that hardly repeat, larger dictionaries cost more time and space than they save
_DICTIONARY_BYTES = 256 << 10
#: why a tuple is in no window though it could be read
TOO_LATE = "too late: all its windows are final and older than the history"
#: how reasons begin that say what a user's function said: they are counted by its name and the type of the exception
_RAISED = "function "

Mask = npt.NDArray[np.bool_]
#: gives some of the tuple's own columns, of the rows where the mask is true
Tuples = Callable[[Mask, Sequence[str]], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class SetAside:
    """A file, or a row group of one, none of whose rows is answered.

    Attributes:
        path: the file's URI.
        row_group: its number, or None where it is the whole file.
        rows: how many rows it has; None where that cannot be known.
        reason: why it was set aside.
    """

    path: str
    row_group: int | None
    rows: int | None
    reason: str

    @property
    def origin(self) -> str:
        """The place and the number of rows, as the quarantine says them."""
        place = self.path if self.row_group is None else f"{self.path}#{self.row_group}"
        return place if self.rows is None else f"{place} ({counted(self.rows, 'row')})"


@dataclass(slots=True)
class TaskReport:
    """What a task did: its place in the batch, its files, its counts and its sample of codes."""

    job: int
    partition: int
    files: list[StagedFile]
    counts: StageCounts
    sample: npt.NDArray[np.uint32] | None
    quarantined: dict[str, int] = field(default_factory=dict)
    refused: list[Any] = field(default_factory=list)
    set_aside: list[SetAside] = field(default_factory=list)

    def row(self) -> pa.RecordBatch:
        """The report as the one row of the task's output."""
        return pa.record_batch({"report": pa.array([pickle.dumps(self)], pa.binary())})


@dataclass(frozen=True, slots=True)
class SentSequence:
    """An evaluation sequence on its way to the workers, by value: it lives as long as the task that carries it.

    Attributes:
        revision: tells it from the sequences before it, from 1.
        arrangement: the pickled Arrangement.
    """

    revision: int
    arrangement: bytes


@dataclass(frozen=True, slots=True)
class TaskContextData:
    """What every task of one job of a batch knows.

    Attributes:
        key: identifies the program in the worker's cache.
        program: the pickled StreamProgram.
        sequence: the evaluation sequence its ASCs follow; None: the order of the attributes.
        store: stores the batch's files.
        job: number of the job within the batch.
        time_limit: the largest event time that is believed, microseconds in UTC.
        time_floor: tuples that are older do not matter for slack, microseconds.
        kept_ahead: how far beyond the limit tuples are in their windows all the same, microseconds.
        too_late_before: tuples with an earlier event time are quarantined instead of being in windows, microseconds.
        steps: arrival steps of the batch; 1: all of it came at once.
        call_order: numbers of the users' functions' calls in the order they run in; (): that of the program.
    """

    key: tuple[str, int]
    program: Broadcast[bytes]
    sequence: SentSequence | None
    store: BatchFiles
    job: int
    time_limit: int
    time_floor: int
    kept_ahead: int
    too_late_before: int
    steps: int = 1
    call_order: tuple[int, ...] = ()

    @property
    def has_steps(self) -> bool:
        """Whether tuples have arrival steps."""
        return self.steps > 1


@dataclass(slots=True)
class _KeptStage:
    stage: MapStage
    revision: int = 0


_stages: OrderedDict[tuple[str, int], _KeptStage] = OrderedDict()


def stage_for(context: TaskContextData) -> MapStage:
    """The compiled stage of a program, kept in this worker from batch to batch and from sequence to sequence.

    Batches of a stream follow one another: the stage of an earlier version passes on what is the same.
    """
    kept = _stages.get(context.key)
    if kept is None:
        program: StreamProgram = pickle.loads(context.program.value)
        before = next((key for key in reversed(_stages) if key[0] == context.key[0]), None)
        functions = () if program.calls is None else pickle.loads(program.calls.functions)
        stage = MapStage(program, None if before is None else _stages.pop(before).stage, functions)
        kept = _stages[context.key] = _KeptStage(stage)
        while len(_stages) > _KEPT_STAGES:
            _stages.popitem(last=False)
    _stages.move_to_end(context.key)
    if context.sequence is not None and context.sequence.revision != kept.revision:
        kept.stage.rearrange(pickle.loads(context.sequence.arrangement))
        kept.revision = context.sequence.revision
    kept.stage.reorder(context.call_order)
    kept.stage.begin(
        context.time_limit,
        context.time_floor,
        context.kept_ahead,
        context.too_late_before,
        has_steps=context.has_steps,
    )
    return kept.stage


class StagedWriter:
    """Writes batches of one schema to a Parquet file, created with the first batch.

    Batches are held until they make a row group of some size: small ones cost more time and space. The
    columns that name queries and their definitions get no statistics, which would cost more than the rest of them.
    """

    def __init__(self, kind: str, files: BatchFiles) -> None:
        self.kind = kind
        self._files = files
        self._path: Path | None = None
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0
        self.rows = 0
        self.pairs = 0

    def write(self, batch: pa.RecordBatch, pairs: int = 0) -> None:
        """Appends a batch."""
        if self._writer is None:
            self._path = self._files.staging(self.kind)
            self._writer = pq.ParquetWriter(
                self._path,
                batch.schema,
                compression="zstd",
                compression_level=1,
                store_schema=False,
                write_page_checksum=True,
                write_statistics=[field.name for field in batch.schema if not pa.types.is_nested(field.type)],
                dictionary_pagesize_limit=max(_DICTIONARY_BYTES, _bytes_of_names(batch)),
            )
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        if self._held_rows >= _ROW_GROUP_ROWS or self._held_bytes >= _HELD_BYTES:
            self._flush(self._writer)
        self.rows += batch.num_rows
        self.pairs += pairs

    def close(self) -> list[WrittenFile]:
        """Ends the file; the list holds it, or nothing where no batch was written."""
        if self._writer is None or self._path is None:
            return []
        self._flush(self._writer)
        self._writer.close()
        return [WrittenFile(self.kind, self._path, self.rows, self.pairs)]

    def _flush(self, writer: pq.ParquetWriter) -> None:
        if self._held:
            writer.write_table(pa.Table.from_batches(self._held), row_group_size=self._held_rows)
        self._held = []
        self._held_rows = self._held_bytes = 0


def _bytes_of_names(batch: pa.RecordBatch) -> int:
    """What the names of all queries take in a dictionary, and some more; with less room Parquet would write each name out."""
    lists = (column.values for column in batch.columns if pa.types.is_list(column.type))
    names = (each.dictionary for each in lists if pa.types.is_dictionary(each.type))
    return sum(each.nbytes + _DICTIONARY_BYTES for each in names)


def written_envelopes(stage: MapStage, files: BatchFiles) -> list[WrittenFile]:
    """Writes the partials of a task to files, one a kind; the list holds them."""
    began = time.perf_counter_ns()
    envelopes = stage.panes.envelopes() if stage.panes is not None else []
    stage.counts.pane_ns += time.perf_counter_ns() - began
    by_kind: dict[str, list[tuple[int, Envelope]]] = {}
    for shard, envelope in envelopes:
        by_kind.setdefault(file_kind(envelope.kind), []).append((shard, envelope))
    written = []
    for kind, own in by_kind.items():
        path = files.staging(kind)
        write_envelopes(own, path)
        written.append(WrittenFile(kind, path, len(own)))
    return written


class Task:
    """One task of an ingest job: stages matches, quarantined records and partials, then reports."""

    def __init__(self, context: TaskContextData, partition: int) -> None:
        give_way()
        self._context = context
        self._partition = partition
        self.stage = stage_for(context)
        self._matches = StagedWriter("matches", context.store)
        self._quarantine = StagedWriter("quarantine", context.store)
        self.quarantined: dict[str, int] = {}
        self.refused: list[Any] = []
        self._set_aside: list[SetAside] = []
        self._runs: list[WrittenFile] = []
        self._lines = QuarantinedLines(self._quarantine.write)

    def process(
        self,
        batch: pa.RecordBatch,
        tuples: Tuples,
        *,
        is_matched: bool = True,
        is_timed: bool = True,
        steps: Steps | None = None,
        arrived: Ints | int | None = None,
    ) -> None:
        """Matches a batch and stages its matched tuples.

        Args:
            batch: at least the program's `needed` columns.
            tuples: gives the rows where the mask is true.
            is_matched, is_timed: see `MapStage.process`.
            steps: the tuples' arrival steps; None: all are of the last one.
            arrived: see `MapStage.process`.
        """
        if steps is None:
            steps = self.steps_of(batch)
        try:
            mask, queries = self.stage.process(
                batch, is_matched=is_matched, is_timed=is_timed, steps=steps, arrived=arrived
            )
        except TooManyMatchesError:
            self._process_halves(batch, tuples, steps, arrived, is_timed=is_timed)
            return
        self._stage_runs(all_held=False)
        if self.stage.too_late is not None:
            self._quarantine_late(tuples(self.stage.too_late, self.stage.program.columns))
        if self.stage.raised:
            self._quarantine_raised(tuples, batch.num_rows)
        if not len(queries):
            return
        began = time.perf_counter_ns()
        program = self.stage.program
        matched = tuples(mask, program.stored_columns)
        name = queries_name(program.columns)
        columns, schema = [*matched.columns, queries], matched.schema
        schema = schema.append(pa.field(name, queries.type, nullable=False))
        definitions = self.stage.definitions(queries)
        if definitions is not None:
            columns, schema = [*columns, definitions], schema.append(pa.field(DEFINITIONS, definitions.type))
        staged = pa.RecordBatch.from_arrays(columns, schema=schema)
        self._matches.write(staged, len(queries.values))
        self.stage.counts.write_ns += time.perf_counter_ns() - began

    def steps_of(self, batch: pa.RecordBatch, step: int | None = None) -> Steps | None:
        """The arrival steps of tuples that are all of one, None: the last; None where the batch has no steps."""
        if not self._context.has_steps:
            return None
        return np.full(batch.num_rows, self._context.steps - 1 if step is None else step, np.int8)

    def _process_halves(
        self,
        batch: pa.RecordBatch,
        tuples: Tuples,
        steps: Steps | None,
        arrived: Ints | int | None,
        *,
        is_timed: bool,
    ) -> None:
        rows = batch.num_rows
        for first, last in ((0, rows // 2), (rows // 2, rows)):

            def of_half(mask: Mask, columns: Sequence[str], first: int = first) -> pa.RecordBatch:
                whole = np.zeros(rows, np.bool_)
                whole[first : first + len(mask)] = mask
                return tuples(whole, columns)

            own = None if steps is None else steps[first:last]
            when = arrived[first:last] if isinstance(arrived, np.ndarray) else arrived
            half = batch.slice(first, last - first)
            self.process(half, of_half, is_timed=is_timed, steps=own, arrived=when)

    def quarantine(self, record: pa.Array, origin: pa.Array, reason: pa.Array) -> None:
        """Stages records that could not be read, with where they came from and why."""
        self._quarantine.write(quarantined(record, origin, reason))
        self._count(reason)

    def quarantine_rows(
        self,
        aside: pa.RecordBatch,
        schema: pa.Schema,
        form: RecordForm,
        has_value: Mapping[str, pa.BooleanArray],
    ) -> None:
        """Likewise of rows of records that may be lines of files; see `QuarantinedLines.add`."""
        self._count(self._lines.add(aside, schema, form, has_value).column("reason"))

    def _quarantine_late(self, late: pa.RecordBatch) -> None:
        """Stages tuples that no window takes any more."""
        name = self.stage.program.event_time
        records = _records(late)
        times = python_values(late.column(name)) if name in late.schema.names else [None] * len(late)
        self.quarantine(
            pa.array(records, pa.binary()),
            pa.array([f"event time {each}" for each in times], pa.string()),
            pa.array([TOO_LATE] * len(records), pa.string()),
        )

    def _quarantine_raised(self, tuples: Tuples, rows: int) -> None:
        """Stages tuples at which users' functions raised, once for each call."""
        raised = sorted(self.stage.raised, key=lambda each: each.row)
        mask = np.zeros(rows, np.bool_)
        mask[[each.row for each in raised]] = True
        places = np.cumsum(mask) - 1
        records = _records(tuples(mask, self.stage.program.columns))
        self.quarantine(
            pa.array([records[places[each.row]] for each in raised], pa.binary()),
            pa.array([each.call for each in raised], pa.string()),
            pa.array([each.reason for each in raised], pa.string()),
        )

    def _stage_runs(self, *, all_held: bool) -> None:
        """Writes tuples that readers of the log asked for to staged files: those that are worth one, or all."""
        if self.stage.tuples is None:
            return
        began = time.perf_counter_ns()
        for plan, tuples in self.stage.tuples.runs(all_held=all_held):
            kind = tuples_kind(plan.id)
            path = self._context.store.staging(kind)
            write_run_file(path, tuples, plan.run)
            self._runs.append(WrittenFile(kind, path, tuples.num_rows))
        self.stage.counts.write_ns += time.perf_counter_ns() - began

    def _count(self, reason: pa.Array) -> None:
        for count in pc.value_counts(reason).to_pylist():
            name = count["values"]
            if name.startswith(_UNREADABLE):
                name = name.partition(":")[0]
            elif name.startswith(_RAISED):
                name = ":".join(name.split(":", 2)[:2])
            self.quarantined[name] = self.quarantined.get(name, 0) + count["counts"]

    def set_aside(self, found: SetAside) -> None:
        """Stages the place of rows that could not be read."""
        self._set_aside.append(found)
        self.quarantine(pa.array([None], pa.binary()), pa.array([found.origin]), pa.array([found.reason]))

    def abandon(self) -> None:
        """Removes what was written; the task reports nothing."""
        for written in (*self._matches.close(), *self._quarantine.close(), *self._runs):
            written.path.unlink()

    def report(self) -> TaskReport:
        """Stores the files and reports."""
        written = written_envelopes(self.stage, self._context.store)
        self._stage_runs(all_held=True)
        written += self._runs
        began = time.perf_counter_ns()
        self._lines.place()
        written += self._matches.close() + self._quarantine.close()
        files = self._context.store.put(self._context.job, self._partition, written)
        self.stage.counts.write_ns += time.perf_counter_ns() - began
        return TaskReport(
            job=self._context.job,
            partition=self._partition,
            files=files,
            counts=self.stage.finish(),
            sample=self.stage.sample,
            quarantined=self.quarantined,
            refused=self.refused,
            set_aside=self._set_aside,
        )


def _records(tuples: pa.RecordBatch) -> list[bytes]:
    """Tuples as JSON."""
    columns = [python_values(column) for column in tuples.columns]
    rows = (dict(zip(tuples.schema.names, row, strict=True)) for row in zip(*columns, strict=True))
    return [json.dumps(row, default=str).encode() for row in rows]


def partition_number() -> int:
    """The partition this task works on."""
    context = TaskContext.get()
    assert context is not None, "a task runs inside Spark"
    return context.partitionId()


def run_partition(
    context: TaskContextData, batches: Iterable[pa.RecordBatch], each: Callable[[Task, pa.RecordBatch], None]
) -> Iterator[pa.RecordBatch]:
    """The body of a mapInArrow: every batch through `each`, then one report."""
    task = Task(context, partition_number())
    for batch in batches:
        each(task, batch)
    yield task.report().row()
