"""Running views: aggregations without a window are their text over the tuples taken in, at each end of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import put_file
from forms import ALL
from order_files import COLUMNS, engine, expected, finished, orders, rounded, values, write
from penstock import Engine
from penstock.errors import SqlError
from penstock.monitor.folder import folder_status
from penstock.monitor.verification import verify
from penstock.spark.declaring.insertions import view_of
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.layout import Layout
from read_results import published

pytestmark = pytest.mark.spark

VIEWS = {
    "by_name": "SELECT name, count(*) AS n, sum(amount) AS s, avg(price) AS mean, min(price) AS least, max(name) AS m "
    "FROM orders GROUP BY name",
    "by_two": "SELECT amount % 7 AS k, name, count(price) AS c, count(DISTINCT amount) AS d, sum(exact) AS e, "
    "median(price) AS md FROM orders WHERE amount > 100 GROUP BY amount % 7, name",
    "large": "SELECT name, amount % 3 AS k, count(*) AS n FROM orders GROUP BY name, k HAVING count(*) % 5 <> 0",
    "total": "SELECT count(*) AS n, sum(price) AS s, stddev(price) AS dev, max(seen) AS newest FROM orders",
    "nothing": "SELECT count(*) AS n, sum(amount) AS s, count(DISTINCT name) AS d, max(price) AS m, stddev(price) AS dev "
    "FROM orders WHERE amount > 5000",
    "computed": "SELECT upper(name) AS who, sum(amount) / count(*) + 1 AS x FROM orders GROUP BY upper(name)",
    "above": "SELECT name, n FROM by_name WHERE n > 45",
    "names": "SELECT DISTINCT name, amount % 4 AS k FROM orders WHERE price IS NOT NULL",
}

PEAKS = "SELECT name, window(seen, '12 hours') AS w, count(*) AS n, max(amount) AS most FROM orders GROUP BY name, w"
PAIRS = (
    "SELECT a.name AS name, b.amount AS amount FROM orders a JOIN orders b ON a.name = b.name "
    "AND b.seen BETWEEN a.seen AND a.seen + INTERVAL 12 HOURS"
)
#: running views over a window view and a join view
OVER = {
    "mean_of_maxima": "SELECT name, avg(most) AS mean, count(*) AS windows FROM peaks GROUP BY name",
    "every_window": "SELECT count(*) AS windows, sum(n) AS tuples, max(w.end) AS last FROM peaks WHERE n > 1",
    "odd": "SELECT n, count(*) AS windows FROM peaks GROUP BY n HAVING count(*) % 2 = 1",
    "high": "SELECT DISTINCT name FROM peaks WHERE most > 990",
    "many": "SELECT name FROM mean_of_maxima WHERE windows % 2 = 0",
    "paired": "SELECT name, count(*) AS pairs, sum(amount) AS s FROM pairs GROUP BY name",
}


def test_they_are_their_text_over_the_tuples_taken_in(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    lives = [(range(4), False), (range(4, 6), True), (range(6, 7), False)]
    for files, ended in lives if ALL else lives[:2]:
        write(data, files)
        run = finished(engine(spark, data, VIEWS), out, ended=ended)
        for name, wanted in expected(spark, data, VIEWS).items():
            found = run.results(name)
            assert found.columns == spark.table(name).columns
            assert values(published(run, name)) == wanted, (name, files)
            rows = published(run, name, final_only=True)
            final = values(
                [{key: each for key, each in row.items() if key != "corrected_after_final"} for row in rows]
            )
            if files.start < 6:
                assert final == (wanted if ended else []), name
    told = run.changes("large")
    assert {row.op for row in told.select("op").distinct().collect()} == {"upsert", "delete"}


@pytest.mark.long
def test_views_come_and_go_over_a_stream_without_event_time(spark: SparkSession, tmp_path: Path) -> None:
    """Three runs: one view stays, one is away in the second and begins anew, one comes with BACKFILL in the third."""
    data, out = tmp_path / "data", tmp_path / "out"
    count = "SELECT name, count(*) AS n, max(seen) AS newest FROM orders GROUP BY name"
    later = "SELECT /*+ BACKFILL */ name, count(*) AS c, sum(amount) AS s FROM orders GROUP BY name"
    counted = "SELECT name, max(amount) AS m FROM orders GROUP BY name"
    views = {"stays": count, "goes": counted, "large": "SELECT * FROM orders WHERE amount > 900"}
    for files, present in (
        (range(2), views),
        (range(2, 4), {"stays": count}),
        (range(4, 6), {**views, "comes": later}),
    ):
        write(data, files)
        made = engine(spark, data, present, options="")
        got: list[tuple[object, ...]] = []
        made.sink("stays", lambda frame, _, got=got: got.extend(frame.select("name", "n", "op").collect()))  # type: ignore[misc]
        assert view_of(made._declared, "stays").key == ("name",)
        run = finished(made, out)
        wanted = expected(spark, data, {"stays": count, "comes": later})
        assert values(published(run, "stays")) == wanted["stays"]
        newest = {name: n for name, n, op in got if op == "upsert"}
        assert newest == {name: n for name, n, _ in wanted["stays"]}, "sinks get what changed"
    assert values(published(run, "comes")) == wanted["comes"]
    spark.read.schema(COLUMNS).parquet(
        *(str(data / f"{number:03d}.parquet") for number in (4, 5))
    ).createOrReplaceTempView("orders")
    assert rounded(run.results("goes").collect()) == rounded(spark.sql(counted).collect())
    plain = plain_rows(Layout.of(out, None), "stays", 0, False)
    assert plain is not None
    assert sorted(plain.rows.column("n").to_pylist()) == sorted(
        row.n for row in run.results("stays").collect()
    )
    status = run.status()
    assert {name: view.kind for name, view in status.views.items()} == {
        **dict.fromkeys(("stays", "goes", "comes"), "running"),
        "large": "selection",
    }
    assert folder_status(out)["views"]["stays"]["rows"] == status.views["stays"].rows > 0
    assert verify(out).faults == []
    assert any("only disk space limits it" in note for note in made.notes)
    assert "running group 0, keys name: its state grows with its groups" in made.explain()
    why = made.why("stays", {"name": "north", "amount": 3})
    assert (why.kind, why.windows) == ("running", ())
    assert made.backtest("stays").matches == 6
    ttl = "SELECT /*+ STATE_TTL('1 day') */ name, count(*) AS n FROM orders GROUP BY name"
    with pytest.raises(SqlError, match="STATE_TTL is by event time"):
        engine(spark, data, {"bounded": ttl}, options="")


@pytest.mark.long
def test_over_window_and_join_views(spark: SparkSession, tmp_path: Path) -> None:
    """Rows beneath are corrected and withdrawn: the averages of maxima follow."""
    data, out = tmp_path / "data", tmp_path / "out"
    views = {"peaks": PEAKS, "pairs": PAIRS, **OVER}
    for files, ended in ((range(3), False), (range(3, 5), True)):
        write(data, files)
        run = finished(engine(spark, data, views), out, ended=ended)
        for name, wanted in expected(spark, data, views).items():
            if name in OVER:
                found = run.results(name)
                assert found.columns == spark.table(name).columns
                assert values(published(run, name)) == wanted, (name, files)
    told = run.changes("odd")
    assert {row.op for row in told.select("op").distinct().collect()} == {"upsert", "delete"}
    assert told.where("is_final AND coverage <> 1").count() == 0
    status = run.status()
    assert {status.views[name].kind for name in OVER} == {"running"}
    assert verify(out).faults == []


def test_groups_leave_after_their_time(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    ttl = (
        "SELECT /*+ STATE_TTL('1 hour') */ name, count(*) AS n FROM orders GROUP BY name HAVING count(*) > 1"
    )
    at = np.datetime64("2026-01-01T00:00:00", "us")
    for number, (names, minutes) in enumerate((("aabb", 0), ("aacc", 50), ("cc", 100), ("bbb", 150))):
        table = orders(len(names), number).set_column(4, "name", pa.array(list(names)))
        moments = pa.array(np.full(len(names), at + np.timedelta64(minutes, "m")), pa.timestamp("us", "UTC"))
        table = table.set_column(5, "seen", moments)
        put_file(data / f"{number}.parquet", lambda path, table=table: pq.write_table(table, path))
    made = Engine(spark).execute(
        f"CREATE TABLE orders ({COLUMNS}) USING parquet OPTIONS (path '{data}', max_files_per_trigger '1', event_time 'seen')"
    )
    made.add_views({"bounded": ttl})
    assert made.warnings == []
    assert "starts from zero" in made.explain()
    run = finished(made, out)
    told = run.changes("bounded").where("is_final").select("name", "n", "op").collect()
    assert sorted(map(tuple, told)) == [("a", 4, "upsert"), ("b", 2, "upsert")]
    # b has left too, and starts from zero
    assert rounded(run.results("bounded").collect()) == [("a", 4), ("b", 3), ("c", 4)]
