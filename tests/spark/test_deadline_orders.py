"""Orders of windows with deadlines as real jobs over a real log: what they stage is `spark.sql` over the same tuples."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from test_tuple_demands import bag
from test_window_ingest import FILES, NOON, Ingest, parquet, readings

from engine_cases import put_file
from forms import thinned
from penstock.operators.deadlines.aggregates import user_aggregate
from penstock.operators.deadlines.instances import CalledAggregate, Extent
from penstock.operators.routing.routers import HashRouter
from penstock.plan.deadlines import WindowWork
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.declaring.functions import register_aggregate
from penstock.spark.lanes.cells import CellJobs
from penstock.spark.lanes.deadlines.orders import (
    DONE,
    FAILED,
    OVER,
    OrderReport,
    OrderTask,
    SharedPanes,
    run_tasks,
)
from penstock.spark.log.run_files import RunFiles
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.demands import TupleDemand
from penstock.sql.windows.bind import BoundOutput, BoundWindow

pytestmark = pytest.mark.spark

DEMAND = TupleDemand(
    None,
    tuple((name, name) for name in ("ts", "origin", "level", "amount")),
    (),
    "ts",
    HashRouter((), 1).document(),
)
MINUTE = 60_000_000
SIZE, SLIDE = 30 * MINUTE, 10 * MINUTE
START = int(NOON.timestamp()) * 1_000_000
MOMENT = pa.timestamp("us", "UTC")
BUILT_IN = {
    "count(*)": Aggregate("count", None, pa.int64()),
    "sum(amount)": Aggregate("sum", "amount", pa.int64()),
    "avg(amount)": Aggregate("avg", "amount", pa.float64()),
    "min(level)": Aggregate("min", "level", pa.float64()),
    "max(origin)": Aggregate("max", "origin", pa.string()),
    "count(DISTINCT amount)": Aggregate("count_distinct", "amount", pa.int64()),
    "sum(DISTINCT amount)": Aggregate("sum_distinct", "amount", pa.int64()),
    "avg(DISTINCT amount)": Aggregate("avg_distinct", "amount", pa.float64()),
    "sort_array(collect_list(level))": Aggregate("collect_list", "level", pa.list_(pa.float64())),
    "sort_array(collect_set(origin))": Aggregate("collect_set", "origin", pa.list_(pa.string())),
    "mode(amount, true)": Aggregate("mode", "amount", pa.int64()),
    "percentile(amount, 0.5)": Aggregate("percentile", "amount", pa.float64(), 0.5),
}


def window_text(expressions: Sequence[str], keys: Sequence[str]) -> str:
    """A view over `readings`, as Spark reads it."""
    named = ", ".join(f"{text} AS a{number}" for number, text in enumerate(expressions))
    window = "window(ts, '30 minutes', '10 minutes')"
    own = "".join(f"{key}, " for key in keys)
    return f"SELECT {own}{window}.start AS s, {window}.end AS e, {named} FROM readings GROUP BY {own}{window}"


def bound(
    aggregates: Sequence[Aggregate], keys: dict[str, pa.DataType], calls: Sequence[CalledAggregate] = ()
) -> BoundWindow:
    """The same as orders work it out."""
    outputs = [BoundOutput(f"_k{number}", name, kind) for number, (name, kind) in enumerate(keys.items())]
    outputs += [BoundOutput("_w.start", "s", MOMENT), BoundOutput("_w.end", "e", MOMENT)]
    types = [each.aggregate.type for each in calls] or [each.type for each in aggregates]
    outputs += [BoundOutput(f"_a{number}", f"a{number}", kind) for number, kind in enumerate(types)]
    plan = WindowPlan(
        "v", "ts", Windows(SIZE, SLIDE), tuple(keys.items()), tuple(aggregates), ErrorBound(0.1, 0.1)
    )
    return BoundWindow(
        plan, (), None, pa.struct([("start", MOMENT), ("end", MOMENT)]), tuple(outputs), having=None
    )


def with_texts(rows: pa.Table) -> pa.Table:
    """Rows that can be counted: arrays are texts, in which -0.0 is 0.0, as both are the same value."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_list(field.type):
            lists = [[0.0 if each == 0 else each for each in own] for own in rows.column(place).to_pylist()]
            texts = pa.array(list(map(repr, lists)), pa.string())
            rows = rows.set_column(place, field.name, texts)
    return rows


