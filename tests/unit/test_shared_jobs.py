"""Lanes that ask for a job at the same moment get one together; what fails for one of them, it does alone."""

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


def _lane_that_fails(failing: str, jobs: Callable[..., Any]) -> dict[str, list[Any] | None]:
    """What each lane gets of one job in which one of them raises at its second cell."""
    shared, together = SharedJobs(), threading.Barrier(len(LANES))

    def ask(lane: str) -> list[Any] | None:
        def function(cell: int) -> int:
            assert lane != failing or cell < 2
            return cell

        shared.expect(lane)
        together.wait()
        return shared.run(lane, function, [1, 2], jobs)

    with ThreadPoolExecutor(len(LANES)) as pool:
        found = dict(zip(LANES, pool.map(ask, LANES), strict=True))
    # the next ones are together again
    again = Jobs()
    assert all(_asked(shared, again, dict.fromkeys(LANES, 1)).values())
    assert again.tasks == [1]
    return found


@pytest.mark.parametrize("failing", LANES)
def test_what_raises_fails_its_own_lane_alone(failing: str) -> None:
    jobs = Jobs()
    found = _lane_that_fails(failing, jobs)
    assert jobs.tasks == [2]
    assert found == {lane: None if lane == failing else [1, 2] for lane in LANES}


def test_a_job_that_is_cancelled_is_each_ones_own() -> None:
    def cancelled(function: Callable[[int], Any], tasks: int) -> list[Any]:
        raise RuntimeError(f"job of {tasks} tasks of {function} cancelled")

    assert _lane_that_fails("", cancelled) == dict.fromkeys(LANES, None)
