"""An instance of a window from the last processed one: what is added, what is removed, what becomes of a state that failed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import AggregateFailedError
from penstock.operators.deadlines.aggregates import user_aggregate
from penstock.operators.deadlines.instances import AggregateInstances, Extent, Processed, Tuples
from penstock.operators.deadlines.time_limit import TimeIsOver, within
from penstock.plan.deadlines import WindowWork

VALUES = [5, 7, 11, 13, 17, 19]


class Told:
    """A sum that says what it was given, and raises where it is told to."""

    calls: list[tuple[str, list[Any]]]
    at: Callable[[str], None]

    def __init__(self) -> None:
        self.sum = 0

    def add(self, values: pa.Array) -> None:
        self.calls.append(("add", values.to_pylist()))
        self.sum += pc.sum(values).as_py()
        self.at("add")

    def remove(self, values: pa.Array) -> None:
        self.calls.append(("remove", values.to_pylist()))
        self.sum -= pc.sum(values).as_py()
        self.at("remove")

    def result(self) -> object:
        self.at("result")
        return self.sum


def _instances(
    at: Callable[[str], None] = lambda _: None,
) -> tuple[AggregateInstances, list[tuple[str, list[Any]]]]:
    given = type("Told", (Told,), {"calls": [], "at": staticmethod(at)})
    ticks = iter(range(1000))
    aggregate = user_aggregate("score", given, pa.int64(), "BIGINT")
    return AggregateInstances(aggregate, lambda: float(next(ticks))), given.calls  # type: ignore[attr-defined]


def _tuples(*places: int, entries: dict[int, int] | None = None) -> Tuples:
    """Tuples at these times, each in the entry of its time unless told otherwise."""
    came = [(entries or {}).get(place, place) for place in places]
    return Tuples(np.array(places), np.array(came), [pa.array([VALUES[each] for each in places])])


def _processed(found: Processed | None) -> tuple[int, WindowWork]:
    assert found is not None
    return found.value.as_py(), found.work


def test_a_shed_instance_counts_for_the_next_processed_one() -> None:
    instances, calls = _instances()
    first = instances.process("w0", "g", Extent(0, 3, 3), _tuples(0, 1, 2))
    assert _processed(first) == (23, WindowWork(3, 0, carried=False))
    assert instances.bases == {Extent(0, 3, 3)}
    later = instances.process("w2", "g", Extent(2, 5, 5), _tuples(0, 1, 2, 3, 4, 5))
    assert _processed(later) == (41, WindowWork(2, 2, carried=True))
    assert calls[1:] == [("remove", [5, 7]), ("add", [13, 17])]
    assert later is not None
    assert (later.removing_seconds, later.adding_seconds, later.result_seconds) == (1.0, 1.0, 2.0)


def test_a_late_tuple_is_added_to_the_next_instance_only() -> None:
    instances, calls = _instances()
    late = _tuples(0, 1, 2, 3, entries={1: 3})
    assert _processed(instances.process("w0", "g", Extent(0, 3, 3), late)) == (
        16,
        WindowWork(2, 0, carried=False),
    )
    assert _processed(instances.process("w1", "g", Extent(1, 4, 4), late)) == (
        31,
        WindowWork(2, 1, carried=True),
    )
    assert calls[1:] == [("remove", [5]), ("add", [7, 13])]


def test_an_instance_is_worked_out_afresh_where_told_or_where_its_base_is_incomplete() -> None:
    instances, _ = _instances()
    instances.process("w0", "g", Extent(0, 3, 3), _tuples(0, 1, 2))
    afresh = instances.process("w1", "g", Extent(1, 4, 4), _tuples(0, 1, 2, 3), carry=False)
    assert _processed(afresh) == (31, WindowWork(3, 0, carried=False))
    without = instances.process("w2", "g", Extent(2, 5, 5), _tuples(2, 3, 4))
    assert _processed(without) == (41, WindowWork(3, 0, carried=False))


def test_groups_have_states_of_their_own_and_one_without_tuples_is_forgotten() -> None:
    instances, _ = _instances()
    instances.process("w0", "a", Extent(0, 3, 3), _tuples(0, 1))
    instances.process("w0", "b", Extent(0, 3, 3), _tuples(2))
    assert instances.process("w3", "a", Extent(3, 6, 6), _tuples(0, 1)) is None
    assert _processed(instances.process("w3", "b", Extent(3, 6, 6), _tuples(2, 4))) == (
        17,
        WindowWork(1, 1, True),
    )
    assert instances.bases == {Extent(3, 6, 6)}


def test_a_function_is_worked_out_afresh_each_time() -> None:
    instances = AggregateInstances(user_aggregate("n", len, pa.int64(), "BIGINT"))
    for start in range(3):
        found = instances.process("w", "g", Extent(start, start + 3, 9), _tuples(0, 1, 2, 3, 4))
        assert _processed(found) == (3, WindowWork(3, 0, carried=False))
    assert instances.bases == frozenset()


@pytest.mark.parametrize("place", ["add", "remove", "result"])
def test_a_state_that_raised_is_thrown_away(place: str) -> None:
    failing = []

    def at(reached: str) -> None:
        if reached in failing:
            raise ValueError("not today")

    instances, _ = _instances(at)
    every = _tuples(0, 1, 2, 3, 4, 5)
    instances.process("w0", "g", Extent(0, 3, 6), every)
    failing.append(place)
    told = f"^window w1: aggregate score raised in {place}: ValueError: not today$"
    with pytest.raises(AggregateFailedError, match=told) as raised:
        instances.process("w1", "g", Extent(1, 4, 6), every)
    assert isinstance(raised.value.__cause__, ValueError)
    failing.clear()
    afresh = instances.process("w2", "g", Extent(2, 5, 6), every)
    assert _processed(afresh) == (41, WindowWork(3, 0, carried=False))


def test_an_instance_is_abandoned_at_its_deadline_and_the_next_one_is_worked_out_afresh() -> None:
    slow = []

    def at(reached: str) -> None:
        while reached in slow:
            pass

    instances, _ = _instances(at)
    every = _tuples(0, 1, 2, 3, 4, 5)
    instances.process("w0", "g", Extent(0, 3, 6), every)
    slow.append("add")
    began = time.monotonic()
    with pytest.raises(TimeIsOver):
        within(0.1, lambda: instances.process("w1", "g", Extent(1, 4, 6), every))
    assert 0.1 <= time.monotonic() - began < 5
    slow.clear()
    afresh = within(60, lambda: instances.process("w2", "g", Extent(2, 5, 6), every))
    assert _processed(afresh) == (41, WindowWork(3, 0, carried=False))


def test_work_that_swallows_the_first_signal_is_abandoned_by_the_next() -> None:
    swallowed = []

    def work() -> None:
        while True:
            try:
                time.sleep(30)
            except BaseException:
                if swallowed:
                    raise
                swallowed.append(1)

    with pytest.raises(TimeIsOver):
        within(0.05, work)
    assert swallowed == [1]


def test_without_time_nothing_is_begun_and_elsewhere_nothing_is_done() -> None:
    begun: list[int] = []
    with pytest.raises(TimeIsOver):
        within(0, lambda: begun.append(1))
    told: list[BaseException] = []

    def elsewhere() -> None:
        try:
            within(1, lambda: begun.append(1))
        except ValueError as error:
            told.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(told) == 1
    assert not begun


def test_a_timer_that_ran_before_is_put_back() -> None:
    fired: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: fired.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(TimeIsOver):
            within(0.05, lambda: time.sleep(30))
        assert not fired
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 0.2
        while not fired:
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_timer_that_fires_as_the_work_has_returned_raises_nothing() -> None:
    """A function in C has no frame of Python's: the signal is seen where the work was called."""
    assert within(60, partial(signal.raise_signal, signal.SIGALRM)) is None  # type: ignore[func-returns-value]


def test_a_result_is_returned_however_late_the_timer_fires() -> None:
    """Timers of microseconds fire anywhere: before, within and after; each time the handler and the timer are put back."""
    before, (left, again) = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    outcomes = set()
    for number in range(3000):
        try:
            outcomes.add(within(1e-6 * (number % 300 + 1), lambda: sum(range(200)) > 0))
        except TimeIsOver:
            outcomes.add(False)
        assert signal.getsignal(signal.SIGALRM) is before
        now_left, now_again = signal.getitimer(signal.ITIMER_REAL)
        assert now_left <= left
        assert now_again == again
        assert (now_left > 0) == (left > 0)
    assert outcomes == {True, False}
