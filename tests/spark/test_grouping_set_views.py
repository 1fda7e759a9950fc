"""GROUPING SETS, ROLLUP and CUBE are their text over the tuples taken in, whatever their order, through restarts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forms import ALL
from order_files import engine, expected, finished, values, write
from penstock.errors import SqlError, UnsupportedError
from penstock.monitor.verification import verify
from penstock.spark.declaring.insertions import view_of
from read_results import published

deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")

pytestmark = pytest.mark.spark

GAP = "session_window(seen, '2 hours')"
PARTS = "SELECT *, amount % 3 AS k, price > 50 AS p FROM orders WHERE id % 11 <> 3"
RUNNING = {
    "rolled": "SELECT name, amount % 7 AS k, count(*) AS n, sum(amount) AS s, avg(price) AS mean, min(name) AS least, "
    "max(seen) AS newest, grouping_id() AS g FROM orders GROUP BY ROLLUP(name, amount % 7)",
    "cubed": "SELECT name, k, p, grouping(name), grouping(k) AS of_k, count(DISTINCT amount) AS d, "
    "median(price) AS md, stddev(price) AS dev, sum(exact) FILTER (WHERE amount > 300) AS e "
    "FROM parts GROUP BY CUBE(name, k, p)",
    "chosen": "SELECT name, amount % 3 AS k, amount % 2 AS odd, count(*) AS n FROM orders WHERE price > 10 "
    "GROUP BY GROUPING SETS ((name, k), ROLLUP(odd), (2, 3))",
    "behind": "SELECT name, amount % 3 AS k, count(*) AS n, grouping__id FROM orders GROUP BY name, k GROUPING SETS ((k), (name))",
    "with_rollup": "SELECT upper(name) AS who, max(amount) AS m, grouping(upper(name)) AS g FROM orders GROUP BY who WITH ROLLUP",
    "crossed": "SELECT o.name, o.id % 2 AS odd, o.id % 3 AS k, sum(o.amount) AS s, grouping_id(o.id % 2, o.name, o.id % 3) AS g FROM orders o "
    "GROUP BY o.id % 2, ROLLUP(o.name), CUBE(o.id % 3)",
    "kept": "SELECT name, amount % 5 AS k, count(*) AS n FROM orders GROUP BY CUBE(name, amount % 5) "
    "HAVING grouping(name) = 1 AND count(*) % 4 <> 0 OR grouping_id() = 0 AND sum(price) > 300",
    "large": "SELECT name, grouping_id() AS g, count(*) AS n FROM orders GROUP BY name WITH CUBE HAVING g = 1 OR n % 2 = 0",
    "labelled": "SELECT CASE WHEN grouping(name) = 1 THEN 'all' ELSE coalesce(name, '?') END AS label, sum(amount) / count(*) AS x "
    "FROM orders GROUP BY ROLLUP(name)",
    "nothing": "SELECT name, count(*) AS n FROM orders WHERE amount > 5000 GROUP BY ROLLUP(name)",
    "none_left": "SELECT name, amount, count(*) AS n FROM orders GROUP BY name, amount GROUPING SETS ((name), ())",
    "above": "SELECT name, n * 2 AS twice FROM rolled WHERE g > 0 AND n > 3",
}
WINDOWS = {
    "hours": "SELECT window(seen, '12 hours') AS w, name, amount % 3 AS k, count(*) AS n, sum(amount) AS s, "
    "count(DISTINCT amount) AS d, grouping_id() AS g FROM orders GROUP BY w, ROLLUP(name, amount % 3)",
    "sliding": "SELECT name, window(seen, '1 day', '8 hours').start AS begun, avg(price) AS mean, grouping(name) AS g FROM orders "
    "WHERE amount > 200 GROUP BY ROLLUP(name), window(seen, '1 day', '8 hours') HAVING count(*) > 1",
    "listed": "SELECT name, amount % 2 AS odd, window(seen, '6 hours') AS w, count(*) AS n FROM parts "
    "GROUP BY GROUPING SETS ((w, name), (odd, w))",
    "visits": f"SELECT {GAP} AS w, name, id % 2 AS odd, count(*) AS n, median(price) AS md, grouping_id() AS g FROM orders "
    f"GROUP BY {GAP}, CUBE(name, id % 2)",
}
PEAKS = "SELECT name, window(seen, '12 hours') AS w, count(*) AS n, max(amount) AS most FROM orders GROUP BY name, w"
PAIRS = (
    "SELECT a.name AS name, b.amount % 3 AS k, b.amount AS amount, b.seen AS seen FROM orders a JOIN orders b ON a.name = b.name "
    "AND b.seen BETWEEN a.seen AND a.seen + INTERVAL 12 HOURS"
)
OVER = {
    "of_peaks": "SELECT name, avg(most) AS mean, count(*) AS windows, grouping_id() AS g FROM peaks GROUP BY ROLLUP(name)",
    "of_pairs": "SELECT name, k, count(*) AS pairs, sum(amount) AS s FROM pairs GROUP BY CUBE(name, k) HAVING count(*) % 3 <> 0",
    "windows_of_pairs": "SELECT window(seen, '1 day') AS w, k, count(*) AS n, grouping(k) AS g FROM pairs GROUP BY w, ROLLUP(k)",
    "of_united": "SELECT name, sum(amount) AS s, grouping(name) AS g FROM united GROUP BY ROLLUP(name)",
    "of_rolled": "SELECT g, max(n) AS most, count(*) AS c FROM rolled GROUP BY g",
    "first": "SELECT * FROM (SELECT name, k, n, g, row_number() OVER (PARTITION BY g ORDER BY n DESC, name, k) AS place FROM rolled) "
    "WHERE place <= 3",
}
BENEATH = {
    "peaks": PEAKS,
    "pairs": PAIRS,
    "united": "SELECT name, amount FROM orders WHERE amount > 800 UNION ALL SELECT name, -amount AS amount FROM orders WHERE amount < 200",
    "rolled": RUNNING["rolled"],
}
LIVES = ((range(4), False), (range(4, 6), True), (range(6, 7), False))


def test_they_are_their_text_over_the_tuples_taken_in(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    views = {"parts": PARTS, **RUNNING, **WINDOWS}
    for files, ended in LIVES if ALL else LIVES[:2]:
        write(data, files)
        made = engine(spark, data, views)
        run = finished(made, out, ended=ended)
        for name, wanted in expected(spark, data, views).items():
            if name in RUNNING or (name in WINDOWS and ended):
                found = run.results(name)
                assert found.columns == spark.table(name).columns
                assert values(published(run, name)) == wanted, (name, files)
    assert {row.op for row in run.changes("large").select("op").distinct().collect()} == {"upsert", "delete"}
    assert view_of(made._declared, "rolled").key == ("name", "k", "g")
    assert "keys name, amount % 7 in 3 grouping sets" in made.explain()
    assert verify(out).faults == []


@pytest.mark.long
def test_over_other_views(spark: SparkSession, tmp_path: Path) -> None:
    """Rows beneath are corrected and withdrawn: those of every set follow."""
    data, out = tmp_path / "data", tmp_path / "out"
    views = {**BENEATH, **OVER}
    for files, ended in ((range(3), False), (range(3, 5), True)):
        write(data, files, rows=40)
        run = finished(engine(spark, data, views), out, ended=ended)
        for name, wanted in expected(spark, data, views).items():
            if name in OVER and (ended or name != "windows_of_pairs"):
                found = run.results(name)
                assert found.columns == spark.table(name).columns
                assert values(published(run, name)) == wanted, (name, files)
    assert verify(out).faults == []


def test_sinks_groups_that_leave_and_questions(spark: SparkSession, tmp_path: Path) -> None:
    """A sink has one row for each row of the view; each set's groups leave by themselves; `why` and a backtest know the sets."""
    data, out, table = tmp_path / "data", tmp_path / "out", tmp_path / "table"
    levels = "SELECT name, amount % 2 AS odd, count(*) AS n, grouping_id() AS g FROM orders GROUP BY CUBE(name, amount % 2)"
    views = {
        "levels": f"{levels} HAVING count(*) % 3 <> 0",
        "short": levels.replace("SELECT", "SELECT /*+ STATE_TTL('30 days') */", 1),
        "hours": WINDOWS["hours"],
    }
    sink = f"CREATE TABLE t USING delta OPTIONS (path '{table}', mode 'upsert'); INSERT INTO t SELECT * FROM levels;"
    for files, ended in ((range(2), False), (range(2, 4), True)):
        write(data, files)
        if files.start:
            views["late"] = levels.replace("SELECT", "SELECT /*+ BACKFILL */", 1)
        made = engine(spark, data, views).execute(sink)
        run = finished(made, out, ended=ended)
        wanted = expected(spark, data, views)
        for name in views:
            if ended or name != "hours":
                assert values(published(run, name)) == wanted[name], name
        delivered = deltalake.DeltaTable(table).to_pyarrow_table().select(["name", "odd", "n", "g"])
        assert values(delivered.to_pylist()) == wanted["levels"]
    found = run.results("hours").where("g = 0 AND name IS NOT NULL AND k IS NOT NULL").first()
    assert found is not None
    row = json.dumps({"name": found.name, "amount": found.k, "seen": str(found.w.start)})
    told = made.why("hours", row, output=out)
    assert [each.keys for each in told.windows] == [
        {"name": found.name, "amount % 3": found.k, "grouping_id()": 0},
        {"name": found.name, "amount % 3": None, "grouping_id()": 1},
        {"name": None, "amount % 3": None, "grouping_id()": 3},
    ]
    assert [(each.fate, each.revisions[-1].row["g"]) for each in told.windows] == [
        ("final", 0),
        ("final", 1),
        ("final", 3),
    ]
    assert made.backtest("hours").matches == len(wanted["hours"])
    assert made.backtest("levels").matches == len(wanted["levels"])
    assert verify(out).faults == []


