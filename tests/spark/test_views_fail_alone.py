"""One of two views of a lane fails for a real cause: the other is right, the sick one says so, and nothing of it is lost once the cause is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from joined_inputs import wait
from order_files import COLUMNS, expected, values, write
from penstock import Engine
from penstock.errors import StreamFailedError
from penstock.monitor.folder import folder_status
from penstock.monitor.overview import view_rows
from penstock.monitor.report import status_lines
from penstock.monitor.verification import verify
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger
from read_results import published

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

WINDOW = "window(seen, '200 days') AS w"
#: by lane: one that calls `touchy`, and one that does not
RUNNING = {
    "sick_running": "SELECT name, touchy(count(*)) AS n FROM orders GROUP BY name",
    "sick_having": "SELECT name, sum(amount) AS s FROM orders GROUP BY name HAVING touchy(count(*)) % 2 = 0",
    "sound_running": "SELECT name, count(*) AS n, sum(amount) AS s FROM orders GROUP BY name",
    "computed": "SELECT name, reverse(name) AS r, count(*) AS n FROM orders GROUP BY name",
}
WINDOWS = {
    "sick_window": f"SELECT name, {WINDOW}, touchy(count(*)) AS n FROM orders GROUP BY name, w",
    "sound_window": f"SELECT name, {WINDOW}, count(*) AS n FROM orders GROUP BY name, w",
}
OVER_RUNNING = {
    "sick_live": "SELECT n % 2 AS k, touchy(max(n)) AS t FROM sound_running GROUP BY n % 2",
    "sound_live": "SELECT n % 2 AS k, sum(s) AS t FROM sound_running GROUP BY n % 2",
}
OVER_WINDOWS = {
    "sick_derived": "SELECT name, touchy(sum(n)) AS t FROM sound_window GROUP BY name",
    "sound_derived": "SELECT name, sum(n) AS t FROM sound_window GROUP BY name",
}
#: over one that fails: complete when that is
OVER_SICK = {"over_sick": "SELECT sum(n) AS t FROM sick_running"}
ALL = {**RUNNING, **WINDOWS, **OVER_RUNNING, **OVER_WINDOWS, **OVER_SICK}
SICK = sorted(name for name in ALL if name.startswith("sick"))
SOUND = sorted(ALL.keys() - {*SICK, *OVER_SICK})
WORDS = "function touchy raised: ValueError: too much for me"


def _touchy(mended: Path, most: int = 20) -> Callable[[pa.Array], pa.Array]:
    """A function that only few groups are too much for, until it is mended."""

    def touchy(counts: pa.Array) -> pa.Array:
        if not mended.exists() and (pc.max(counts).as_py() or 0) > most:
            raise ValueError("too much for me")
        return counts

    return touchy


def _engine(
    spark: SparkSession,
    data: Path,
    views: dict[str, str],
    touchy: Callable[[pa.Array], pa.Array],
    **settings: Any,
) -> Engine:
    made = Engine(spark, retry_seconds=0.2, **settings)
    made.function("touchy", touchy, "BIGINT")
    made.execute(
        f"CREATE TABLE orders ({COLUMNS}) USING parquet OPTIONS (path '{data}', max_files_per_trigger '1', event_time 'seen');"
    )
    return made.add_views(views)


def _right(spark: SparkSession, data: Path, run: Run, names: list[str], views: dict[str, str]) -> None:
    wanted = expected(spark, data, {name: text for name, text in views.items() if name in names})
    for name in names:
        found = [
            {key: each for key, each in row.items() if key != "corrected_after_final"}
            for row in published(run, name)
        ]
        assert values(found) == wanted[name], name


def _revisions(run: Run, view: str) -> Counter[str]:
    """How often each revision of each row was published."""
    return Counter(map(repr, run.changes(view).collect()))


def test_what_is_available_is_answered_beside_views_that_fail_and_these_are_made_up_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Four runs: all is well; some groups are too much; they still are, and more comes; mended, and the stream ends."""
    data, out, mended = tmp_path / "data", tmp_path / "out", tmp_path / "mended"
    touchy = _touchy(mended)

    write(data, range(1))
    run = _engine(spark, data, ALL, touchy).start(out, trigger=Trigger.available_now())
    assert run.await_termination(300)
    run.stop()
    assert not run.events("view_failed")
    for files in (range(1, 4), range(4, 6)):
        write(data, files)
        run = _engine(spark, data, ALL, touchy).start(out, trigger=Trigger.available_now())
        with pytest.raises(StreamFailedError, match=r"^some views are incomplete: ") as failed:
            run.await_termination(300)
        run.stop()
        told = str(failed.value)
        for name in SICK:
            assert f"view {name}: {WORDS}" in told
        assert "view over_sick: its input is incomplete" in told
        assert not any(name in told for name in SOUND)
        assert sorted(event["view"] for event in run.events("view_failed")) == SICK
        assert {event["cause"] for event in run.events("view_failed")} == {"function_failed"}
        assert not run.events("lane_failed")
        # with the task that raises Spark now and then ends a worker of another job
        assert {event["cause"] for event in run.events("lane_retried")} <= {"worker_lost"}
        status = folder_status(out)
        assert status["state"] == "failed"
        states = {row.name: row.state for row in view_rows(status)}
        assert sorted(name for name, state in states.items() if state == "failed") == SICK
        shown = "\n".join(status_lines(status, verbose=True))
        for name in SICK:
            assert f"view {name}" in shown
            assert WORDS in shown
        _right(spark, data, run, SOUND, ALL)
        assert verify(out).faults == []
    layout = Layout.of(out, None)
    assert list(layout.waiting_rows("orders.running.0.results").iterdir())
    mended.touch()
    run = _engine(spark, data, ALL, touchy).start(out, trigger=Trigger.available_now(ended=True))
    assert run.await_termination(300)
    run.stop()
    _right(spark, data, run, sorted(ALL), ALL)
    for name in SICK:
        assert set(_revisions(run, name).values()) == {1}, name
    assert not list(layout.waiting_rows("orders.running.0.results").iterdir())
    states = {row.name: row.state for row in view_rows(folder_status(out))}
    assert "failed" not in states.values()
    assert verify(out).faults == []
    counts = folder_status(out)["views"]
    for sick, sound in (("sick_running", "sound_running"), ("sick_window", "sound_window")):
        assert (
            counts[sick]["rows"] - counts[sick]["revised_rows"]
            == counts[sound]["rows"] - counts[sound]["revised_rows"]
        )


