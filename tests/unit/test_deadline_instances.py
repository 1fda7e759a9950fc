"""An instance of a window from the last processed one: what is added, what is removed, which groups there are, what fails."""

from __future__ import annotations

import errno
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import AggregateFailedError
from penstock.operators.deadlines.aggregates import user_aggregate
from penstock.operators.deadlines.instances import CalledAggregate, Carried, Extent, Tuples, WorkedOut
from penstock.operators.deadlines.order import OrderPlan, work_out
from penstock.operators.deadlines.time_limit import TimeIsOver, unless_asked, within
from penstock.operators.windows.rows import OVERFLOWED
from penstock.plan.deadlines import WindowWork
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows

VALUES = [5, 7, 11, 13, 17, 19]
GROUPED = (("g", pa.string()),)


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


def _calls_of(given: object, *arguments: str, kind: pa.DataType | None = None) -> CalledAggregate:
    return CalledAggregate(user_aggregate("score", given, kind or pa.int64(), "T"), arguments)


def _plan(
    calls: Sequence[CalledAggregate] = (),
    aggregates: Sequence[Aggregate] = (),
    keys: tuple[tuple[str, pa.DataType], ...] = (),
) -> OrderPlan:
    window = WindowPlan("v", "t", Windows(3, 1), keys, tuple(aggregates), ErrorBound(0.1, 0.1))
    return OrderPlan(window, tuple(calls))


class Orders:
    """A view with one sum, whose states go from each instance that is done to the next."""

    def __init__(
        self, at: Callable[[str], None] = lambda _: None, keys: tuple[tuple[str, pa.DataType], ...] = ()
    ) -> None:
        given = type("Told", (Told,), {"calls": [], "at": staticmethod(at)})
        self.calls: list[tuple[str, list[Any]]] = given.calls  # type: ignore[attr-defined]
        self._plan = _plan([_calls_of(given, "x")], keys=keys)
        self._ticks = iter(range(1000))
        self.carried: Carried | None = None

    def work_out(self, extent: Extent, tuples: Tuples, *, carry: bool = True) -> WorkedOut:
        carried, self.carried = self.carried, None
        found = work_out(
            self._plan, extent, tuples, carried if carry else None, lambda: float(next(self._ticks))
        )
        self.carried = found.carried
        return found


def _tuples(*places: int, entries: dict[int, int] | None = None, groups: str = "") -> Tuples:
    """Tuples at these times, each in the entry of its time unless told otherwise."""
    came = np.array([(entries or {}).get(place, place) for place in places], np.int64)
    columns = pa.table({"x": pa.array([VALUES[each] for each in places], pa.int64())})
    if groups:
        columns = columns.append_column("g", pa.array(list(groups)))
    return Tuples(columns, np.array(places, np.int64), came)


def _processed(found: WorkedOut) -> tuple[int, WindowWork]:
    assert found.rows.column_names == ["_a0", OVERFLOWED]
    (value,) = found.rows.column("_a0").to_pylist()
    return value, found.work


def _groups(found: WorkedOut) -> dict[str, int]:
    return dict(zip(found.rows.column("g").to_pylist(), found.rows.column("_a0").to_pylist(), strict=True))


def test_a_shed_instance_counts_for_the_next_processed_one() -> None:
    orders = Orders()
    first = orders.work_out(Extent(0, 3, 3), _tuples(0, 1, 2))
    assert _processed(first) == (23, WindowWork(3, 0, carried=False))
    assert orders.carried is not None
    assert (orders.carried.extent, orders.carried.tuples) == (Extent(0, 3, 3), 3)
    later = orders.work_out(Extent(2, 5, 5), _tuples(0, 1, 2, 3, 4, 5))
    assert _processed(later) == (41, WindowWork(2, 2, carried=True))
    assert orders.calls[1:] == [("remove", [5, 7]), ("add", [13, 17])]
    assert (later.removing_seconds, later.adding_seconds, later.result_seconds) == (1.0, 1.0, 2.0)


