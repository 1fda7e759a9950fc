"""Replay: tuples that are all known played in order of arrival, at a multiple of real speed.

They are copied once into files of arrival-ordered chunks under the checkpoint; a clock
releases them, by rename, into the folder that the ingest query watches. Everything after that is
the Parquet source: Spark's file log makes the replay restartable, and the map stage can run in the
scan. The copy is sorted in the driver's memory.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.errors import CheckpointError, SqlError
from penstock.operators.ingest.arrivals import REPLAY
from penstock.plan.expressions import Derived
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.recovery.causes import Cause
from penstock.spark.sources.parquet_source import ParquetSource
from penstock.spark.sources.source import BoundBatch, Progress, untold
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import SCHEDULE
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.past import Past
from penstock.spark.storage.spark_files import numbered
from penstock.spark.tasks.worker import TaskReport
from penstock.sql.script.statements import CreateTable
from penstock.stores.durable import make_folder, sync_file, sync_folder

#: seconds of playing time that one chunk covers where the speed is finite
_CHUNK_SECONDS = 1.0
_ROW_GROUPS_A_CHUNK = 4
#: of a schedule: the rows of the largest chunk
_MOST_ROWS = "most_rows"


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a replay goes.

    Attributes:
        speed: multiple of real speed; infinity as fast as it goes.
        rows_per_trigger: most rows of a chunk, and of the chunks that a batch takes.
    """

    speed: float
    rows_per_trigger: int

    @classmethod
    def of(cls, table: CreateTable, options: Mapping[str, str]) -> Pace:
        """What the options of a table say, by plain name; real speed where they say nothing.

        Raises:
            SqlError: the speed is none.
        """
        text = options.get("speed", "1")
        try:
            speed = math.inf if text.strip().lower() == "max" else float(text)
        except ValueError:
            speed = -1.0
        if not speed > 0:
            raise SqlError(
                f"table {table.name}: speed is '{text}'. Write 'max' or a number above 0.",
                *table.at("speed"),
            )
        return cls(speed, int(options.get("rowspertrigger", "100000")))


def is_prepared(folder: Path) -> bool:
    """Whether a folder has all chunks of a replay, and their due times."""
    return (folder / "schedule.json").exists()


