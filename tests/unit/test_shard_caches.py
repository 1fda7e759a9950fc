"""What workers and the driver keep of a stream's windows: the answers are the same without it, and it is bounded."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import CheckpointError
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import PARTIALS, Envelope, OperatorPlan, WindowProgram
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.lanes.windows import shard_task
from penstock.spark.lanes.windows.programs import BoundProgram, WindowPrograms
from penstock.spark.lanes.windows.shard_state import Place, StateFile, StateFiles
from penstock.spark.lanes.windows.shard_task import ShardCell, ShardReport, ShardTask
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import write_envelopes
from penstock.spark.log.programs import store_program
from penstock.spark.log.stream_log import StreamLog
from penstock.spark.publication.kinds import folder_of, results_of
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.storage.layout import Layout
from penstock.sql.windows.bind import BoundOutput, BoundWindow
from window_cases import stream_of

STREAM, SIZE, SLIDE = "s", 20, 5
MOMENT = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", MOMENT), ("end", MOMENT)])
KEYS = (("k", pa.int64()),)
COUNT = Aggregate("count", None, pa.int64())


def view(name: str, slide: int = SLIDE) -> BoundWindow:
    plan = WindowPlan(name, "t", Windows(SIZE, slide), KEYS, (COUNT,), ErrorBound(0.05, 0.05))
    outputs = (BoundOutput("_k0", "k", pa.int64()), BoundOutput("_a0", "n", pa.int64()))
    return BoundWindow(plan, (), None, WINDOW, outputs, None)


PARTS = Parts.of((COUNT,))


def program(version: int, views: Mapping[int, BoundWindow]) -> BoundProgram:
    operators = tuple(
        OperatorPlan(operator, (each.plan,), PARTS, each.plan.windows.pane)
        for operator, each in views.items()
    )
    keyed = WindowProgram(version, operators, gamma=10, least_horizon=60)
    return BoundProgram(keyed, {operator: {each.plan.name: each} for operator, each in views.items()})


#: a view comes, and the one before it goes
PROGRAMS = [
    program(0, {0: view("v")}),
    program(1, {0: view("v"), 1: view("w", 20)}),
    program(2, {1: view("w", 20)}),
]
CUTS, ENTRIES = 30, 3


class Shards:
    """One shard of a stream in cuts, answered by workers that the test names.

    Args:
        folder: where.
    """

    def __init__(self, folder: Path) -> None:
        self.layout = Layout(folder / "out", folder / "checkpoint")
        self.layout.open()
        self.state: tuple[StateFile, ...] = ()
        self.states = StateFiles(
            self.layout.log_store, self.layout.checkpoint, self.layout.window_states(STREAM)
        )
        self._log = StreamLog(self.layout.log(STREAM))
        self._log.path("partials", "").mkdir(parents=True)
        self._rng = np.random.default_rng(5)
        self._newest = 0
        self._cut, self._plan = 0, None
        self.entries: list[Entry] = []

    def put(self) -> None:
        """The entries of the next cut."""
        self._cut += 1
        self.entries = [self._entry(self._cut * ENTRIES + number) for number in range(ENTRIES)]

    def _entry(self, number: int) -> Entry:
        version = min(2, number // ENTRIES // 10)
        delays = np.where(self._rng.random(12) < 0.2, self._rng.integers(0, 50, 12), 0)
        times = number * 4 + self._rng.integers(0, 4, 12) - delays
        self._newest = max(self._newest, int(times.max()))
        envelopes = []
        for operator, own in PROGRAMS[version].views.items():
            (each,) = own.values()
            pane = each.plan.windows.pane
            panes = pa.table({PANE: times // pane * pane, "k": self._rng.integers(0, 5, 12)})
            envelopes.append((0, Envelope(operator, PARTIALS, stream_of(PARTS.lift(panes, [PANE, "k"])))))
        name = f"{number}.parquet"
        write_envelopes(envelopes, self._log.path("partials", name))
        delay = (int(delays.max()),)
        return Entry(
            number, number, version, number, self._newest, self._newest, delay, {"partials": (name,)}
        )

    def answer(self) -> ShardReport:
        """Answers the cut, and publishes nothing."""
        versions = {entry.plan for entry in self.entries} | ({self._plan} - {None})
        task = ShardTask(
            layout=self.layout,
            stream=STREAM,
            cut=self._cut,
            entries=self.entries,
            programs={version: SimpleNamespace(value=PROGRAMS[version]) for version in versions},
            store=BatchFiles.of(self.layout, results_of(STREAM), None, self._cut),
        )
        return task(ShardCell(0, self.state))

    def publish(self, report: ShardReport) -> None:
        gone = [file for file in self.state if file not in report.state]
        self.state = tuple(report.state)
        self._plan = self.entries[-1].plan
        for file in gone:
            (self.layout.window_states(STREAM) / file.name).unlink()

    def scalars(self) -> bytes:
        return self.states.scalars(self.state[-1])

    def panes(self) -> dict[Place, list[bytes]]:
        found = self.states.panes(self.state, self.states.places(self.state))
        return {place: list(pieces) for place, pieces in found.items()}

    def said(self, report: ShardReport) -> list[Any]:
        """What the cut says of each view, and its rows."""
        return [
            (
                each.view,
                each.said,
                pq.read_table(folder_of(self.layout, STREAM, each.file.kind) / each.file.name).to_pylist(),
            )
            for each in report.results
        ]


class Workers:
    """Processes that keep shards decoded, each its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.held: dict[int, dict[Any, Any]] = {}

    def turn(self, number: int) -> None:
        """From now on this worker answers."""
        self._monkeypatch.setattr(shard_task, "_held", self.held.setdefault(number, {}))

    def die(self, number: int) -> None:
        """The worker's process ends, another one takes its place."""
        self.held.pop(number, None)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    return Workers(monkeypatch)