def test_a_late_tuple_is_added_to_the_next_instance_only() -> None:
    orders = Orders()
    late = _tuples(0, 1, 2, 3, entries={1: 3})
    assert _processed(orders.work_out(Extent(0, 3, 3), late)) == (16, WindowWork(2, 0, carried=False))
    assert _processed(orders.work_out(Extent(1, 4, 4), late)) == (31, WindowWork(2, 1, carried=True))
    assert orders.calls[1:] == [("remove", [5]), ("add", [7, 13])]


def test_an_instance_is_worked_out_afresh_where_told_or_where_its_base_is_incomplete() -> None:
    orders = Orders()
    orders.work_out(Extent(0, 3, 3), _tuples(0, 1, 2))
    afresh = orders.work_out(Extent(1, 4, 4), _tuples(0, 1, 2, 3), carry=False)
    assert _processed(afresh) == (31, WindowWork(3, 0, carried=False))
    without = orders.work_out(Extent(2, 5, 5), _tuples(2, 3, 4))
    assert _processed(without) == (41, WindowWork(3, 0, carried=False))


def test_groups_have_states_of_their_own_and_one_without_tuples_is_forgotten() -> None:
    orders = Orders(keys=GROUPED)
    assert _groups(orders.work_out(Extent(0, 3, 3), _tuples(0, 1, 2, groups="aab"))) == {"a": 12, "b": 11}
    every = _tuples(0, 1, 2, 3, 4, groups="aabbc")
    found = orders.work_out(Extent(2, 5, 5), every)
    assert (_groups(found), found.work) == ({"b": 24, "c": 17}, WindowWork(2, 2, carried=True))
    assert orders.calls[2:] == [("add", [13]), ("add", [17])], "a is forgotten without a call"
    assert orders.carried is not None
    assert orders.carried.keys.to_pydict() == {"g": ["b", "c"]}
    assert orders.carried.counts.tolist() == [2, 1]


def test_groups_are_those_of_spark() -> None:
    keys = pa.array([-0.0, 0.0, None, np.nan, -np.nan, None], from_pandas=False)
    tuples = Tuples(pa.table({"k": keys, "x": pa.array(VALUES)}), np.arange(6), np.arange(6))
    for plan in (
        _plan([_calls_of(Told, "x")], keys=(("k", pa.float64()),)),
        _plan(aggregates=[Aggregate("sum", "x", pa.int64())], keys=(("k", pa.float64()),)),
    ):
        Told.calls, Told.at = [], staticmethod(lambda _: None)
        early = work_out(plan, Extent(0, 4, 9), tuples)
        rows = work_out(plan, Extent(0, 6, 9), tuples, early.carried).rows
        assert rows.num_rows == 3
        assert sorted(map(repr, rows.select(["k", "_a0"]).to_pydict().items())) == sorted(
            map(repr, {"k": [0.0, None, np.nan], "_a0": [12, 30, 30]}.items())
        )


def test_a_function_is_worked_out_afresh_each_time_beside_a_class_that_is_carried() -> None:
    def many(values: pa.Array) -> int:
        return len(values)

    every = _tuples(0, 1, 2, 3, 4)
    alone = _plan([_calls_of(many, "x")])
    for start in range(3):
        found = work_out(alone, Extent(start, start + 3, 9), every)
        assert _processed(found) == (3, WindowWork(3, 0, carried=False))
        assert found.carried is None
    Told.calls, Told.at = [], staticmethod(lambda _: None)
    both = _plan([_calls_of(Told, "x"), _calls_of(many, "x")], keys=())
    ticks = iter(range(1000))
    early = work_out(both, Extent(0, 3, 9), every, None, lambda: float(next(ticks)))
    assert early.adding_seconds == 2.0
    later = work_out(both, Extent(1, 4, 9), every, early.carried, lambda: float(next(ticks)))
    assert later.rows.select(["_a0", "_a1"]).to_pydict() == {"_a0": [31], "_a1": [3]}
    assert later.work == WindowWork(1, 1, carried=True)
    assert (later.adding_seconds, later.removing_seconds) == (1.0, 1.0), "the function's are the result's"
    assert later.result_seconds == 5.0


