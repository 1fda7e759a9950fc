"""How many orders run at once, and what a session with views with a deadline begins with."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.spark.sessions import slots
from penstock.spark.sessions.slots import OrderSlots, order_slots, processors, with_ingest_slot
from penstock.sql.script.script import parse_script


def _session(parallelism: int, concurrent: int) -> Any:
    profiles = SimpleNamespace(defaultResourceProfile=lambda: "default")
    inner = SimpleNamespace(
        resourceProfileManager=lambda: profiles, maxNumConcurrentTasks=lambda _: concurrent
    )
    return SimpleNamespace(
        sparkContext=SimpleNamespace(defaultParallelism=parallelism, _jsc=SimpleNamespace(sc=lambda: inner))
    )


@pytest.mark.parametrize(
    ("parallelism", "concurrent", "wanted"),
    [(2, 3, 2), (2, 2, 1), (8, 8, 7), (1, 1, 1), (2, 64, 2), (4, 0, 3)],
)
def test_orders_leave_a_slot_to_the_ingest(parallelism: int, concurrent: int, wanted: int) -> None:
    assert order_slots(_session(parallelism, concurrent)) == wanted


def test_executors_that_register_later_count(monkeypatch: pytest.MonkeyPatch) -> None:
    # a cluster whose executors have not registered when the lane begins, on a driver with one processor
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    sessions = [_session(2, 0), _session(8, 8), _session(4, 4), SimpleNamespace()]
    clock = [0.0]
    monkeypatch.setattr(slots, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    spark: Any = sessions[0]
    found = OrderSlots(spark)
    assert found.now() == 1
    for session, wanted in zip(sessions[1:], (7, 3, 3), strict=True):
        spark.sparkContext = getattr(session, "sparkContext", None)
        before = found.now()
        clock[0] += 0.9
        assert found.now() == before, "Spark is not asked again and again"
        clock[0] += 0.2
        assert found.now() == wanted


def test_a_local_session_gets_a_slot_more_than_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "processors", lambda: 2)
    wanted = {"spark.master": "local[3]", "spark.default.parallelism": "2"}
    assert with_ingest_slot(None) == with_ingest_slot("local[*]") == wanted
    assert with_ingest_slot("local[2]") is with_ingest_slot("spark://host:7077") is None


def test_a_container_has_as_many_processors_as_it_may_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr(slots, "_QUOTA", quota)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert processors() == 8
    for text, wanted in (("max 100000", 8), ("150000 100000", 2), ("10000 100000", 1), ("9000000 100000", 8)):
        quota.write_text(text)
        assert processors() == wanted


def test_a_script_has_deadlines_where_a_view_has() -> None:
    table = "CREATE TABLE t (ts TIMESTAMP) USING parquet OPTIONS (path 'p', event_time 'ts');"
    view = "CREATE VIEW v AS SELECT {} window(ts, '1 second') AS w, count(*) AS n FROM t GROUP BY w"
    assert parse_script(table + view.format("/*+ DEADLINE('3 seconds') */")).has_deadlines
    assert not parse_script(table + view.format("")).has_deadlines
    assert not parse_script(table + "CREATE VIEW v AS SELECT * FROM t WHERE ts IS NULL").has_deadlines
