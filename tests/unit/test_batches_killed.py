"""A process that answers batches is killed at every step between a batch's binding and its commit: the next one repeats and loses nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from killing import forked
from penstock.operators.ingest.stage_counts import StageCounts
from penstock.operators.windows.shard import WindowProgram
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.settings import Settings
from penstock.spark.ingest.answering import BatchAnswerer
from penstock.spark.ingest.time_limit import TimeLimit
from penstock.spark.log.ingest_log import IngestLog
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.manifests import published_paths
from penstock.spark.publication.staged import BatchFiles, WrittenFile
from penstock.spark.sources.source import BoundBatch
from penstock.spark.storage.bindings import PlanLog
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.failpoints import NAMES, failpoint
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.spark_files import numbered
from penstock.spark.tasks.worker import TaskReport

STREAM, BATCHES, ROWS = "s", 4, 6
PROGRAM: Any = SimpleNamespace(
    version=0,
    views=("v",),
    definitions=(),
    windows=None,
    tuples=None,
    calls=None,
    outcomes=SimpleNamespace(views=1),
    plan=SimpleNamespace(codings=()),
)


class Plans:
    """Binds batches to one plan of one view."""

    demanding: dict[int, tuple[str, ...]] = {}  # noqa: RUF012
    #: no function of a user's is called
    calls: Any = SimpleNamespace(measured=lambda *_: None, due=lambda _: {})

    def __init__(self, layout: Layout) -> None:
        self._log = PlanLog(layout, STREAM)

    def batch(self, batch: int, store: BatchFiles, _: object, offsets: str | None) -> BoundBatch:
        self._log.bind(batch, PROGRAM.version, offsets=offsets)
        broadcast: Any = None
        times = AFTER_ALL, BEFORE_ALL, 0, BEFORE_ALL
        return BoundBatch(batch, PROGRAM, (), ("plan", 0), broadcast, None, store, *times)

    def compiled(self, _: int) -> Any:
        return SimpleNamespace(program=PROGRAM, errors=lambda _: {}, raising=lambda _: {})

    def forget(self, batch: int) -> None:
        self._log.forget(batch, keep_plans=1)


def tasks(bound: BoundBatch, parts: int) -> Iterable[TaskReport]:
    """What the tasks of a batch stage: its matches, and what readers of the log get."""
    for part in range(parts):
        ids = np.arange(ROWS)[part::parts] + bound.number * ROWS
        table = pa.table({"id": ids, "queries": [["v"]] * len(ids)})
        written = []
        for kind in ("matches", "partials"):
            path = bound.store.staging(kind)
            pq.write_table(table, path)
            written.append(WrittenFile(kind, path, len(ids), len(ids)))
        files = bound.store.put(parts, part, written)
        none = StageCounts.none(PROGRAM)
        none.tuples = len(ids)
        yield TaskReport(parts, part, files, none, None)


def answer(folder: Path, parts: int) -> None:
    """Answers the batches that Spark has not committed."""
    layout = Layout.of(folder / "out", None)
    layout.open()
    # the folder is compared with what is published
    settings = Settings(compact_every_batches=2).model_copy(update={"replaced_seconds": 0.0})
    events = EventLog(layout.events)
    log = IngestLog(layout, STREAM, settings, events)
    log.store_program(WindowProgram(0, (), 0, 0), is_read=True)
    commits = folder / "commits"
    commits.mkdir(exist_ok=True)

    source: Any = SimpleNamespace(run=lambda _, bound: list(tasks(bound, parts)))
    plans: Any = Plans(layout)
    files: Any = SimpleNamespace(answered=lambda _: None)
    time_limit = TimeLimit(layout, STREAM, settings, events)
    answerer = BatchAnswerer(
        STREAM,
        source,
        layout,
        events,
        settings,
        plans,
        log,
        time_limit,
        files,
        published=lambda: None,
        on_batch=lambda _: None,
        succeeded=lambda: None,
    )
    frame: Any = None
    for batch in range(len(numbered(commits, "")), BATCHES):
        answerer.answer(frame, batch)
        failpoint("before_commit", batch)
        (commits / str(batch)).touch()
    answerer.close()
    log.close()


def ids_of(paths: Iterable[Path]) -> list[int]:
    return sorted(key for path in paths for key in pq.read_table(path).column("id").to_pylist())


@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize("place", NAMES)
def test_a_kill_repeats_and_loses_nothing(tmp_path: Path, place: str, batch: int) -> None:
    assert forked(answer, tmp_path, 3, failpoint=f"{place}:{batch}") == -signal.SIGKILL
    layout = Layout.of(tmp_path / "out", None)
    is_published = place in ("manifest_written", "before_commit")
    found = ids_of(published_paths(layout, STREAM))
    assert found == list(range(ROWS * (batch + is_published))), "whole batches, before anything is mended"
    # another division of the batch: files of the first one are surplus
    assert forked(answer, tmp_path, 2) == 0
    every = list(range(ROWS * BATCHES))
    assert ids_of(published_paths(layout, STREAM)) == every
    assert ids_of(layout.matches(STREAM).glob("*.parquet")) == every
    log = LogReader(layout.log(STREAM))
    entries = [entry for entry in log.between(-1, BATCHES - 1) if entry.files]
    assert [entry.batch for entry in entries] == list(range(BATCHES))
    named = [
        layout.log_files(STREAM, "partials") / name for entry in entries for name in entry.files["partials"]
    ]
    assert ids_of(named) == every
    assert not any(folder.exists() for number in range(BATCHES) for folder in layout.staging(STREAM, number))