def test_a_window_without_tuples_has_no_groups_and_leaves_nothing() -> None:
    orders = Orders(keys=GROUPED)
    orders.work_out(Extent(0, 3, 3), _tuples(0, 1, 2, groups="abb"))
    found = orders.work_out(Extent(3, 6, 6), _tuples(0, 1, 2, groups="abb"))
    assert found.rows.schema == pa.schema([*GROUPED, ("_a0", pa.int64()), (OVERFLOWED, pa.bool_())])
    assert found.rows.num_rows == 0
    assert orders.carried is None
    built = _plan(aggregates=[Aggregate("count", None, pa.int64())])
    assert work_out(built, Extent(3, 6, 6), _tuples(0, 1)).rows.num_rows == 0


def test_aggregates_are_of_one_kind() -> None:
    count = Aggregate("count", None, pa.int64())
    with pytest.raises(ValueError, match="view v has 2 built-in aggregates and 1 of your own: a view can "):
        _plan([_calls_of(len, "x")], [count, count])


@pytest.mark.parametrize("place", ["add", "remove", "result"])
def test_what_a_state_raises_names_the_place(place: str) -> None:
    failing = []

    def at(reached: str) -> None:
        if reached in failing:
            raise ValueError("not today")

    orders = Orders(at)
    every = _tuples(0, 1, 2, 3, 4, 5)
    orders.work_out(Extent(0, 3, 6), every)
    failing.append(place)
    told = (
        rf"^aggregate score raised in {place} at test_deadline_instances.py line \d+: ValueError: not today$"
    )
    with pytest.raises(AggregateFailedError, match=told) as raised:
        orders.work_out(Extent(1, 4, 6), every)
    assert isinstance(raised.value.__cause__, ValueError)
    failing.clear()
    assert _processed(orders.work_out(Extent(2, 5, 6), every)) == (41, WindowWork(3, 0, carried=False))


def test_an_instance_is_abandoned_at_its_deadline_and_the_next_one_is_worked_out_afresh() -> None:
    slow = []

    def at(reached: str) -> None:
        while reached in slow:
            pass

    orders = Orders(at)
    every = _tuples(0, 1, 2, 3, 4, 5)
    orders.work_out(Extent(0, 3, 6), every)
    slow.append("add")
    with pytest.raises(TimeIsOver):
        within(0.1, lambda: orders.work_out(Extent(1, 4, 6), every))
    slow.clear()
    afresh = within(60, lambda: orders.work_out(Extent(2, 5, 6), every))
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


def test_work_that_is_asked_to_give_way_is_abandoned() -> None:
    looks: list[int] = []

    def is_asked() -> bool:
        looks.append(1)
        return len(looks) > 3

    def work() -> None:
        while True:
            time.sleep(30)

    with pytest.raises(TimeIsOver):
        unless_asked(is_asked, work)
    assert len(looks) == 4
    assert unless_asked(lambda: False, lambda: 7) == 7
    begun: list[int] = []
    with pytest.raises(TimeIsOver):
        unless_asked(lambda: True, lambda: begun.append(1))
    assert not begun


def test_a_look_that_takes_longer_than_the_timer_is_interrupted_by_none() -> None:
    looks: list[int] = []
    running: list[int] = []

    def is_asked() -> bool:
        running.append(1)
        looks.append(len(running))
        if len(looks) < 5:
            time.sleep(0.06)
        running.pop()
        return False

    def work() -> int:
        while len(looks) < 5:
            pass
        return 7

    assert unless_asked(is_asked, work) == 7
    assert set(looks) == {1}


def test_a_look_that_fails_says_nothing() -> None:
    looks: list[int] = []

    def is_asked() -> bool:
        looks.append(1)
        if len(looks) < 4:
            raise OSError(errno.EIO, "Input/output error")
        return True

    with pytest.raises(TimeIsOver):
        unless_asked(is_asked, lambda: time.sleep(30))
    assert len(looks) == 4


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
