"""SQL of docs/operations.md and docs/how-to/read-results.md works on the results of a real run."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.monitor.folder import folder_status
from penstock.monitor.published import published_files
from penstock.monitor.report import status_lines
from penstock.spark.engine import Engine
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = """
CREATE TABLE orders (id INT, city STRING, amount DOUBLE, at TIMESTAMP)
USING csv OPTIONS (path 'in', header 'true', event_time 'at', max_files_per_trigger '1');
CREATE VIEW large AS SELECT * FROM orders WHERE amount > 900;
CREATE VIEW totals AS SELECT window(at, '10 minutes') AS w, city, sum(amount) AS total FROM orders GROUP BY w, city;
"""
FILES = (
    "1,Bern,20,2026-01-01T10:00:00Z\n2,Rome,950,2026-01-01T10:15:00Z\n3,Rome,5,2026-01-01T11:30:00Z\n",
    "4,Bern,1200,2026-01-01T10:05:00Z\n5,Oslo,much,2026-01-01T10:05:00Z\n6,Bern,7,2026-01-01T11:35:00Z\n",
)


#: the query over recent batches of docs/operations.md
(BATCHES,) = re.findall(r"```sql\n(.*?)```", (DOCS / "operations.md").read_text(), re.DOTALL)
#: SQL for DuckDB by file name, of docs/how-to/read-results.md
QUERIES = dict(
    re.findall(
        r'```sql title="(\w+)\.sql"\n(.*?)```', (DOCS / "how-to" / "read-results.md").read_text(), re.DOTALL
    )
)


def test_the_pages_sql_leaves_out_rows_that_found_a_partner(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"a": [(1, 0), (2, 0), (3, 3_600)], "b": [(3, 3_600)]}
    partner_that_comes_late = {"a": [], "b": [(1, 0)]}
    for number, tuples in enumerate((given, partner_that_comes_late)):
        for name, rows in tuples.items():
            (tmp_path / name).mkdir(exist_ok=True)
            moments = pa.array([seconds * 1_000_000 for _, seconds in rows], pa.int64())
            columns = {
                "k": pa.array([k for k, _ in rows], pa.int64()),
                "ts": moments.cast(pa.timestamp("us", "UTC")),
            }
            pq.write_table(pa.table(columns), tmp_path / name / f"{number}.parquet")
        engine = Engine(spark)
        for name in given:
            engine.execute(f"CREATE TABLE {name} USING parquet OPTIONS (path '{name}', event_time 'ts')")
        engine.view("pairs", "SELECT a.k, b.k AS found FROM a LEFT JOIN b ON a.k = b.k AND b.ts = a.ts")
        run = run_to_end(engine, "out", seconds=None)
    told = sorted(duckdb.sql(QUERIES["left_join"]).fetchall())
    assert told == sorted((row.k, row.found) for row in run.results("pairs").collect())
    assert told == [(1, 1), (2, None), (3, 3)]


def test_the_pages_sql_reads_batches_and_published_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for number, text in enumerate(FILES):
        (tmp_path / "in" / f"{number}.csv").write_text(f"id,city,amount,at\n{text}")
    run_to_end(Engine(spark).execute(SCRIPT), "out", seconds=None)

    connection = duckdb.connect()
    assert len(connection.sql(BATCHES).fetchall()) == 2
    assert {file.path.name for file in published_files(tmp_path / "out", "large")} == {
        path.name for path in (tmp_path / "out" / "matches" / "orders").glob("*.parquet")
    }

    lines = "\n".join(status_lines(folder_status(tmp_path / "out"), verbose=True))
    assert "stream orders: ended | 5 tuples in 2 batches" in lines
    assert "large  " in lines
    assert "set aside: 1 record: malformed csv record: amount is no DOUBLE" in lines
    assert "window view totals of orders: " in lines
    assert re.search(r"slack .* \| horizon .* \| stream time 2026-01-01 11:35:00 UTC", lines)
    assert re.search(r"not final: \d windows?, the oldest ends 2026-01-01 .* UTC; final once", lines)