def prepare(stored: pa.Table, arrival: str, pace: Pace, folder: Path) -> None:
    """Writes the arrival-ordered chunks and their due times.

    Tuples with no arrival time come last.

    Args:
        stored: the tuples.
        arrival: name of the column to play by.
        pace: how fast.
        folder: where the chunks go; `is_prepared` when they are complete.
    """
    rows = stored.take(pc.sort_indices(stored, sort_keys=[(arrival, "ascending")]))
    arrivals = rows.column(arrival).cast(pa.timestamp("us")).cast(pa.int64()).combine_chunks()
    last = pc.max(arrivals).as_py() or 0
    seconds = pc.fill_null(arrivals, last).to_numpy().astype(np.float64) / 1e6
    due = (seconds - seconds[0]) / pace.speed if len(seconds) else seconds
    waiting = folder / "waiting"
    make_folder(waiting)
    schedule, most = [], 1
    for number, (start, end) in enumerate(_chunks(due, pace)):
        chunk = rows.slice(start, end - start)
        size = max(1, -(-chunk.num_rows // _ROW_GROUPS_A_CHUNK))
        pq.write_table(chunk, waiting / f"{number:08d}.parquet", row_group_size=size)
        sync_file(waiting / f"{number:08d}.parquet")
        schedule.append(float(due[end - 1]))
        most = max(most, end - start)
    sync_folder(waiting)
    SCHEDULE.replace(folder / "schedule.json", {"due_seconds": schedule, _MOST_ROWS: most})


def _refuse_columns_after(folder: Path, stream: str, schema: StructType) -> None:
    """Makes sure that a copy has the columns of its table; those that came later it would give as NULL."""
    chunk = next(folder.glob("*/[0-9]*.parquet"), None)
    if chunk is None:
        return
    copied = frozenset(pq.read_schema(chunk).names)
    later = [name for name in schema.fieldNames() if name not in copied]
    if later:
        raise CheckpointError(
            f"stream {stream}: the replay plays a copy of its table that was made without {', '.join(later)}. Restore the "
            "columns, or start with a new output folder and checkpoint"
        )


def _chunks(due: np.ndarray, pace: Pace) -> list[tuple[int, int]]:
    bounds = []
    start = 0
    while start < len(due):
        end = min(len(due), start + pace.rows_per_trigger)
        if np.isfinite(pace.speed):
            in_time = int(np.searchsorted(due, due[start] + _CHUNK_SECONDS, side="right"))
            end = max(start + 1, min(end, in_time))
        bounds.append((start, end))
        start = end
    return bounds


class ReplaySource:
    """A Parquet source over a folder that fills by the clock.

    Args:
        schema: the tuple's columns.
        read: gives the tuples, in any order; called once for each checkpoint.
        event_time: name of the event time column, or None.
        arrival: name of the column to play by.
        pace: how fast.
        in_scan: False keeps the map stage behind the DataFrame.
    """

    is_finite: ClassVar[bool] = True

    def __init__(
        self,
        schema: StructType,
        read: Callable[[], pa.Table],
        event_time: str | None,
        arrival: str,
        pace: Pace,
        in_scan: bool,
    ) -> None:
        self.schema = schema
        self.event_time = event_time
        self._read = read
        self._arrival = arrival
        self._pace = pace
        self._in_scan = in_scan
        self._parquet = self._released_into(Path(), 1)
        self._begun = False
        #: chunks that are released, and when the last one was, nanoseconds since the epoch
        self._count = self._newest = 0
        self._closed = threading.Event()
        #: releases what is due; nobody else does while it runs
        self._clock: threading.Thread | None = None
        #: what ended the clock before it had released everything
        self._failure: Exception | None = None

    def prepare(
        self,
        layout: Layout,
        stream: str,
        events: EventLog,  # noqa: ARG002 - tells nothing
        progress: Progress = untold,  # noqa: ARG002 - tells nothing
    ) -> None:
        """Writes the arrival-ordered copy, unless an earlier run has.

        Raises:
            CheckpointError: the table has columns that the copy of an earlier run has not, or the checkpoint is that of a network.
        """
        self.close()
        self._begun, self._failure = False, None
        self._folder = layout.replay(stream)
        self._refuse_others(stream)
        if not is_prepared(self._folder):
            stored = self._read().cast(arrow_schema(self.schema))
            prepare(stored, self._arrival, self._pace, self._folder)
        _refuse_columns_after(self._folder, stream, self.schema)
        schedule = SCHEDULE.read(self._folder / "schedule.json") or {}
        self._due: list[float] = schedule["due_seconds"]
        self._released = self._folder / "released"
        self._released.mkdir(exist_ok=True)
        released = numbered(self._released, ".parquet")
        self._count = len(released)
        self._newest = self._modified(released[-1]) if released else 0
        most = schedule.get(_MOST_ROWS, self._pace.rows_per_trigger)
        # a batch that comes late takes what has been released meanwhile
        self._parquet = self._released_into(self._released, max(1, self._pace.rows_per_trigger // most))

    def _refuse_others(self, stream: str) -> None:
        """Makes sure that what the checkpoint holds is for this source to play."""
        if (self._folder / "network.json").exists():
            raise CheckpointError(
                f"stream {stream}: its checkpoint belongs to a simulated network, not to a stored table. Start with a new output "
                "folder and checkpoint"
            )

    def frame(self, spark: SparkSession) -> DataFrame:
        """The paths of the chunks; starts the clock, again where it failed."""
        if not self._begun or self._failure is not None:
            self.close()
            left = self._release(0.0)
            self._begun, self._failure = True, None
            if left:
                self._closed.clear()
                self._clock = threading.Thread(target=self._play, daemon=True, name="penstock-replay")
                self._clock.start()
        return self._parquet.frame(spark)

    def run(self, df: DataFrame, batch: BoundBatch) -> list[TaskReport]:
        """The Parquet source's jobs; a chunk's file has the time of its release."""
        reports = self._parquet.run(df, batch)
        batch.arrived_by = REPLAY
        return reports

    def again(self, spark: SparkSession, past: Past) -> Iterable[DataFrame]:
        """The paths of the chunks that were played before."""
        return self._parquet.again(spark, past)

    def place(self, derived: tuple[Derived, ...]) -> str:
        """Where the Parquet source runs the map stage."""
        return self._parquet.place(derived)

    def named(self, cause: Cause) -> Cause:
        """As it is."""
        return cause

    def exhausted(self) -> bool:
        """Whether every chunk has been released.

        Raises:
            OSError: a chunk could not be, as on a full disk; `frame` tries it again.
        """
        failure = self._failure
        if failure is not None:
            raise failure
        return self._count == len(self._due)

    def _released_into(self, folder: Path, chunks: int) -> ParquetSource:
        options = {"maxFilesPerTrigger": str(chunks)}
        return ParquetSource(self.schema, self.event_time, str(folder), options, self._in_scan)

    def close(self) -> None:
        """Stops the clock; on return it releases nothing more."""
        self._closed.set()
        if self._clock is not None:
            self._clock.join()
            self._clock = None

    def _play(self) -> None:
        try:
            self._release_in_time()
        except Exception as error:
            # whoever asks whether everything is released is told
            self._failure = error

    def _release_in_time(self) -> None:
        offset = self._due[self._count - 1] if self._count else 0.0
        began = time.monotonic()
        while not self._closed.wait(0.05) and self._release(offset + time.monotonic() - began):
            pass

    def _release(self, until: float) -> bool:
        """Releases the chunks that are due; returns whether any are left."""
        while self._count < len(self._due):
            if self._due[self._count] > until:
                return True
            name = f"{self._count:08d}.parquet"
            waiting = self._folder / "waiting" / name
            # Spark orders new files by modification time
            modified = time.time_ns() // 1_000_000 * 1_000_000
            modified = max(modified, self._newest + 1_000_000)
            os.utime(waiting, ns=(modified, modified))
            waiting.rename(self._released / name)
            self._newest = modified
            self._count += 1
        return False

    def _modified(self, number: int) -> int:
        return (self._released / f"{number:08d}.parquet").stat().st_mtime_ns