def run(folder: Path, answered: Callable[[Shards, int], ShardReport]) -> list[Any]:
    """The state and the answers after each cut."""
    shards = Shards(folder)
    found = []
    for cut in range(CUTS):
        shards.put()
        report = answered(shards, cut)
        shards.publish(report)
        found.append((shards.said(report), report.standing, report.late, shards.panes(), shards.scalars()))
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """By workers that keep nothing."""
    with pytest.MonkeyPatch.context() as patched:
        workers = Workers(patched)

        def answered(shards: Shards, cut: int) -> ShardReport:
            workers.turn(cut)
            return shards.answer()

        return run(tmp_path_factory.mktemp("expected"), answered)


def test_a_worker_that_stays_restores_nothing(tmp_path: Path, workers: Workers, expected: list[Any]) -> None:
    restored = []

    def answered(shards: Shards, _: int) -> ShardReport:
        workers.turn(0)
        report = shards.answer()
        restored.append(report.restored)
        return report

    assert run(tmp_path / "one", answered) == expected
    assert not any(restored)
    said = [row for views, *_ in expected for _, _, rows in views for row in rows]
    assert len(said) > 100


@pytest.mark.parametrize("seed", range(3))
def test_workers_that_take_turns_have_the_same_shard(
    tmp_path: Path, workers: Workers, expected: list[Any], seed: int
) -> None:
    rng = np.random.default_rng(seed)

    def answered(shards: Shards, _: int) -> ShardReport:
        workers.turn(int(rng.integers(0, 2 + seed)))
        return shards.answer()

    assert run(tmp_path / "turns", answered) == expected


@pytest.mark.parametrize("seed", range(3))
def test_a_cut_that_is_answered_again_is_answered_alike_by_any_worker(
    tmp_path: Path, workers: Workers, expected: list[Any], seed: int
) -> None:
    """What an attempt left that was not published is not the state."""
    rng = np.random.default_rng(seed)

    def answered(shards: Shards, cut: int) -> ShardReport:
        for _ in range(int(rng.integers(0, 3))):
            workers.turn(int(rng.integers(0, 2)))
            shards.answer()
        if rng.random() < 0.1:
            workers.die(0)
        workers.turn(int(rng.integers(0, 2)))
        report = shards.answer()
        assert report.state[-1].name.startswith(f"{cut + 1:010d}-00000-")
        return report

    assert run(tmp_path / "again", answered) == expected


def test_an_attempt_that_fails_leaves_nothing_in_memory(
    tmp_path: Path, workers: Workers, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = StateFiles.write

    def fails(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    def answered(shards: Shards, cut: int) -> ShardReport:
        workers.turn(0)
        if cut % 7 == 3:
            monkeypatch.setattr(StateFiles, "write", fails)
            with pytest.raises(OSError, match="No space left"):
                shards.answer()
            monkeypatch.setattr(StateFiles, "write", write)
        return shards.answer()

    assert run(tmp_path / "failing", answered) == expected


def test_a_worker_keeps_few_shards(tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_task, "_KEPT_SHARDS", 3)
    workers.turn(0)
    for number in range(8):
        shards = Shards(tmp_path / str(number))
        shards.put()
        shards.answer()
        assert len(workers.held[0]) <= 3


class Context:
    """What stands for Spark's context: keeps what was sent to workers."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    def broadcast(self, value: BoundProgram) -> Any:
        version = value.program.version
        self.sent.append(version)
        return SimpleNamespace(value=value, unpersist=lambda: self.sent.remove(version))


def test_the_driver_and_workers_keep_the_newest_programs_alone(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
    layout.open()
    context: Any = Context()
    programs = WindowPrograms(context, layout, STREAM)
    for version in range(40):
        store_program(layout, STREAM, WindowProgram(version, (), 0, 0))
        for _ in range(2):
            sent = programs.sent({max(0, version - 1), version})
            assert {number: each.value.program.version for number, each in sent.items()} == {
                number: number for number in {max(0, version - 1), version}
            }
        assert len(context.sent) <= 4
        assert sorted(set(context.sent)) == sorted(context.sent), "each is sent once"
        layout.programs(STREAM)[version].remove()
    assert programs.of(39).program.version == 39
    with pytest.raises(CheckpointError, match="plan version 0 are missing"):
        programs.of(0)
