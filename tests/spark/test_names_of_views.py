"""Views whose names mean something in a path: they run, their results lie in their folder, and every reader finds them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Engine
from penstock.errors import InputError
from penstock.spark.results.read import open_results
from whole_runs import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ["../../escaped", "a[b]", "a{b}", "*", "100%", "per {hour}?"]


@pytest.mark.long
def test_a_view_s_name_is_no_path_and_no_pattern(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "deep" / "in").mkdir(parents=True)
    at = pa.array([0, 10_000_000], pa.timestamp("us", "UTC"))
    pq.write_table(
        pa.table({"at": at, "k": pa.array([1, 2], pa.int64())}), tmp_path / "deep" / "in" / "0.parquet"
    )
    script = f"CREATE TABLE s (at TIMESTAMP, k BIGINT) USING parquet OPTIONS (path '{tmp_path}/deep/in', event_time 'at');\n"
    for number, name in enumerate(NAMES):
        script += f"CREATE VIEW `{name}` AS SELECT window(at, '{number + 1} seconds') AS w, count(*) + 1 AS n FROM s GROUP BY w;\n"
    hour = "b.at BETWEEN a.at - INTERVAL 1 HOUR AND a.at + INTERVAL 1 HOUR"
    script += f"CREATE VIEW `/join[1]` AS SELECT a.k, a.at FROM s a JOIN s b ON a.k = b.k AND {hour};\n"
    script += (
        "CREATE VIEW `over/it` AS SELECT window(w, '1 minute') AS m, sum(n) AS n FROM `a[b]` GROUP BY m;\n"
    )
    output = tmp_path / "deep" / "out[1]"
    run = run_to_end(Engine(spark).execute(script), str(output), ended=True, seconds=None)
    for name in NAMES:
        assert open_results(spark, output.resolve(), name).count() == 2
        assert run.results(name).count() == 2
    assert open_results(spark, output.resolve(), "/join[1]").count() == 2
    assert [row.n for row in open_results(spark, output.resolve(), "over/it").collect()] == [4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep"]
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["in", "out[1]"]
    assert len(list((output / "results").iterdir())) == len(NAMES) + 2


def test_names_that_cannot_lie_on_disk_are_refused_when_declared(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    table = pa.table({"k": pa.array([1], pa.int64()), "at": pa.array([1], pa.timestamp("us", "UTC"))})
    pq.write_table(table, tmp_path / "in" / "0.parquet")
    engine = Engine(spark).execute(
        f"CREATE TABLE s USING parquet OPTIONS (path '{tmp_path}/in', event_time 'at')"
    )
    grouped = "SELECT count(*) AS n FROM s GROUP BY window(at, '1 minute')"
    for name in ("x" * 300, "a\0b"):
        with pytest.raises(InputError, match=r"view .*(control characters|at most 200)"):
            engine.view(name, grouped)
    # a selection has no folder of its own
    engine.view("x" * 300, "SELECT k FROM s")
    with pytest.raises(InputError, match="are the same name"):
        engine.add_views({"A": "SELECT k FROM s", "a": "SELECT k FROM s WHERE k > 1"})
