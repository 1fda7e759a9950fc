"""Window views over a window view: their rows are those of their text over that view's rows, early and in the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from derived_cases import (
    FARES,
    OVER,
    assert_same_rows,
    expected,
    random_view,
    rides_engine,
    row_counts,
    write,
)
from forms import ALL
from penstock.errors import InputError
from penstock.monitor.folder import folder_status
from penstock.spark.reporting.catalog import read_catalog
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

#: views of which expressions raise, or what they add up does not fit, and what Spark answers without that
RAISING = {
    "ratio": (
        "SELECT window(w, '2 seconds') AS h, sum(10 / (n % 2)) AS r, count(*) AS c FROM fares GROUP BY h",
        "SELECT window(w, '2 seconds') AS h, sum(10 / (n % 2)) AS r, count(*) AS c FROM fares WHERE n % 2 = 1 GROUP BY h",
    ),
    "whole": (
        "SELECT window(w, '2 seconds') AS h, 1 / (count(*) % 2) AS part FROM fares WHERE 1 / (n % 2) > 0 GROUP BY h",
        "SELECT window(w, '2 seconds') AS h, try_divide(1, count(*) % 2) AS part FROM fares WHERE n % 2 = 1 GROUP BY h",
    ),
    "large": (
        "SELECT window(w, '2 seconds') AS h, sum(n + 9223372036854770000) AS s FROM fares GROUP BY h",
        "SELECT window(w, '2 seconds') AS h, try_sum(n + 9223372036854770000) AS s FROM fares GROUP BY h",
    ),
}


def test_in_the_end_they_are_their_text_over_the_view_beneath(spark: SparkSession, tmp_path: Path) -> None:
    """Three runs: what the first has told beforehand the second corrects, the third makes final; one view is away in the second."""
    data, out = tmp_path / "data", tmp_path / "out"
    rng = np.random.default_rng(3)
    random = {f"random_{number}": random_view(rng) for number in range(12 if ALL else 1)}
    early = dict(list(random.items())[: len(random) // 2])
    raising = {name: text for name, (text, _) in RAISING.items()}
    views = {**OVER, **raising, **random}
    without = {name: text for name, text in views.items() if name != "ended"}
    lives = (
        (range(4), {**OVER, **raising, **early}, False),
        (range(4, 5), without, False),
        (range(5, 6), views, True),
    )
    for files, present, ended in lives:
        write(data, files)
        engine = rides_engine(spark, data).add_views({"fares": FARES, **present})
        run = run_to_end(engine, out, ended=ended, seconds=None)
    answers = {name: answer for name, (_, answer) in RAISING.items()}
    for name, wanted in expected(spark, data, {"fares": FARES, **OVER, **random, **answers}).items():
        same = assert_same_rows(run.results(name), wanted)
        assert name in random or same
    for name in OVER:
        told = run.changes(name)
        assert told.where("is_final AND coverage <> 1 OR slack IS NULL").count() == 0
        assert max(row_counts(told).values()) == 1, "nothing is told twice"
    # the tuples of the second run are late by up to 4 s, less than what makes a window final
    corrected = run.changes("marked").where("revision > 0 AND NOT is_final")
    assert {row.op for row in corrected.select("op").distinct().collect()} == {"upsert", "delete"}


@pytest.mark.long
def test_they_come_and_go_and_change_while_the_engine_runs(spark: SparkSession, tmp_path: Path) -> None:
    data, out = write(tmp_path / "data", range(3)), tmp_path / "out"
    taken: list[tuple[int, int]] = []
    engine = rides_engine(spark, data).add_views({"fares": FARES, "daily": OVER["daily"]})
    engine.sink("daily", lambda rows, cut: taken.append((cut, rows.count())))
    run = engine.start(out)
    wait_for(run, lambda: run.changes("daily").where("revision = 0 AND NOT is_final").count() > 0)
    with pytest.raises(InputError, match=r"View daily selects from fares\. Drop daily too"):
        engine.drop("fares")
    engine.add_views({"ended": OVER["ended"], "busiest": OVER["busiest"]})
    assert "daily: windows of 4 seconds" in run.explain()
    write(data, range(3, 4))
    wait_for(run, lambda: "ended" in existing(out) and run.results("ended").count() > 0)
    wait_for(run, lambda: sum(rows for _, rows in taken) == run.changes("daily").count())
    wait_for(run, lambda: folder_status(out)["views"]["daily"]["early"] == begun_windows(run, "daily"))
    assert len({cut for cut, _ in taken}) == len(taken)
    engine.drop("busiest", "daily")
    with pytest.raises(InputError, match="Column `n` does not exist"):
        engine.view("fares", FARES.replace(" AS n", " AS m"))
    engine.view("fares", FARES.replace("fare > 0.1", "fare > 0.3").replace("sum(fare)", "sum(fare + 1)"))
    write(data, range(4, 5))
    wait_for(run, lambda: run.status().streams["rides"].tuples == 10_000)
    run.stop()
    engine.add_views({"daily": OVER["daily"], "busiest": OVER["busiest"]})
    run = run_to_end(engine, out, ended=True, seconds=None)
    run.results("fares").createOrReplaceTempView("fares")
    for name in ("daily", "ended"):
        assert assert_same_rows(run.results(name), spark.sql(OVER[name]))


def begun_windows(run: Run, view: str) -> int:
    return run.changes(view).where("revision = 0").select("h").distinct().count()


def existing(out: Path) -> set[str]:
    return set(read_catalog(Layout(out, out))["views"])


def wait_for(run: Run, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not is_so():
        assert run.active
        assert time.monotonic() < deadline, "in time"
        time.sleep(0.2)
