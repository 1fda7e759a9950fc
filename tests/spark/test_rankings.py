"""Rankings: the first rows of partitions are their text over the tuples taken in, at each end of a run."""

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
from penstock.monitor.verification import verify
from penstock.spark.declaring.insertions import view_of
from read_results import published

pytestmark = pytest.mark.spark

PLACE = "ROW_NUMBER() OVER (PARTITION BY name ORDER BY price DESC, id)"
VIEWS = {
    "top": f"SELECT * FROM (SELECT *, {PLACE} AS place FROM orders) WHERE place <= 3",
    "newest": "SELECT name, amount, seen FROM (SELECT o.*, row_number() OVER (PARTITION BY o.name, amount % 5 "
    "ORDER BY seen DESC NULLS FIRST, id) AS n FROM orders o WHERE amount > 100) r WHERE n = 1",
    "first": f"SELECT name, id, price * 2 AS twice, {PLACE} AS p FROM orders WHERE amount IS NOT NULL QUALIFY p <= 1",
    "ranks": "SELECT name, price, id, r FROM (SELECT name, price, id, rank() OVER (PARTITION BY name ORDER BY price) AS r "
    "FROM orders WHERE price IS NOT NULL) WHERE r < 4",
    "dense": "SELECT id, amount % 3 AS k, d FROM (SELECT id, amount, DENSE_RANK() OVER (PARTITION BY amount % 3 "
    "ORDER BY name DESC NULLS FIRST) AS d FROM orders) WHERE 2 >= d",
    "some": f"SELECT id, name, p + 1 AS next FROM (SELECT *, {PLACE} AS p FROM orders) WHERE p BETWEEN 2 AND 5 AND amount > 300",
    "overall": "SELECT id, exact FROM (SELECT id, exact, row_number() OVER (ORDER BY exact DESC NULLS LAST, id DESC) AS n "
    "FROM orders) WHERE n <= 7",
    "odd": "SELECT name, place FROM named WHERE place % 2 = 1",
    "named": f"SELECT name, id, place FROM (SELECT *, {PLACE} AS place FROM large) WHERE place <= 4",
    "large": "SELECT id, name, price FROM orders WHERE amount > 200",
    "twice": "SELECT *, amount AS amount2, amount AS amount3 FROM orders",
    "doubled": f"SELECT * FROM (SELECT *, {PLACE} AS place FROM twice) WHERE place <= 3 AND amount2 > 3 AND amount < 900",
    "qualified": f"SELECT o.name, o.id AS amount FROM orders o QUALIFY {PLACE} <= 3 AND o.name > 'f' AND o.id > 5",
    "listed": f"SELECT name, amount, amount2, id FROM twice QUALIFY {PLACE} < 3",
}
ORDER = (
    "large",
    "twice",
    "doubled",
    "listed",
    "qualified",
    "named",
    "odd",
    "top",
    "newest",
    "first",
    "ranks",
    "dense",
    "some",
    "overall",
)
VIEWS = {name: VIEWS[name] for name in ORDER}


#: files of each, and whether the stream ends
LIVES = ((range(5, 8), False), (range(2), True), (range(3, 5), False), (range(8, 9), True))
if not ALL:
    LIVES = (*LIVES[:1], *LIVES[2:3])


