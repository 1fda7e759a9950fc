"""Dates and timestamps of Parquet files at the edges: before 1582 by Spark 2, and in nanoseconds."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from forms import thinned
from penstock.spark.engine import Engine
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

#: days and microseconds since 1970-01-01: in the years 1000, 1582 (before and after the reform), 1900 and 2020
DAYS = [-354_285, -141_430, -141_420, -25_567, 18_262]
VIEWS = {
    "old": "SELECT id, CAST(day AS STRING) AS day FROM t WHERE day < '1582-10-15'",
    "at": "SELECT id, CAST(moment AS STRING) AS moment FROM t WHERE moment <= TIMESTAMP '1000-01-06 00:00:00'",
    "all": "SELECT id, CAST(day AS STRING) AS day, CAST(moment AS STRING) AS moment FROM t",
}


def write(path: Path, first: int, **told: str) -> None:
    table = pa.table(
        {
            "id": pa.array(range(first, first + len(DAYS))),
            "day": pa.array(DAYS, pa.int32()).cast(pa.date32()),
            "moment": pa.array([day * 86_400_000_000 for day in DAYS]).cast(pa.timestamp("us", "UTC")),
        }
    )
    spark_told = {f"org.apache.spark.{name}": text for name, text in told.items()}
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(spark_told)


@pytest.mark.parametrize("mode", thinned(["LEGACY", "CORRECTED"], 2))
def test_old_dates_are_rebased_where_spark_rebases_them(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "spark2.parquet", 0, version="2.4.8", timeZone="UTC")
    write(folder / "spark4.parquet", 10, version="4.0.0")
    write(folder / "spark4_legacy.parquet", 20, version="4.0.0", legacyDateTime="", timeZone="UTC")
    write(folder / "others.parquet", 30)
    name = "spark.sql.parquet.datetimeRebaseModeInRead"
    spark.conf.set(name, mode)
    try:
        columns = "id BIGINT, day DATE, moment TIMESTAMP"
        engine = Engine(spark).execute(
            f"CREATE TABLE t ({columns}) USING parquet OPTIONS (path '{folder}');"
            + "".join(f"CREATE VIEW {view} AS {text};" for view, text in VIEWS.items())
        )
        run = run_to_end(engine, tmp_path / "out", seconds=None)
        spark.read.schema(columns).parquet(str(folder)).createOrReplaceTempView("t")
        wanted = {view: sorted(map(tuple, spark.sql(text).collect())) for view, text in VIEWS.items()}
    finally:
        spark.conf.unset(name)
        spark.catalog.dropTempView("t")
    found = {view: sorted(map(tuple, run.results(view).collect())) for view in VIEWS}
    assert found == wanted
    moved = {row[0]: row[1:] for row in found["all"]}
    assert moved[0] == moved[20] != moved[10]
    assert moved[30] == moved[0 if mode == "LEGACY" else 10]


def test_nanoseconds_of_parquet_files_are_answered_as_spark_reads_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number, unit in enumerate(("us", "ns")):
        moments = pa.array([0, 1_000_000_000, 1_000_001_000], pa.int64()).cast(pa.timestamp("ns", "UTC"))
        table = pa.table({"id": pa.array([0, 1, 2]), "moment": moments.cast(pa.timestamp(unit, "UTC"))})
        pq.write_table(table, folder / f"{number}.parquet", version="2.6", coerce_timestamps=None)
    engine = Engine(spark).execute(
        f"CREATE TABLE t (id BIGINT, moment TIMESTAMP) USING parquet OPTIONS (path '{folder}');"
        "CREATE VIEW late AS SELECT id FROM t WHERE moment > TIMESTAMP '1970-01-01 00:00:01';"
    )
    run = run_to_end(engine, tmp_path / "out", seconds=None)
    assert [row.id for row in run.results("late").collect()] == [2]
    assert run.status().streams["t"].quarantined == {"unreadable Parquet file": 1}
    (aside,) = spark.read.parquet(str(tmp_path / "out" / "quarantine" / "t")).collect()
    assert "column moment is stored as timestamp[ns, tz=UTC]" in aside.reason