def test_a_run_goes_on_beside_a_view_that_fails_and_answers_it_once_it_can(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, out, mended = tmp_path / "data", tmp_path / "out", tmp_path / "mended"
    names = ("sick_running", "sound_running", "sick_window", "sound_window", "over_sick")
    # the first file is in several windows: these are answered at once
    views = {name: ALL[name].replace("200 days", "20 days") for name in names}
    write(data, range(1))
    run = _engine(spark, data, views, _touchy(mended, 0), idle_seconds=0).start(out)
    try:
        sick = {"sick_running", "sick_window"}
        wait(lambda: {event["view"] for event in run.events("view_retried")} == sick, run)
        write(data, range(1, 3))
        wait(lambda: run.status().streams["orders"].tuples == 180, run)
        wait(lambda: sum(row["n"] for row in published(run, "sound_running")) == 180, run)
        status = run.status()
        assert {name for name, view in status.views.items() if view.trouble is not None} == sick
        trouble = status.views["sick_running"].trouble
        assert trouble is not None
        assert (trouble.state, trouble.views, trouble.reason) == ("retrying", ("sick_running",), WORDS)
        assert status.streams["orders"].state == "running"
        shown = "\n".join(status_lines(folder_status(out), verbose=True))
        assert "RETRYING: view sick_running of stream orders, since " in shown
        assert "changed groups kept for it; nothing of it is lost" in shown
        assert "RETRYING: view sound_running" not in shown
        mended.touch()
        wait(lambda: {event["view"] for event in run.events("view_back")} == sick, run)
        assert all(view.trouble is None for view in run.status().views.values())
        wanted = expected(spark, data, views)
        wait(lambda: values(published(run, "over_sick")) == wanted["over_sick"], run)
    finally:
        run.stop()
    assert {event["cause"] for event in run.events("lane_retried")} <= {"worker_lost"}
    assert not run.events("run_failed")
    _right(spark, data, run, ["sick_running", "sound_running", "over_sick"], views)
    for name in sick:
        assert set(_revisions(run, name).values()) == {1}, name


def test_a_view_is_replaced_by_one_that_works(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    views = {name: ALL[name] for name in ("sick_running", "sound_running")}
    write(data, range(2))
    run = _engine(spark, data, views, _touchy(tmp_path / "never", 0)).start(
        out, trigger=Trigger.available_now()
    )
    with pytest.raises(StreamFailedError, match=r"view sick_running: function touchy raised"):
        run.await_termination(300)
    run.stop()
    views["sick_running"] = "SELECT /*+ BACKFILL */ name, count(*) + 0 AS n FROM orders GROUP BY name"
    write(data, range(2, 3))
    run = _engine(spark, data, views, _touchy(tmp_path / "never", 0)).start(
        out, trigger=Trigger.available_now()
    )
    assert run.await_termination(300)
    run.stop()
    _right(spark, data, run, list(views), views)
    assert not list(Layout.of(out, None).waiting_rows("orders.running.0.results").iterdir())
    (left,) = run.events("view_left")
    assert left["view"] == "sick_running"
    assert left["kept_rows"] >= 6
    assert run.status().views["sick_running"].trouble is None


LANES_OF_THEIR_OWN = {
    "sick_join": "SELECT a.id AS one, touchy(b.amount) AS other FROM orders a JOIN orders b ON a.id = b.id AND a.seen = b.seen",
    "sound_join": "SELECT a.id AS one, b.amount AS other FROM orders a JOIN orders b ON a.id = b.id AND a.seen = b.seen",
    "sick_refreshed": "SELECT /*+ REFRESH('1 second') */ name, touchy(count(*)) AS n FROM orders GROUP BY name",
    "sound_refreshed": "SELECT /*+ REFRESH('1 second') */ name, count(*) AS n FROM orders GROUP BY name",
    "sound_selection": "SELECT id FROM orders WHERE amount > 500",
}


def test_views_with_lanes_of_their_own_fail_alone(spark: SparkSession, tmp_path: Path) -> None:
    data, out, mended = tmp_path / "data", tmp_path / "out", tmp_path / "mended"
    write(data, range(2))
    views, got = LANES_OF_THEIR_OWN, list[Any]()
    for is_mended in (False, True):
        if is_mended:
            mended.touch()
        made = _engine(spark, data, views, _touchy(mended), retry_attempts=1)

        def deliver(frame: Any, _: int, is_mended: bool = is_mended) -> None:
            if not is_mended:
                raise ValueError("no room here")
            got.extend(frame.collect())

        made.sink("sound_selection", deliver)
        run = made.start(out, trigger=Trigger.available_now(ended=True))
        if is_mended:
            assert run.await_termination(300)
        else:
            with pytest.raises(StreamFailedError) as failed:
                run.await_termination(300)
            told = str(failed.value)
            assert "view sick_join: function touchy raised" in told
            assert "view sick_refreshed: function touchy raised" in told
            assert "some sinks lack rows" in told
            assert "sound_join" not in told
            assert "sound_refreshed" not in told
            states = {row.name: row.state for row in view_rows(folder_status(out))}
            assert {name for name, state in states.items() if state == "failed"} == {
                "sick_join",
                "sick_refreshed",
            }
        run.stop()
        names = [name for name in views if is_mended or name.startswith("sound")]
        wanted = expected(spark, data, {name: views[name] for name in names})
        for name in names:
            assert values([row.asDict() for row in run.results(name).collect()]) == wanted[name], name
    assert len(got) == len(wanted["sound_selection"])