@dataclass
class Orders:
    """A log with tuples, and orders over it."""

    spark: SparkSession
    log: LogReader
    demand: int
    staging: Path

    def task(
        self,
        view: BoundWindow,
        calls: Sequence[CalledAggregate] = (),
        number: int = 0,
        entries: int = FILES,
        **more: Any,
    ) -> OrderTask:
        """An order for the window with a number, of the tuples of so many files."""
        start = START + number * SLIDE
        return OrderTask(
            7,
            view,
            tuple(calls),
            Extent(start, start + SIZE, entries),
            RunFiles(self.log, self.demand).find(-1, entries - 1),
            self.staging,
            **{"deadline": None, **more},
        )

    def run(self, task: OrderTask) -> OrderReport:
        ((report,),) = CellJobs(self.spark, "deadlines").run(run_tasks, [[task]])
        return report

    def oracle(self, text: str, task: OrderTask) -> Counter[Any]:
        tables = [readings(number) for number in range(task.extent.entries)]
        self.spark.createDataFrame(pa.concat_tables(tables)).createOrReplaceTempView("readings")
        rows = self.spark.sql(text).toArrow()
        own = pc.equal(rows.column("s").cast(pa.int64()), task.extent.start)
        return bag(with_texts(rows.filter(own)))

    def staged(self, task: OrderTask, report: OrderReport) -> Counter[Any]:
        assert report.outcome == DONE, report.error
        (file,) = [file for each in report.results for file in each.left]
        rows = pq.read_table(file.path)
        assert (rows.num_rows, file.kind) == (file.rows, "7/v")
        assert rows.column_names[-1] == "_row"
        return bag(with_texts(rows.select([output.name for output in task.view.outputs])))


