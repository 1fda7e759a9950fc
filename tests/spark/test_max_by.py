"""MAX_BY and MIN_BY are their text over the tuples taken in, whatever their order, through restarts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forms import ALL
from order_files import engine, expected, finished, values, write
from penstock.errors import SqlError
from penstock.monitor.verification import verify
from read_results import published

pytestmark = pytest.mark.spark

GAP = "session_window(seen, '2 hours')"
# event times differ; ids too, so that Spark has one answer
RUNNING = {
    "last": "SELECT name, max_by(price, seen) AS last, min_by(price, seen) AS first, max(seen) AS at FROM orders GROUP BY name",
    "computed": "SELECT name, amount % 3 AS k, max_by(price * 2, id) * 2 AS twice, min_by(upper(name), id) AS who, count(*) AS n "
    "FROM orders GROUP BY name, amount % 3",
    "whole": "SELECT max_by(name, id) AS newest, min_by(exact, -id) AS e, max_by(id, seen) AS i, min_by(seen, id) AS s FROM orders",
    "filtered": "SELECT name, max_by(amount, id) FILTER (WHERE price > 50) AS a, min_by(amount, id) FILTER (WHERE price < 0) AS none "
    "FROM orders GROUP BY name",
    "nested": "SELECT name, max_by(struct(id, price), id) AS s, max_by(array(amount, amount + 1), id) AS l, "
    "max_by(map(name, amount), id) FILTER (WHERE name IS NOT NULL) AS m, max_by(struct(id, price), id).price AS p, min_by(price > 5, id) AS b "
    "FROM orders GROUP BY name",
    "kept": "SELECT name, amount % 5 AS k, max_by(price, id) AS last FROM orders GROUP BY name, amount % 5 "
    "HAVING max_by(price, id) > 30 AND min_by(amount, id) < 900",
    "rolled": "SELECT name, amount % 3 AS k, max_by(price, id) AS last, grouping_id() AS g FROM orders GROUP BY CUBE(name, amount % 3)",
    "by_text": "SELECT amount % 9 AS k, max_by(id, concat(name, lpad(CAST(id AS STRING), 8, '0'))) AS x, "
    "min_by(id, exact + id / 1000000) AS d, max_by(id, CAST(seen AS DATE)) IS NULL AS n FROM orders GROUP BY amount % 9",
    "nothing": "SELECT max_by(price, id) AS p, count(*) AS n FROM orders WHERE amount > 5000",
    "undecided": "SELECT name, max_by(price, NULL) AS p FROM orders GROUP BY name",
    "above": "SELECT name, last + 1 AS more FROM last WHERE last > 10",
}
WINDOWS = {
    "hours": "SELECT window(seen, '12 hours') AS w, name, max_by(price, id) AS last, min_by(price, id) AS first, count(*) AS n "
    "FROM orders GROUP BY w, name",
    "sliding": "SELECT window(seen, '1 day', '8 hours').start AS begun, max_by(id, seen) AS i, max_by(name, id) AS who FROM orders "
    "WHERE amount > 200 GROUP BY window(seen, '1 day', '8 hours') HAVING min_by(amount, id) < 900",
    "bounded": "SELECT /*+ MAX_ERROR(0.1, 0.1) */ window(seen, '6 hours') AS w, max_by(name, seen) AS who, "
    "max_by(struct(name, price), seen) AS s FROM orders GROUP BY w",
    "visits": f"SELECT {GAP} AS w, name, max_by(price, id) AS last, min_by(amount, id) AS first FROM orders GROUP BY {GAP}, name",
}
LIVES = ((range(4), False), (range(4, 6), True), (range(6, 7), False))


def test_they_are_their_text_over_the_tuples_taken_in(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    views = {**RUNNING, **WINDOWS}
    for files, ended in LIVES if ALL else LIVES[:2]:
        write(data, files)
        made = engine(spark, data, views)
        run = finished(made, out, ended=ended)
        for name, wanted in expected(spark, data, views).items():
            if name in RUNNING or ended:
                found = run.results(name)
                assert found.columns == spark.table(name).columns
                assert values(published(run, name)) == wanted, (name, files)
    assert "max_by(price, seen)" in made.explain()
    assert verify(out).faults == []


PEAKS = (
    "SELECT name, window(seen, '12 hours') AS w, count(*) AS n, max_by(price, id) AS last, min_by(id, id) AS first "
    "FROM orders GROUP BY name, w"
)
PAIRS = (
    "SELECT a.name AS name, b.amount AS amount, a.id * 100000 + b.id AS pair, b.seen AS seen FROM orders a JOIN orders b "
    "ON a.name = b.name AND b.seen BETWEEN a.seen AND a.seen + INTERVAL 12 HOURS"
)
UNITED = "SELECT name, id, amount FROM orders WHERE amount > 800 UNION ALL SELECT name, id, -amount AS amount FROM orders WHERE amount < 200"
COUNTS = "SELECT name, amount % 20 AS item, count(*) AS n, max_by(id, seen) AS last, max(seen) AS at FROM orders GROUP BY name, amount % 20"
BENEATH = {"peaks": PEAKS, "pairs": PAIRS, "united": UNITED, "counts": COUNTS}
# the first two have ties, and say which tuple counts
OVER = {
    "most": "SELECT name, max_by(amount, amount > 100) AS any, coalesce(max(CASE WHEN amount > 100 THEN amount END), max(amount)) AS m FROM united GROUP BY name",
    "least": "SELECT name, min_by(id, amount > 100) AS any, coalesce(max(CASE WHEN amount <= 100 THEN id END), max(id)) AS m FROM united GROUP BY name",
    "of_peaks": "SELECT name, max_by(last, first) AS last, min_by(n, first) * 2 AS twice FROM peaks GROUP BY name",
    "days": "SELECT window(w, '2 days') AS d, max_by(last, first) AS last, max_by(struct(n, name), w.start) IS NULL AS none "
    "FROM peaks GROUP BY 1 HAVING min_by(n, first) > 0",
    "of_pairs": "SELECT name, max_by(amount, pair) AS a, min_by(amount, pair) FILTER (WHERE amount > 50) AS b FROM pairs GROUP BY name",
    "of_united": "SELECT name, max_by(amount, id) AS a, min_by(amount, id) AS b, grouping(name) AS g FROM united GROUP BY ROLLUP(name)",
    "of_counts": "SELECT name, max_by(item, last) AS item, min_by(map(item, n), last) FILTER (WHERE item IS NOT NULL) AS m FROM counts GROUP BY name",
}
TIES = ("most", "least")


@pytest.mark.long
def test_over_other_views(spark: SparkSession, tmp_path: Path) -> None:
    """Rows beneath are corrected and replaced; of equal ones the largest argument counts."""
    data, out = tmp_path / "data", tmp_path / "out"
    views = {**BENEATH, **OVER}
    for files, ended in ((range(3), False), (range(3, 5), True)):
        write(data, files, rows=40)
        run = finished(engine(spark, data, views), out, ended=ended)
        wanted = expected(spark, data, views)
        for name in OVER:
            found = values(published(run, name))
            if name in TIES:
                assert len(found) == len(wanted[name])
                assert all(row[1] == row[2] for row in found), (name, found)
            elif ended or name != "days":
                assert found == wanted[name], (name, files)
    assert verify(out).faults == []


@pytest.mark.parametrize(
    ("views", "told"),
    [
        (
            {"v": "SELECT name, max_by(id, struct(seen, id)) AS x FROM orders GROUP BY name"},
            "max_by by STRUCT<seen: TIMESTAMP, id: BIGINT> is not supported yet. Name the field that decides: "
            "max_by(id, (struct(seen, id)).`seen`)",
        ),
        (
            {"v": "SELECT name, max_by(id, array(id)) AS x FROM orders GROUP BY name"},
            "max_by by ARRAY<BIGINT> is not supported",
        ),
        (
            {"v": "SELECT name, max_by(id, name COLLATE UTF8_LCASE) AS x FROM orders GROUP BY name"},
            "The argument of type STRING is not supported here, its collation being another than binary.",
        ),
        (
            {"v": "SELECT name, max_by(NULL, id) AS x FROM orders GROUP BY name"},
            "The result is NULL for every group: CAST the argument to a type.",
        ),
        ({"v": "SELECT name, max_by(id) AS x FROM orders GROUP BY name"}, "MAX_BY takes two arguments"),
        (
            {"v": "SELECT name, max_by(DISTINCT id, seen) AS x FROM orders GROUP BY name"},
            "MAX_BY(DISTINCT) is not supported",
        ),
        ({"v": "SELECT name, max_by(id, map(id, id)) AS x FROM orders GROUP BY name"}, "MAP"),
        (
            {
                "v": "SELECT /*+ DEADLINE('5 seconds'), LOSS(1, 4, 'approximate') */ window(seen, '1 hour') AS w, max_by(id, seen) AS x "
                "FROM orders GROUP BY w"
            },
            "The error of this aggregate has no bound when tuples are sampled.",
        ),
        (
            {"united": UNITED, "v": "SELECT name, max_by(map(id, id), id) AS x FROM united GROUP BY name"},
            "max_by of a MAP is not supported over another view",
        ),
    ],
)
def test_what_is_refused(spark: SparkSession, tmp_path: Path, views: dict[str, str], told: str) -> None:
    write(tmp_path / "data", range(1))
    with pytest.raises(SqlError) as caught:
        engine(spark, tmp_path / "data", views)
    assert told in caught.value.message
