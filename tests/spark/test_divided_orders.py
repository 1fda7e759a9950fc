"""Orders that are divided among tasks, over a real log and in a lane: their rows are those of `spark.sql`, and nothing is left of one that ends early."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from test_deadline_lane import _counts, _engine, _put
from test_deadline_orders import BUILT_IN, Orders, bound, window_text
from test_deadline_orders import _log as _log
from test_deadline_orders import orders as orders

from joined_inputs import multiset
from penstock.operators.deadlines.run_tuples import Share
from penstock.spark.lanes.cells import CellJobs, TaskRaisedError
from penstock.spark.lanes.deadlines import shares
from penstock.spark.lanes.deadlines.orders import DONE, OVER, OrderTask, SharedPanes, run_tasks
from penstock.spark.lanes.deadlines.shares import ShareTask, lift, work_divided
from penstock.spark.sessions import slots
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

KEYS = {"origin": pa.string(), "level": pa.float64()}


class Replacing(CellJobs):
    """Jobs whose shares are lifted by another function; it counts them."""

    def __init__(self, spark: SparkSession, other: Callable[[ShareTask], Any]) -> None:
        super().__init__(spark, "deadlines")
        self._other = other
        self.jobs: list[str] = []

    def run(
        self, function: Callable[[Any], Any], cells: Sequence[Any], *, is_light: bool = False
    ) -> list[Any]:
        self.jobs.append(function.__name__)
        return super().run(self._other if function is lift else function, cells, is_light=is_light)


def _built_in(orders: Orders, **more: Any) -> OrderTask:
    return orders.task(bound(list(BUILT_IN.values()), KEYS), number=1, entries=3, **more)


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("by_pane", [False, True])
def test_a_divided_order_is_what_spark_says(orders: Orders, count: int, by_pane: bool) -> None:
    task = _built_in(orders, shares=count, deadline=time.time() + 600)
    if by_pane:
        task = replace(task, panes=SharedPanes(f"divided.{count}", task.view.plan))
    report = work_divided(CellJobs(orders.spark, "deadlines"), task)
    assert orders.staged(task, report) == orders.oracle(window_text(list(BUILT_IN), list(KEYS)), task)
    assert report.work is not None
    whole = orders.run(replace(task, shares=1, panes=None))
    assert whole.work is not None
    assert (report.tasks, report.is_kept, report.work.carried) == (count, by_pane, False)
    # partials for later orders have tuples of later windows
    assert report.work.new > whole.work.new if by_pane else report.work.new == whole.work.new
    assert len(list(orders.staging.glob("share-*"))) == count


def test_the_next_order_goes_on_from_what_a_divided_one_has_merged(orders: Orders) -> None:
    jobs, task = CellJobs(orders.spark, "deadlines"), _built_in(orders)
    for number in range(20):
        # of names that no worker knows
        task = replace(task, shares=2, panes=SharedPanes(f"next.{number}", task.view.plan))
        assert work_divided(jobs, task).is_kept
        # idle workers take turns: sooner or later there is a task for each
        for (report,) in jobs.run(run_tasks, [[task]] * (2 + number)):
            if report.work.carried:
                assert report.work.new == 0, "it has read nothing"
                text = window_text(list(BUILT_IN), list(KEYS))
                assert orders.staged(task, report) == orders.oracle(text, task)
                return
    pytest.fail("no worker has what a divided order has merged")


def test_a_share_whose_time_is_over_ends_the_order(orders: Orders) -> None:
    def second_is_over(given: ShareTask) -> Any:
        until = time.time() - 1 if given.share.number else None
        return lift(replace(given, task=replace(given.task, deadline=until)))

    jobs = Replacing(orders.spark, second_is_over)
    task = _built_in(orders, shares=2)
    report = work_divided(jobs, task)
    assert (report.outcome, report.work, report.results, report.tasks) == (OVER, None, (), 2)
    assert jobs.jobs == ["lift"], "nothing is merged"
    assert not any(orders.staging.rglob("*.parquet"))


def test_an_order_whose_time_is_over_after_its_shares_stages_nothing(orders: Orders) -> None:
    def slowly(given: ShareTask) -> Any:
        report = lift(given)
        time.sleep(max(0.0, given.task.deadline - time.time()))  # type: ignore[operator]
        return report

    # warm, so that shares are in time
    work_divided(CellJobs(orders.spark, "deadlines"), _built_in(orders, shares=2))
    jobs = Replacing(orders.spark, slowly)
    task = _built_in(orders, shares=2, deadline=time.time() + 10)
    task = replace(task, staging=orders.staging / "own")
    report = work_divided(jobs, task)
    assert jobs.jobs == ["lift", "merge"]
    assert (report.outcome, report.results) == (OVER, ())
    assert not any((orders.staging / "own").rglob("*.parquet"))


@pytest.mark.parametrize("is_killed", [True, False])
def test_nothing_is_left_of_an_order_that_loses_a_share(orders: Orders, is_killed: bool) -> None:
    def losing(given: ShareTask) -> Any:
        first = replace(given, share=replace(given.share, number=0)).file
        if not given.share.number:
            return lift(given)
        while not first.exists():
            time.sleep(0.01)
        if is_killed:
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("a share failed")

    task = replace(_built_in(orders, shares=2), staging=orders.staging / "own")
    jobs = Replacing(orders.spark, losing)
    with pytest.raises(Exception, match="crashed|exited" if is_killed else "a share failed"):
        work_divided(jobs, task)
    assert jobs.jobs == ["lift"]
    assert not task.staging.exists()
    # and the workers answer
    assert orders.run(replace(task, shares=1)).outcome == DONE


def test_a_share_that_comes_after_its_order_has_gone_makes_no_folder(orders: Orders) -> None:
    task = replace(_built_in(orders, shares=2), staging=orders.staging / "own")
    share = ShareTask(task, Share(0, 2))
    with pytest.raises(TaskRaisedError, match="share-0"):
        CellJobs(orders.spark, "deadlines").run(lift, [share])
    assert not task.staging.exists()


def test_nothing_is_left_of_an_order_that_is_cancelled_in_a_share(orders: Orders) -> None:
    def hanging(given: ShareTask) -> Any:
        report = lift(given)
        if given.share.number:
            time.sleep(600)
        return report

    task = replace(_built_in(orders, shares=2), staging=orders.staging / "own")
    jobs = Replacing(orders.spark, hanging)
    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(work_divided, jobs, task)
        until = time.monotonic() + 60
        while len(list(task.staging.glob("share-*"))) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        began = time.monotonic()
        jobs.cancel()
        with pytest.raises(Exception, match="cancelled"):
            working.result(60)
    assert time.monotonic() - began < 60
    assert jobs.jobs == ["lift"]
    assert not task.staging.exists()


def test_a_lane_divides_what_is_worth_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # one executor is there as a lane begins, the others register later
    found: Iterator[int] = iter(())
    monkeypatch.setattr(slots, "order_slots", lambda _: next(found))
    monkeypatch.setattr(slots, "_ASKED_SECONDS", 0.0)
    monkeypatch.setattr(shares, "LEAST_TUPLES", 50)
    texts = {
        "tumbling": "k, window(ts, '10 seconds') AS w, count(*) AS n, sum(x) AS s, avg(x) AS a, max(x) AS m, "
        "count(DISTINCT x) AS d, sort_array(collect_list(x)) AS l, percentile(x, 0.3) AS p FROM rides GROUP BY 1, 2",
        "sliding": "window(ts, '10 seconds', '5 seconds') AS w, sum(x) AS s, max_by(x, ts) AS last FROM rides GROUP BY 1",
        "real": "window(ts, '10 seconds') AS w, round(sum(x / 7), 6) AS s FROM rides GROUP BY 1",
        "decimal": "window(ts, '10 seconds') AS w, sum(CAST(x / 7 AS DECIMAL(18, 6))) AS s FROM rides GROUP BY 1",
        "called": "window(ts, '10 seconds') AS w, total(x) AS s FROM rides GROUP BY 1",
    }
    (tmp_path / "rides").mkdir()
    tables = [_put(tmp_path, number, 2) for number in range(2)]
    pq.write_table(pa.concat_tables(tables), tmp_path / "all.parquet")
    spark.read.parquet(str(tmp_path / "all.parquet")).createOrReplaceTempView("rides")
    for name, text in texts.items():
        found = chain([1], repeat(3))
        engine = _engine(spark, tmp_path)
        engine.view(name, f"SELECT /*+ DEADLINE('1 hour') */ {text}")
        run = run_to_end(engine, tmp_path / name)
        assert multiset(run.results(name)) == multiset(spark.sql(f"SELECT {text}")), name
        assert _counts(run, name)["released"] == _counts(run, name)["created"] > 0
        divided = run.events("order_divided")
        assert bool(divided) == (name in ("tumbling", "sliding", "decimal")), name
        assert all((each["view"], each["seconds"] > 0) == (name, True) for each in divided)
        assert all(2 <= each["tasks"] <= 3 for each in divided)
        if name == "sliding":
            # later ones are worked out from kept partials
            assert len(divided) < _counts(run, name)["released"]
        assert not list((tmp_path / name).rglob("share-*"))
