"""Views that are read by name and replaced: those over them follow, in whatever order they are declared."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from test_over_inner_queries import COLUMNS, COUNTS, PER_CITY, SUMS, write

from penstock.errors import InputError
from penstock.spark.engine import Engine
from penstock.spark.pruning import prune
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.refreshed import RefreshedDefinition
from penstock.trigger import Trigger

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MET = "SELECT a.city, a.n, b.s FROM counts a JOIN sums b ON a.city = b.city AND a.w = b.w"


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Engine:
    write(tmp_path / "in", range(3))
    script = f"CREATE TABLE t ({COLUMNS}) USING parquet OPTIONS (path '{tmp_path / 'in'}', event_time 'ts')"
    return Engine(spark).execute(script).add_views({"counts": COUNTS, "sums": SUMS})


def test_one_that_was_declared_before_what_it_reads_is_answered(engine: Engine, tmp_path: Path) -> None:
    engine.view("above", MET).view("below", f"{MET} WHERE a.n > 0").view("above", "SELECT city, s FROM below")
    run = engine.start(tmp_path / "out", trigger=Trigger.available_now(ended=True))
    assert run.await_termination(300)
    run.stop()
    assert run.results("above").count() == run.results("below").count() > 0


def test_both_redefined_at_once_the_upper_one_first(engine: Engine) -> None:
    engine.view("above", MET)
    engine.add_views(
        {"above": f"{MET} WHERE a.n > 0", "counts": COUNTS.replace("FROM t", "FROM t WHERE qty > 2")}
    )
    above, counts = (engine._declared.views[name].definition for name in ("above", "counts"))
    assert isinstance(above, RefreshedDefinition)
    assert counts.id in {each.id for each in above.views}


def test_a_union_is_replaced_while_a_run_goes_on(engine: Engine, tmp_path: Path) -> None:
    united = "SELECT id, city FROM t UNION ALL SELECT id, city FROM t WHERE qty > 2"
    engine.add_views({"u": united, "per": PER_CITY})
    engine.view("above", "SELECT u.id, u.city, p.n FROM u JOIN per p ON u.city = p.city")
    run = engine.start(tmp_path / "out")
    try:
        _until(lambda: run.results("above").count() > 0)
        engine.view("u", united.replace("SELECT id,", "SELECT id + 1000 AS id,"))
        write(tmp_path / "in", range(3, 5))
        _until(lambda: run.results("above").where("id < 1000").count() == 0 < run.results("above").count())
    finally:
        run.stop()


def test_rows_that_others_read_by_name_stay(engine: Engine) -> None:
    engine.view("above", MET)
    with pytest.raises(InputError, match="View counts has retain, and view above reads its rows"):
        engine.execute(f"CREATE OR REPLACE VIEW counts TBLPROPERTIES (retain '1 day') AS {COUNTS}")


def test_prune_holds_rows_that_others_read_by_name(engine: Engine, tmp_path: Path) -> None:
    engine.view("above", MET).view("alone", SUMS.replace("qty > 1", "qty > 0"))
    run = engine.start(tmp_path / "out", trigger=Trigger.available_now(ended=True))
    assert run.await_termination(300)
    run.stop()
    told = {each.name: each for each in prune(Layout.of(tmp_path / "out", None), -1, only_tell=True)}
    assert "view above" in told["counts"].by
    assert told["counts"].held > 0
    assert told["counts"].rows == 0
    assert (told["alone"].held, told["alone"].rows > 0) == (0, True)


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 240
    while True:
        try:
            if holds():
                return
        except InputError:
            # nothing is answered yet
            pass
        assert time.monotonic() < end
        time.sleep(0.3)
