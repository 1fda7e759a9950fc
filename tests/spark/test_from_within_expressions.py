"""The word FROM within an expression begins no clause: views with it are answered as Spark answers them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.engine import Engine
from penstock.trigger import Trigger
from spark_answers import in_one_partition, tuples_of

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, a STRING, b STRING, ts TIMESTAMP"
VIEWS = {
    "listed": "SELECT id, a IS DISTINCT FROM b AS d, a IS NOT DISTINCT FROM b, b FROM t WHERE a IS DISTINCT FROM 'x'",
    "starts": "SELECT a is distinct from (b) AS d FROM t",
    "functions": "SELECT extract(minute FROM ts) AS m, trim(BOTH 'x' FROM b) AS c, substring(b FROM 1 FOR 2) AS s, "
    "overlay(b PLACING 'zz' FROM 2 FOR 1) AS o FROM t",
    "conditions": "SELECT id FROM t WHERE extract(minute FROM ts) > 2 AND trim(LEADING FROM b) <> 'y' AND substring(b FROM 1 FOR 1) = 'x' "
    "AND overlay(b PLACING 'zz' FROM 2) IS DISTINCT FROM a",
    "grouped": "SELECT a IS DISTINCT FROM b AS d, count(*) AS n FROM t GROUP BY a IS DISTINCT FROM b HAVING count(*) IS DISTINCT FROM 1",
    "numbered": "SELECT count(*) AS n, substring(a FROM 1 FOR 1) IS NOT DISTINCT FROM 'x' AS d FROM t GROUP BY 2 HAVING max(extract(minute FROM ts)) > 2",
    "windows": "SELECT window(ts, '10 minutes') AS w, a IS DISTINCT FROM b AS d, count(*) AS n FROM t GROUP BY w, d HAVING d IS NOT DISTINCT FROM true",
    "distinct_rows": "SELECT DISTINCT a IS DISTINCT FROM b AS d FROM t",
    "joined": "SELECT l.id, l.a IS DISTINCT FROM r.b AS d, extract(minute FROM r.ts) AS m FROM t l JOIN t r "
    "ON l.a IS NOT DISTINCT FROM r.b AND r.ts = l.ts WHERE substring(r.b FROM 1 FOR 1) IS DISTINCT FROM 'z'",
    "existing": "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM t2 WHERE t2.c = t.a AND t2.c IS DISTINCT FROM t2.e)",
    "ranked": "SELECT id, a IS DISTINCT FROM b AS d FROM t QUALIFY row_number() OVER (PARTITION BY a IS DISTINCT FROM b ORDER BY id) <= 2",
    "united": "SELECT a IS DISTINCT FROM b AS d FROM t UNION ALL SELECT b IS NOT DISTINCT FROM a AS d FROM t",
    "over": "WITH x AS (SELECT id, a IS DISTINCT FROM b AS d FROM t) SELECT id, d IS DISTINCT FROM true AS e FROM x WHERE d IS DISTINCT FROM NULL",
}


def counted(frame: DataFrame) -> Counter[str]:
    return Counter(str(row) for row in frame.collect())


def test_rows_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "static").mkdir()
    values = [None, "x", "xy", "zx"]
    rows = [
        {"id": each, "a": values[each % 4], "b": values[each // 4 % 4], "ts": each * 60_000_000}
        for each in range(32)
    ]
    schema = pa.schema(
        {"id": pa.int64(), "a": pa.string(), "b": pa.string(), "ts": pa.timestamp("us", "UTC")}
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "in" / "1.parquet")
    pq.write_table(pa.table({"c": ["x", "xy"], "e": ["x", None]}), tmp_path / "static" / "1.parquet")
    engine = Engine(spark).execute(
        f"CREATE TABLE t ({COLUMNS}) USING parquet OPTIONS (path '{tmp_path / 'in'}', event_time 'ts');"
        f"CREATE TABLE t2 (c STRING, e STRING) USING parquet OPTIONS (path '{tmp_path / 'static'}', static 'true')"
    )
    run = engine.add_views(VIEWS).start(tmp_path / "out", trigger=Trigger.available_now(ended=True))
    assert run.await_termination(300)
    run.stop()
    in_one_partition(spark, tuples_of(tmp_path / "in")).createOrReplaceTempView("t")
    in_one_partition(spark, tuples_of(tmp_path / "static")).createOrReplaceTempView("t2")
    for name, text in VIEWS.items():
        wanted = spark.sql(text)
        columns, rows = wanted.columns, counted(wanted)
        assert counted(run.results(name).select(*(f"`{column}`" for column in columns))) == rows, name
        assert rows, name
