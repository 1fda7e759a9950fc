"""Lanes that ask for a job at the same moment get one together; what fails together, each does alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.spark.lanes.shared_jobs import SharedJobs

LANES = ("a", "b", "c")


class Jobs:
    """Runs jobs in the thread that asks, and notes of how many tasks each was."""

    def __init__(self) -> None:
        self.tasks: list[int] = []

    def __call__(self, function: Callable[[int], Any], tasks: int) -> list[Any]:
        self.tasks.append(tasks)
        return [function(number) for number in range(tasks)]


def _asked(shared: SharedJobs, jobs: Jobs, cells: dict[str, int]) -> dict[str, list[Any] | None]:
    """What each of some lanes gets that ask for so many cells each, in threads of their own."""
    together = threading.Barrier(len(cells))

    def ask(lane: str) -> list[Any] | None:
        shared.expect(lane)
        together.wait()
        return shared.run(lane, lambda cell: (lane, cell), [10 * cell for cell in range(cells[lane])], jobs)

    with ThreadPoolExecutor(len(cells)) as pool:
        return dict(zip(cells, pool.map(ask, cells), strict=True))


def test_those_that_ask_at_the_same_moment_share_a_job() -> None:
    shared, jobs = SharedJobs(), Jobs()
    cells = {"a": 2, "b": 3, "c": 1}
    for _ in range(20):
        found = _asked(shared, jobs, cells)
        assert found == {lane: [(lane, 10 * cell) for cell in range(count)] for lane, count in cells.items()}
    assert jobs.tasks == [3] * 20


def test_one_that_is_alone_waits_for_nobody_and_runs_its_own() -> None:
    shared, jobs = SharedJobs(), Jobs()
    shared.expect("a")
    began = time.monotonic()
    assert shared.run("a", str, [1], jobs) is None
    # one that was expected and has nothing to ask for
    shared.expect("b")
    shared.release("b")
    assert shared.run("a", str, [1], jobs) is None
    assert time.monotonic() - began < 0.05
    assert not jobs.tasks


def test_one_that_said_it_would_ask_and_does_not_is_waited_for_shortly() -> None:
    shared = SharedJobs()
    shared.expect("lost")
    began = time.monotonic()
    assert shared.run("a", str, [1], Jobs()) is None
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("failing", LANES)
def test_a_job_that_fails_is_each_ones_own(failing: str) -> None:
    shared, jobs = SharedJobs(), Jobs()
    together = threading.Barrier(len(LANES))

    def ask(lane: str) -> list[Any] | None:
        def function(cell: int) -> int:
            assert lane != failing
            return cell

        shared.expect(lane)
        together.wait()
        return shared.run(lane, function, [1, 2], jobs)

    with ThreadPoolExecutor(len(LANES)) as pool:
        assert list(pool.map(ask, LANES)) == [None] * len(LANES)
    assert jobs.tasks == [2]
    # the next ones are together again
    assert set(_asked(shared, jobs, dict.fromkeys(LANES, 1))) == set(LANES)
    assert jobs.tasks == [2, 1]