def test_they_are_their_text_over_the_tuples_taken_in(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    ranked = {name: text for name, text in VIEWS.items() if name not in ("large", "twice")}
    late = VIEWS["top"].replace("SELECT *", "SELECT /*+ BACKFILL */ *", 1)
    for files, ended in LIVES:
        write(data, files)
        if files.start == 3:
            ranked["late"] = late
        made = engine(spark, data, {**VIEWS, **ranked})
        run = finished(made, out, ended=ended)
        wanted = expected(spark, data, {**VIEWS, **ranked})
        for name in ranked:
            found = run.results(name)
            assert found.columns == spark.sql(ranked[name]).columns
            assert values(published(run, name)) == wanted[name], (name, files)
    assert {row.op for row in run.changes("ranks").select("op").distinct().collect()} == {"upsert", "delete"}
    assert view_of(made._declared, "top").key == ("name", "place")
    assert view_of(made._declared, "first").key == ("name",)
    assert verify(out).faults == []


@pytest.mark.long
def test_with_other_columns_a_star_is_another_view(spark: SparkSession, tmp_path: Path) -> None:
    """What the state has by number is never read as other columns; a list without a star goes on."""
    data, out = tmp_path / "data", tmp_path / "out"
    listed = VIEWS["top"].replace("*", "id, name, amount, place", 1)
    texts = {"top": VIEWS["top"].replace("SELECT", "SELECT /*+ BACKFILL */", 1), "listed": listed}
    declared = [each.strip() for each in COLUMNS.replace("(20, 3)", "(20;3)").split(",")]
    orders_of_columns = [declared[:-1], [*declared[1:], declared[0]], declared]
    for number, columns in enumerate(orders_of_columns):
        write(data, range(number, number + 1))
        names = ", ".join(columns).replace(";", ", ")
        made = Engine(spark).execute(f"CREATE TABLE orders ({names}) USING parquet OPTIONS (path '{data}')")
        run = finished(made.add_views(texts), out)
        spark.read.schema(names).parquet(str(data)).createOrReplaceTempView("orders")
        for name, text in texts.items():
            found = run.results(name)
            assert found.columns == spark.sql(text).columns
            assert rounded(found.collect()) == rounded(spark.sql(text).collect()), (name, number)
    assert verify(out).faults == []


PEAKS = "SELECT name, window(seen, '12 hours') AS w, count(*) AS n, max(amount) AS most FROM orders GROUP BY name, w"
PAIRS = (
    "SELECT a.id AS one, b.id AS other, a.name AS name, b.amount AS amount FROM orders a JOIN orders b ON a.name = b.name "
    "AND b.seen BETWEEN a.seen AND a.seen + INTERVAL 12 HOURS"
)
BOTH = "SELECT id, name, amount FROM orders WHERE amount > 800 UNION ALL SELECT id, name, -amount FROM orders WHERE amount < 200"
OVER = {
    "fullest": "SELECT name, w, n, place FROM (SELECT *, row_number() OVER (PARTITION BY w ORDER BY n DESC, name) AS place "
    "FROM peaks WHERE most > 300) WHERE place <= 2",
    "nearest": "SELECT one, other, r FROM (SELECT *, dense_rank() OVER (PARTITION BY name ORDER BY amount DESC) AS r FROM pairs) "
    "WHERE r <= 2",
    "least": "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY name ORDER BY amount, id) AS place FROM united) WHERE place = 1",
}


@pytest.mark.long
def test_over_window_views_join_views_and_union_all(spark: SparkSession, tmp_path: Path) -> None:
    """Rows beneath are corrected and withdrawn: the first of them follow."""
    data, out = tmp_path / "data", tmp_path / "out"
    views = {"peaks": PEAKS, "pairs": PAIRS, "united": BOTH, **OVER}
    for files, ended in ((range(3), False), (range(3, 5), True)):
        write(data, files, rows=40)
        made = engine(spark, data, views)
        run = finished(made, out, ended=ended)
        wanted = expected(spark, data, views)
        for name in OVER:
            found = run.results(name)
            assert found.columns == spark.table(name).columns
            assert values(published(run, name)) == wanted[name], (name, files)
    assert "ranking: row_number <= 2 of each partition, by n DESC, name; computed again" in made.explain()
    assert verify(out).faults == []


def test_partitions_leave_after_their_time(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    newest = (
        "SELECT /*+ STATE_TTL('1 hour') */ name, id FROM (SELECT *, row_number() OVER (PARTITION BY name ORDER BY seen DESC, id) AS n "
        "FROM orders) WHERE n = 1"
    )
    at = np.datetime64("2026-01-01T00:00:00", "us")
    for number, (names, minutes) in enumerate((("ab", 0), ("ac", 50), ("c", 100), ("ab", 150))):
        table = orders(len(names), number).set_column(4, "name", pa.array(list(names)))
        moments = pa.array(np.full(len(names), at + np.timedelta64(minutes, "m")), pa.timestamp("us", "UTC"))
        table = table.set_column(5, "seen", moments)
        put_file(data / f"{number}.parquet", lambda path, table=table: pq.write_table(table, path))
    made = Engine(spark).execute(
        f"CREATE TABLE orders ({COLUMNS}) USING parquet OPTIONS (path '{data}', max_files_per_trigger '1', event_time 'seen')"
    )
    made.add_views(
        {"newest": newest, "two": newest.replace("/*+ STATE_TTL('1 hour') */", "").replace("= 1", "< 3")}
    )
    assert made.warnings == []
    told = made.explain()
    assert "without tuples for 1 hour of event time leaves" in told
    assert "keeps the rows of the first 2 places of every partition" in told
    assert " ".join(newest.split()) in told
    assert "ranking: row_number <= 1 of each partition, by seen DESC, id" in told
    assert "its state grows with its partitions" in told
    assert made.why("two", {"name": "a", "id": 3}).kind == "running"
    run = finished(made, out)
    final = run.changes("newest").where("is_final").select("name", "id").collect()
    assert sorted(map(tuple, final)) == [("b", 1)]
    assert rounded(run.results("newest").collect()) == [("a", 3000), ("b", 3001), ("c", 2000)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "SELECT id FROM orders QUALIFY row_number() OVER (PARTITION BY nam ORDER BY id) = 1",
            "did you mean name",
        ),
        (
            "SELECT id FROM orders QUALIFY row_number() OVER (PARTITION BY name ORDER BY struct(id)) = 1",
            "ORDER BY of type",
        ),
        (
            "SELECT id AS amount FROM orders QUALIFY rank() OVER (ORDER BY id) = 1 AND amount > 3",
            "Rename the alias",
        ),
        ("SELECT id, null AS x FROM orders QUALIFY rank() OVER (ORDER BY id) = 1", "CAST it to a type"),
        (
            "SELECT amount AS name FROM orders QUALIFY rank() OVER (PARTITION BY name ORDER BY id) = 1 AND name > 3",
            "Rename the alias",
        ),
        (
            "SELECT name FROM (SELECT name, id AS a, amount AS a, rank() OVER (ORDER BY id) AS r FROM orders) WHERE r = 1 AND a > 3",
            "a",
        ),
        ("SELECT * FROM (SELECT *, rank() OVER (ORDER BY id) AS id FROM orders) WHERE id = 1", "id"),
        ("SELECT id, rank() OVER (ORDER BY id) AS r FROM orders", r"REFRESH\('1 minute'\)"),
        (
            "SELECT /*+ BACKFILL */ n, rank() OVER (ORDER BY n) AS r FROM counted QUALIFY r < 3",
            "Write the hint in running view",
        ),
    ],
)
def test_refusals(spark: SparkSession, tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path / "data", range(1), rows=3)
    views = {"counted": "SELECT name, count(*) AS n FROM orders GROUP BY name"}
    with pytest.raises(SqlError, match=message):
        engine(spark, tmp_path / "data", views).add_views({"ranked": text})