@pytest.mark.parametrize(
    ("views", "more", "kind", "told"),
    [
        (
            {"v": "SELECT name, count(*) AS n FROM orders GROUP BY ROLLUP(name)"},
            "mode 'upsert'",
            SqlError,
            "view v has none: select all of its keys and grouping_id(), or use mode changes",
        ),
        (
            {"v": "SELECT name, count(*) AS n, grouping(name) AS g FROM orders GROUP BY ROLLUP(name)"},
            "mode 'upsert', key 'name, g'",
            SqlError,
            "view v has no key: select all of its keys and grouping_id(), or use mode changes",
        ),
        (
            {"v": "SELECT name, count(*) AS n, grouping_id() AS g FROM orders GROUP BY ROLLUP(name)"},
            "mode 'upsert', key 'name'",
            SqlError,
            "view v has the key name, g. By another one, rows would overwrite each other",
        ),
        (
            {
                "v": "SELECT name, window.start AS s, count(*) AS n FROM orders GROUP BY window(seen, '1 hour'), ROLLUP(name)"
            },
            "mode 'upsert'",
            SqlError,
            "select all of its keys, its window and grouping_id()",
        ),
        (
            {
                "u": "SELECT name, count(*) AS n FROM orders GROUP BY name",
                "v": "SELECT n, count(*) AS c FROM u GROUP BY ROLLUP(n)",
            },
            None,
            UnsupportedError,
            "over running view u are not supported yet. Write a view for each grouping set, or add the hint REFRESH",
        ),
        (
            {"v": "SELECT price AS name, count(*) AS c FROM orders GROUP BY CUBE(name)"},
            None,
            UnsupportedError,
            "This is also the name of a source column",
        ),
        (
            {
                "v": "SELECT name AS key, window(seen, '2 hours', '1 hour') AS w FROM orders GROUP BY w, ROLLUP(key) HAVING avg(price) > 1"
            },
            None,
            SqlError,
            "Name it in SELECT, and write the name in HAVING: avg(x) AS m .. HAVING m > 1.",
        ),
    ],
)
def test_what_is_refused(
    spark: SparkSession,
    tmp_path: Path,
    views: dict[str, str],
    more: str | None,
    kind: type[SqlError],
    told: str,
) -> None:
    write(tmp_path / "data", range(1))
    options = f"path '{tmp_path / 't'}'" + ("" if more is None else f", {more}")
    with pytest.raises(kind) as caught:
        engine(spark, tmp_path / "data", views).execute(
            f"CREATE TABLE t USING delta OPTIONS ({options}); INSERT INTO t SELECT * FROM v;"
        )
    assert told in caught.value.message
