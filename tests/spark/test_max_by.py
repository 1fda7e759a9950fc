"""MAX_BY and MIN_BY are their text over the tuples taken in, whatever their order, through restarts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forms import ALL
from order_files import engine, expected, finished, values, write
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
                assert found.columns == spark.sql(views[name]).columns
                assert values(published(run, name)) == wanted, (name, files)
    assert "max_by(price, seen)" in made.explain()
    assert verify(out).faults == []
