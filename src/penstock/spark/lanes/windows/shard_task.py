"""One shard of the keyed query in one batch: follows the log, stages results, keeps the state.

Spark tells each shard how far the log reaches. The shard reads the entries between its own place and there, so
what it does depends on nothing else.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from time import monotonic, perf_counter, sleep

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import MapState, ValueState

from penstock.errors import CheckpointError, DamagedError
from penstock.operators.windows.answers import LateCounts, Progress, Standing
from penstock.operators.windows.shard import KeyedProgram, LogRecord, Shard
from penstock.operators.windows.stored import packed, unpacked
from penstock.plan.times import BEFORE_ALL
from penstock.spark.lanes.windows.history import Beyond, History
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader
from penstock.spark.log.programs import stored_program
from penstock.spark.log.shards import KeyedContext
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.results.bound_views import stored_views
from penstock.spark.results.window_staging import ResultStage, StagedResults
from penstock.spark.storage.offsets import REMEDY
from penstock.sql.windows.bind import BoundWindow

_BATCH_ID = "streaming.sql.batchId"
_KEPT_SHARDS = 64
#: other processes see a commit to a ledger in an object store so much later at the most
_LAG_SECONDS = 10.0

#: (operator, start) -> the stamp with which the pane was written, and its number of pieces
_Panes = dict[tuple[int, int], tuple[str, int]]


@dataclass(frozen=True, slots=True)
class ShardReport:
    """What a shard did in one batch.

    Attributes:
        shard: which.
        entry: number of the last entry of the log that is taken in; -1: none.
        entries: how many it took in.
        results: what it staged.
        beyond: (operator, view, start) of final windows that got tuples and were corrected from the history.
        beyond_history: those of such windows that were not: the history may lack tuples of theirs.
        late: late tuples it took in.
        standing: how far each view has come.
        progress: how far the windows of each view are answered.
        restored: panes read from the state.
        seconds: wall time.
        state_bytes: bytes written to the state: scalars and panes.
        whole: operators that were given the tuples of the batches before their first one.
    """

    shard: int
    entry: int
    entries: int
    results: list[StagedResults]
    beyond: list[Beyond]
    beyond_history: list[Beyond]
    late: LateCounts
    standing: dict[str, Standing]
    progress: dict[str, Progress]
    restored: int
    seconds: float
    state_bytes: tuple[int, int]
    whole: tuple[int, ...] = ()


@dataclass(slots=True)
class _Stored:
    """The scalars of a shard as they are in the state.

    Attributes:
        stamp: tells this state from every other one.
        entry: number of the last entry taken in; -1: none.
        panes: see `_Panes`.
        scalars: see `Shard.scalars`.
    """

    stamp: str
    entry: int
    panes: _Panes
    scalars: bytes

    @classmethod
    def loaded(cls, stored: bytes) -> _Stored:
        """What `stored` gave.

        Raises:
            CheckpointError: another version of Penstock stored it.
        """
        found = unpacked(stored)
        operators, starts, stamps, pieces = (column.to_pylist() for column in found.tables["panes"].columns)
        places = zip(operators, starts, strict=True)
        panes = dict(zip(places, zip(stamps, pieces, strict=True), strict=True))
        return cls(found.header["stamp"], found.header["entry"], panes, found.rest)

    def stored(self) -> bytes:
        """All of it in bytes."""
        places = np.array(list(self.panes), np.int64).reshape(-1, 2)
        panes = pa.table(
            {
                "operator": places[:, 0],
                "pane": places[:, 1],
                "stamp": pa.array([stamp for stamp, _ in self.panes.values()], pa.string()),
                "pieces": pa.array([pieces for _, pieces in self.panes.values()], pa.int64()),
            }
        )
        return packed({"panes": panes}, {"stamp": self.stamp, "entry": self.entry}, self.scalars)


#: (checkpoint, stream, shard) -> a state of the shard, as stored and decoded
_shards: dict[tuple[str, str, int], tuple[_Stored, Shard]] = {}


@lru_cache(maxsize=16)
def _program(context: KeyedContext, version: int) -> KeyedProgram:
    with context.layout.ledger.read_briefly():
        program = stored_program(context.layout, context.stream, version)
    if program is None:
        raise CheckpointError(
            f"stream {context.stream}: the window views of plan version {version} are missing in "
            f"{context.layout.programs(context.stream)}; {REMEDY}"
        )
    return program


@lru_cache(maxsize=256)
def _views(context: KeyedContext, operator: int) -> dict[str, BoundWindow]:
    with context.layout.ledger.read_briefly():
        return stored_views(context.layout, context.stream, operator)


class ShardTask:
    """Follows the log for one shard.

    Args:
        context: the keyed query's.
        scalars, panes: the shard's state.
    """

    def __init__(self, context: KeyedContext, scalars: ValueState, panes: MapState) -> None:
        self._context = context
        self._scalars = scalars
        self._panes = panes

    def follow(self, shard_number: int, rows: Iterable[Row]) -> ShardReport:
        """Takes in the log up to the newest entry in `rows`."""
        began = perf_counter()
        context = self._context
        reach = max(row.entry for row in rows)
        stored, shard, restored = self._shard(shard_number)
        log = LogReader(context.layout.log(context.stream))
        files = self._files()
        stage = ResultStage(files, files.scratch, shard_number, partial(_views, context))
        entries = _entries(log, stored.entry, reach)
        beyond: list[Beyond] = []
        beyond_history: list[Beyond] = []
        reader, history = EnvelopeReader(log, shard_number), History(log, shard_number)
        for entry in entries:
            corrected, others = self._take_in(shard, reader, history, entry, stage)
            beyond += corrected
            beyond_history += others
        results = stage.close()
        late = shard.take_late()
        sizes = self._store(shard, stored, entries[-1].number if entries else stored.entry)
        if len(_shards) >= _KEPT_SHARDS:
            _shards.clear()
        _shards[context.identity, context.stream, shard_number] = stored, shard
        seconds = perf_counter() - began
        return ShardReport(
            shard=shard_number,
            entry=stored.entry,
            entries=len(entries),
            results=results,
            beyond=beyond,
            beyond_history=beyond_history,
            late=late,
            standing=shard.standing(),
            progress=shard.progress(),
            restored=restored,
            seconds=seconds,
            state_bytes=sizes,
            whole=tuple(operator for entry in entries for operator in entry.whole),
        )

    def _files(self) -> BatchFiles:
        task = TaskContext.get()
        assert task is not None, "a shard runs inside Spark"
        batch = task.getLocalProperty(_BATCH_ID)
        assert batch is not None, "a shard runs inside a streaming query"
        stream = self._context.stream
        return BatchFiles.of(self._context.layout, results_of(stream), stream, int(batch))

    def _shard(self, number: int) -> tuple[_Stored, Shard, int]:
        """The shard as the state has it, and how many panes had to be read.

        What is cached is taken out, so that a failure leaves nothing half done. Another worker may have had
        the shard in between: then the panes it has not changed since are taken over.
        """
        context = self._context
        held, older = _shards.pop(
            (context.identity, context.stream, number), (_Stored("", -1, {}, b""), Shard())
        )
        found = self._scalars.get()
        if found is None:
            return _Stored("", context.after, {}, b""), Shard(), 0
        stored = _Stored.loaded(bytes(found[0]))
        if held.stamp == stored.stamp:
            return stored, older, 0
        unchanged = {place for place, known in stored.panes.items() if held.panes.get(place) == known}
        panes = {}
        for place in stored.panes.keys() - unchanged:
            _, pieces = stored.panes[place]
            panes[place] = [self._piece((*place, piece)) for piece in range(pieces)]
        programs = partial(_program, context)
        return stored, Shard.restored(stored.scalars, panes, programs, older, unchanged), len(panes)

    def _piece(self, place: tuple[int, int, int]) -> bytes:
        piece = self._panes.getValue(place)
        assert piece is not None, "the scalars name the panes of the state"
        return bytes(piece[0])

    def _take_in(
        self, shard: Shard, reader: EnvelopeReader, history: History, entry: Entry, stage: ResultStage
    ) -> tuple[list[Beyond], list[Beyond]]:
        """Takes in an entry; the final windows that got tuples and were corrected, and those that cannot be."""
        program = _program(self._context, entry.plan)
        record = LogRecord(
            program=program,
            newest=entry.newest,
            delays=np.array(entry.delays, np.int64),
            ended=entry.ended,
            envelopes=reader.of(entry),
            flush=entry.flush,
            whole=entry.whole,
            reached=entry.reached,
            answer_all=entry.answer_all,
            steps=entry.steps,
        )
        operators = {view.name: plan.id for plan in program.operators for view in plan.views}
        for answer in shard.process(record):
            stage.add(operators[answer.view], answer)
        beyond = shard.take_beyond()
        kept_before = BEFORE_ALL if entry.kept_before is None else entry.kept_before
        corrected = [window for window in beyond if window[2] >= kept_before]
        if corrected:
            for operator, answer in history.corrected(shard, entry, corrected):
                stage.add(operator, answer)
        return corrected, [window for window in beyond if window[2] < kept_before]

    def _store(self, shard: Shard, stored: _Stored, entry: int) -> tuple[int, int]:
        """Writes what changed, and brings `stored` up to it."""
        stored.stamp = uuid.uuid4().hex
        stored.entry = entry
        written = 0
        dropped = shard.take_dropped()
        for place in [each for each in stored.panes if each[0] in dropped]:
            self._store_pane(stored, place, 0, [])
        for operator, start, kept, pieces in shard.take_changes():
            self._store_pane(stored, (operator, start), kept, pieces)
            written += sum(map(len, pieces))
        stored.scalars = shard.scalars()
        scalars = stored.stored()
        stored.scalars = b""
        self._scalars.update((scalars,))
        return len(scalars), written

    def _store_pane(
        self, stored: _Stored, place: tuple[int, int], kept: int, pieces: Sequence[bytes]
    ) -> None:
        """Writes pieces after those that stay, and removes the others."""
        for number, piece in enumerate(pieces, kept):
            self._panes.updateValue((*place, number), (piece,))
        _, before = stored.panes.pop(place, ("", 0))
        number = kept + len(pieces)
        for gone in range(number, before):
            self._panes.removeKey((*place, gone))
        if number:
            stored.panes[place] = stored.stamp, number


def _entries(log: LogReader, after: int, until: int) -> list[Entry]:
    """The entries of a batch. The ledger of an object store shows a commit to other processes within a second."""
    deadline = 0.0 if isinstance(log.log.files, Path) else monotonic() + _LAG_SECONDS
    while True:
        try:
            return log.between(after, until)
        except DamagedError:
            if monotonic() >= deadline:
                raise
            sleep(_LAG_SECONDS / 50)
