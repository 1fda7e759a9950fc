"""A table without an event time is stamped with the time of its batches: its windows are by arrival."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import put_file
from joined_inputs import multiset
from penstock.errors import InputError
from penstock.spark.engine import Engine
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COLUMNS = "k STRING, x BIGINT"
OPTIONS = "path '{}', arrival 'came', max_files_per_trigger '1'"
#: so small that each batch is a window of its own
WINDOW = "window(came, '1 millisecond')"
VIEWS = {
    "all": "SELECT * FROM calls",
    "some": "SELECT k, came FROM calls WHERE x > 20",
    "counted": f"SELECT k, {WINDOW} AS w, count(*) AS n, sum(x) AS s FROM calls GROUP BY k, w",
    "timely": f"SELECT /*+ DEADLINE('1 hour') */ {WINDOW} AS w, count(*) AS n, max(came) AS last FROM calls GROUP BY w",
}


def _engine(spark: SparkSession, folder: Path, table: str = "calls", source: str = "parquet") -> Engine:
    engine = Engine(spark, shards=2, retry_attempts=40, retry_seconds=0.2)
    place = folder / "calls"
    place.mkdir(exist_ok=True)
    return engine.execute(
        f"CREATE TABLE {table} ({COLUMNS}) USING {source} OPTIONS ({OPTIONS.format(place)})"
    )


def _put(folder: Path, number: int) -> None:
    rows = [{"k": "ab"[each % 2], "x": each + number} for each in range(20)]
    put_file(folder / "calls" / f"{number}.parquet", partial(pq.write_table, pa.Table.from_pylist(rows)))


def test_windows_by_arrival_are_those_of_the_stamped_tuples(spark: SparkSession, tmp_path: Path) -> None:
    engine = _engine(spark, tmp_path)
    for name, text in VIEWS.items():
        engine.view(name, text)
    assert "slower path: Penstock adds the arrival time to each tuple" in engine.explain()
    began = spark.sql("SELECT current_timestamp() AS now").first()["now"]
    for number in range(3):
        _put(tmp_path, number)
    run_to_end(engine, tmp_path / "out")
    for number in range(3, 5):
        _put(tmp_path, number)
    run = run_to_end(engine, tmp_path / "out")
    ended = spark.sql("SELECT current_timestamp() AS now").first()["now"]
    stamped = run.results("all").select("k", "x", "came")
    stamps = [row.came for row in stamped.select("came").distinct().collect()]
    assert len(stamps) == 5, "the tuples of a batch came at once"
    assert stamped.count() == 100
    assert began <= min(stamps) <= max(stamps) <= ended
    stamped.write.parquet(str(tmp_path / "stamped"))
    spark.read.parquet(str(tmp_path / "stamped")).createOrReplaceTempView("calls")
    for name, text in VIEWS.items():
        wanted = spark.sql(text)
        assert multiset(run.results(name).select(*wanted.columns)) == multiset(wanted), name
    assert run.misses("timely").count() == 0


def test_records_that_do_not_fit_are_set_aside_and_the_others_stamped(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine = _engine(spark, tmp_path, source="csv")
    put_file(tmp_path / "calls" / "0.csv", lambda path: Path(path).write_text("a,1\nb,two\nc,3\n"))
    engine.view("all", "SELECT * FROM calls")
    run = run_to_end(engine, tmp_path / "out")
    rows = run.results("all").collect()
    assert sorted(row.k for row in rows) == ["a", "c"]
    assert len({row.came for row in rows}) == 1
    assert spark.read.parquet(str(tmp_path / "out" / "quarantine" / "calls")).count() == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("USING parquet OPTIONS (path '{0}', arrival 'X')", "column X is declared twice"),
        (
            "USING parquet OPTIONS (path '{0}', arrival 'penstock_batch')",
            "column name penstock_batch is reserved",
        ),
        (
            "USING parquet OPTIONS (path '{0}', arrival 'a', event_time 'x')",
            "set either `arrival` or `event_time`",
        ),
        ("USING parquet OPTIONS (path '{0}', arrival 'a', static 'true')", "Remove the option arrival"),
        (
            "USING replay OPTIONS (path '{0}', arrival 'a', arrival_time 'x')",
            "has the arrival time arrival_time",
        ),
    ],
)
def test_what_cannot_be_stamped_is_refused(
    spark: SparkSession, tmp_path: Path, options: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Engine(spark).execute(f"CREATE TABLE t ({COLUMNS}) {options.format(tmp_path)}")