@pytest.fixture(scope="module")
def _log(_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[LogReader, int]:
    folder = tmp_path_factory.mktemp("orders")
    (folder / "in").mkdir()
    for number in range(FILES):
        put_file(folder / f"in/{number}.parquet", partial(pq.write_table, readings(number)))
    ingest = Ingest(_session, folder, parquet(_session, folder), {})
    demand = ingest.query.plans.demand(DEMAND)
    ingest.run()
    assert len(ingest.entries) == FILES
    return LogReader(ingest.layout.log("readings")), demand


@pytest.fixture
def orders(spark: SparkSession, _log: tuple[LogReader, int], tmp_path: Path) -> Orders:
    return Orders(spark, *_log, tmp_path / "staging")


def mine(
    given: Callable[..., Any], *arguments: str, kind: pa.DataType | None = None
) -> list[CalledAggregate]:
    return [CalledAggregate(user_aggregate("mine", given, kind or pa.int64(), "BIGINT"), arguments)]


def over(calls: Sequence[CalledAggregate], keys: dict[str, pa.DataType] | None = None) -> BoundWindow:
    """A view that calls aggregates of the user's."""
    return bound([], keys or {}, calls)


def summing() -> type:
    """A local class, which Spark sends to its workers whole."""

    class Sum:
        def __init__(self) -> None:
            self.sum = 0

        def add(self, values: pa.Array) -> None:
            self.sum += pc.sum(values).as_py() or 0

        def remove(self, values: pa.Array) -> None:
            self.sum -= pc.sum(values).as_py() or 0

        def result(self) -> int:
            return self.sum

    return Sum


@pytest.mark.parametrize(
    "keys", thinned([{"origin": pa.string(), "level": pa.float64()}, {"level": pa.float64()}, {}], 3)
)
def test_built_in_aggregates_are_those_of_spark(orders: Orders, keys: dict[str, pa.DataType]) -> None:
    view = bound(list(BUILT_IN.values()), keys)
    text = window_text(list(BUILT_IN), list(keys))
    for number, entries in [(0, 1), (3, 3), (-2, 2), (11, 3)]:
        task = orders.task(view, number=number, entries=entries)
        report = orders.run(task)
        expected = orders.oracle(text, task)
        assert orders.staged(task, report) == expected
        assert report.work is not None
        assert report.work.new >= len(expected) > 0
        assert (report.work.expired, report.work.carried, report.carried) == (0, False, None)


@pytest.mark.long
def test_windows_of_kept_partials_are_those_of_spark(orders: Orders) -> None:
    """In either worker, with tuples that came late, windows that go back, and one that has lost its partials."""
    keys = {"origin": pa.string(), "level": pa.float64()}
    view, text = bound(list(BUILT_IN.values()), keys), window_text(list(BUILT_IN), list(keys))
    panes, is_merged = SharedPanes("kept", view.plan), []
    for number, entries in [(0, 1), (0, 1), (1, 1), (3, 2), (3, 3), (-2, 2), (3, 2), (6, 3), (11, 3)]:
        task = orders.task(view, number=number, entries=entries, panes=panes)
        report = orders.run(task)
        assert orders.staged(task, report) == orders.oracle(text, task)
        assert report.is_kept
        assert report.work is not None
        is_merged.append(report.work.carried)
    assert any(is_merged), "each of two workers has made its own by the third order"


def test_a_window_without_tuples_stages_nothing(orders: Orders) -> None:
    report = orders.run(orders.task(bound(list(BUILT_IN.values()), {}), number=500))
    assert (report.outcome, report.work, report.results) == (DONE, WindowWork(0, 0, carried=False), [])
    (report,) = [orders.run(orders.task(bound(list(BUILT_IN.values()), {}), entries=0))]
    assert (report.outcome, report.results) == (DONE, [])


def test_states_are_carried_over_jobs_whatever_was_shed_and_came_late(orders: Orders) -> None:
    class Names:
        """How often each name came with each amount."""

        def __init__(self) -> None:
            self.counts: Counter[Any] = Counter()

        def add(self, names: pa.Array, amounts: pa.Array) -> None:
            self.counts.update(zip(names.to_pylist(), amounts.to_pylist(), strict=True))

        def remove(self, names: pa.Array, amounts: pa.Array) -> None:
            self.counts.subtract(zip(names.to_pylist(), amounts.to_pylist(), strict=True))

        def result(self) -> list[str]:
            return sorted(f"{name} {amount} {n}" for (name, amount), n in self.counts.items() if n)

    def largest(values: pa.Array) -> object:
        return pc.max(values)

    given = {
        "names_with": (Names, "ARRAY<STRING>", pa.list_(pa.string()), ("origin", "amount")),
        "sum_with": (summing(), "BIGINT", pa.int64(), ("amount",)),
        "largest_of": (largest, "INT", pa.int32(), ("amount",)),
    }
    calls = []
    for name, (what, returns, kind, arguments) in given.items():
        register_aggregate(orders.spark, name, what, returns)
        calls.append(CalledAggregate(user_aggregate(name, what, kind, returns), arguments))
    keys = {"level": pa.float64()}
    named = [f"concat_ws(',', {next(iter(given))}(origin, amount))", "sum_with(amount)", "largest_of(amount)"]
    text = window_text(named, list(keys))
    view = over(calls, keys)

    def told(task: OrderTask, report: OrderReport) -> Counter[Any]:
        """Lists as Spark's text has them: rows are counted."""
        (file,) = [file for each in report.results for file in each.left]
        rows = pq.read_table(file.path).select([output.name for output in task.view.outputs])
        place = rows.schema.get_field_index("a0")
        joined = [",".join(each) for each in rows.column(place).to_pylist()]
        return bag(rows.set_column(place, "a0", pa.array(joined, pa.string())))

    carried: bytes | None = None
    #: window, entries, whether the states are given
    for number, entries, carries in [(0, 1, True), (1, 1, True), (4, 2, True), (5, 3, False), (6, 3, True)]:
        task = orders.task(view, calls, number, entries, carried=carried if carries else None)
        report = orders.run(task)
        assert report.outcome == DONE, report.error
        assert told(task, report) == orders.oracle(text, task)
        assert report.work is not None
        assert report.work.carried == (carries and carried is not None)
        assert (report.work.expired > 0) == report.work.carried
        assert report.uncarried == ""
        assert report.carried is not None
        carried = report.carried


def test_the_second_window_of_a_view_in_a_lot_goes_on_from_the_first(orders: Orders) -> None:
    register_aggregate(orders.spark, "sum_with", summing(), "BIGINT")
    calls = [CalledAggregate(user_aggregate("sum_with", summing(), pa.int64(), "BIGINT"), ("amount",))]
    text = window_text(["sum_with(amount)"], [])
    view = over(calls, {})
    lot = [
        replace(orders.task(view, calls, number, 3), follows=number > 0, deadline=deadline)
        for number, deadline in enumerate((None, time.time() - 1, None))
    ]
    ((first, over_time, third),) = CellJobs(orders.spark, "deadlines").run(run_tasks, [lot])
    assert (first.outcome, over_time.outcome, third.outcome) == (DONE, OVER, DONE)
    for task, report in ((lot[0], first), (lot[2], third)):
        assert orders.staged(task, report) == orders.oracle(text, task)
    assert third.work is not None
    assert not third.work.carried, "the one before it has left no states"
    ((_, second),) = CellJobs(orders.spark, "deadlines").run(run_tasks, [[lot[0], lot[2]]])
    assert orders.staged(lot[2], second) == orders.oracle(text, lot[2])
    assert second.work is not None
    assert second.work.carried
    assert second.work.expired > 0


def test_an_order_is_abandoned_at_its_deadline_and_its_worker_answers_the_next(
    orders: Orders, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"

    def for_ever(_: pa.Array) -> int:
        begun.write_text(str(os.getpid()))
        while True:
            pass

    def worker(_: pa.Array) -> int:
        return os.getpid()

    calls = mine(for_ever, "amount")
    seconds = 0.5
    while not begun.exists():
        report = orders.run(orders.task(over(calls), calls, deadline=time.time() + seconds))
        assert (report.outcome, report.work, report.results) == (OVER, None, ())
        assert (report.carried, report.error) == (None, "")
        seconds *= 2
    assert report.seconds > 0
    assert not any(orders.staging.rglob("*.parquet"))
    calls = mine(worker, "amount")
    pids = set()
    for _ in range(40):
        report = orders.run(orders.task(over(calls), calls, deadline=time.time() + 600))
        (file,) = [file for each in report.results for file in each.left]
        pids.update(pq.read_table(file.path).column("a0").to_pylist())
        if int(begun.read_text()) in pids:
            return
    pytest.fail(f"worker {begun.read_text()} does not answer, {pids} do")


def test_an_order_whose_time_is_over_before_it_begins_is_not_begun(orders: Orders) -> None:
    report = orders.run(orders.task(bound(list(BUILT_IN.values()), {}), deadline=time.time() - 1))
    assert (report.outcome, report.results) == (OVER, ())
    assert not orders.staging.exists()


def test_what_the_user_raises_fails_the_window_and_no_other(orders: Orders) -> None:
    def picky(values: pa.Array) -> int:
        if len(values) < 600:
            raise ValueError("too few")
        return len(values)

    calls = mine(picky, "amount")
    view = over(calls, {"origin": pa.string()})
    report = orders.run(orders.task(view, calls, number=0, entries=1))
    assert (report.outcome, report.results) == (FAILED, ())
    line = picky.__code__.co_firstlineno + 2
    assert (
        report.error == f"aggregate mine raised at test_deadline_orders.py line {line}: ValueError: too few"
    )
    assert not orders.staging.exists()
    assert orders.run(orders.task(view, calls, entries=3)).outcome == DONE


def test_states_that_cannot_travel_are_not_carried_and_that_is_told(orders: Orders) -> None:
    class Locked(summing()):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

    class Stubborn(summing()):  # type: ignore[misc]
        def __setstate__(self, _: object) -> None:
            raise ValueError("no way back")

    text = window_text(["sum(amount)"], [])
    calls = mine(Locked, "amount")
    task = orders.task(over(calls), calls)
    report = orders.run(task)
    assert orders.staged(task, report) == orders.oracle(text, task)
    assert report.carried is None
    assert report.uncarried.startswith(
        "the aggregate states cannot be pickled: TypeError: cannot pickle '_thread.lock'"
    )

    calls = mine(summing(), "amount")
    task = orders.task(over(calls), calls, state_bytes=100)
    report = orders.run(task)
    assert orders.staged(task, report) == orders.oracle(text, task)
    assert (report.carried, report.uncarried) == (None, "the aggregate states take more than 100 bytes")
    report = orders.run(replace(task, state_bytes=0))
    assert (report.carried, report.uncarried) == (None, "")

    calls = mine(Stubborn, "amount")
    first = orders.run(orders.task(over(calls), calls))
    assert (first.carried is not None, first.uncarried) == (True, "")
    task = orders.task(over(calls), calls, number=1, carried=first.carried)
    report = orders.run(task)
    assert orders.staged(task, report) == orders.oracle(text, task)
    assert report.work is not None
    assert not report.work.carried
    assert report.uncarried == "the aggregate states cannot be unpickled: ValueError: no way back"
