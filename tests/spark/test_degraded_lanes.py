"""A lane that fails costs its own views time, and nobody else anything."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import expected, folder_bag, orders, put_file, rows, script, write_orders
from penstock.errors import StreamFailedError
from penstock.monitor.folder import folder_status
from penstock.monitor.report import status_lines
from penstock.monitor.troubles import take_troubles
from penstock.spark.engine import Engine
from penstock.spark.lanes.cut_lane import CutAnswer
from penstock.spark.lanes.cuts import Cut
from penstock.spark.lanes.windows.lane import WindowLane
from penstock.spark.publication.staged import BatchFiles
from penstock.trigger import Trigger

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

VIEWS = {
    "large": "SELECT * FROM orders WHERE amount > 900",
    "by_name": "SELECT name, window(seen, '1 minute') AS w, count(*) AS n FROM orders GROUP BY name, w",
    "pairs": "SELECT a.id AS one, b.id AS other FROM orders a JOIN orders b ON a.name = b.name AND a.amount = b.amount "
    "AND a.seen < b.seen AND b.seen <= a.seen + INTERVAL 2 MINUTES",
}


def _until(condition: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_selections_and_joins_go_on_beside_windows_that_cannot(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_orders(tmp_path / "in", 1, 300)
    mended, answer = tmp_path / "mended", WindowLane.answer

    def answers_once_mended(lane: WindowLane, cut: Cut, store: BatchFiles) -> CutAnswer:
        if not mended.exists():
            raise ValueError("this lane answers nothing yet")
        return answer(lane, cut, store)

    monkeypatch.setattr(WindowLane, "answer", answers_once_mended)
    engine = Engine(spark, retry_seconds=0.1, retry_attempts=2).execute(script(tmp_path / "in", VIEWS))
    run = engine.start(tmp_path / "out")
    try:
        _until(lambda: len(run.events("lane_retried")) > 3)
        put_file(tmp_path / "in" / "1.parquet", lambda path: pq.write_table(orders(300, 8, 300), path))
        _until(lambda: run.status().streams["orders"].tuples == 600)
        joined = len(run.events("cut"))
        _until(lambda: len(run.events("cut")) > joined or joined > 1)
        assert run.active
        assert not run.await_termination(0.1)
        (told,) = (trouble.line() for trouble in take_troubles(run.status().to_dict()["streams"]))
        assert told.startswith("RETRYING: view by_name of stream orders, since ")
        assert "ValueError: this lane answers nothing yet; retried " in told
        _until(
            lambda: any(
                "RETRYING: view by_name" in line
                for line in status_lines(folder_status(tmp_path / "out"), verbose=True)
            )
        )
        assert run.status().streams["orders"].state == "running"
        mended.touch()
        _until(lambda: bool(run.events("lane_back")))
        assert not take_troubles(run.status().to_dict()["streams"])
    finally:
        run.stop()
    assert not run.events("run_failed")
    tuples = spark.read.parquet(str(tmp_path / "in"))
    wanted = expected(spark, tuples, {name: VIEWS[name] for name in ("large", "pairs")})
    assert rows(run.results("large")) == wanted["large"]
    assert rows(run.results("pairs")) == wanted["pairs"]


def test_what_is_available_is_answered_beside_a_view_that_cannot_be_and_that_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_orders(tmp_path / "in", 2, 300)

    def never(_: WindowLane, cut: Cut, __: BatchFiles) -> CutAnswer:
        raise ValueError(f"never {cut.number}")

    monkeypatch.setattr(WindowLane, "answer", never)
    views = {**VIEWS, "busy": "SELECT name, n FROM by_name WHERE n > 10"}
    engine = Engine(spark).execute(script(tmp_path / "in", views, options=", max_files_per_trigger '1'"))
    run = engine.start(tmp_path / "out", trigger=Trigger.available_now(ended=True))
    with pytest.raises(
        StreamFailedError,
        match=r"^some views are incomplete: views by_name, busy: ValueError: never 0\. "
        r"All others are complete\. Run the same command again to continue$",
    ):
        run.await_termination(600)
    run.stop()
    (failed,) = run.events("run_failed")
    assert (failed["part"], failed["cause"]) == ("windows", "failed")
    assert folder_status(tmp_path / "out")["state"] == "failed"
    tuples = spark.read.parquet(str(tmp_path / "in"))
    wanted = expected(spark, tuples, {name: VIEWS[name] for name in ("large", "pairs")})
    assert rows(run.results("large")) == wanted["large"]
    assert rows(run.results("pairs")) == wanted["pairs"]
    assert set(folder_bag(tmp_path / "out", "orders", by_manifest=True).values()) == {1}
