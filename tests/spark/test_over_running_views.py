"""Views over running views are their text over the tuples taken in, at each end of a run, also where rows beneath are replaced and disappear."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forms import ALL
from order_files import engine, expected, finished, values, write
from penstock.errors import SqlError
from penstock.monitor.verification import verify
from penstock.spark.declaring.insertions import view_of
from read_results import published

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

#: a group disappears with its sixth tuple
COUNTS = (
    "SELECT name, amount % 20 AS item, count(*) AS n, max(price) AS most FROM orders GROUP BY name, amount % 20 "
    "HAVING count(*) < 6"
)
VISITS = "SELECT name, session_window.start AS begun, count(*) AS n FROM orders GROUP BY name, session_window(seen, '6 hours')"
PLACE = "row_number() OVER (PARTITION BY name ORDER BY n DESC, item)"
OVER = {
    "top": f"SELECT * FROM (SELECT *, {PLACE} AS place FROM counts) WHERE place <= 3",
    "moving": "SELECT n % 2 AS odd, name, item FROM counts WHERE most > 50 "
    "QUALIFY row_number() OVER (PARTITION BY n % 2 ORDER BY most DESC, name, item) = 1",
    "overall": "SELECT name, n, r FROM (SELECT *, rank() OVER (ORDER BY n DESC) AS r FROM counts) WHERE r <= 4 AND item > 3",
    "longest": "SELECT name, begun, n, r FROM (SELECT *, dense_rank() OVER (PARTITION BY name ORDER BY n DESC) AS r FROM visits) "
    "WHERE r <= 2",
    "days": "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY name ORDER BY total DESC NULLS LAST, day) AS place "
    "FROM (SELECT name, date(seen) AS day, sum(amount) AS total FROM orders GROUP BY name, date(seen)) AS sums) WHERE place <= 2",
    "fullest": "SELECT w, name, n FROM (SELECT *, row_number() OVER (PARTITION BY w ORDER BY n DESC, name) AS place "
    "FROM (SELECT window(seen, '20 days') AS w, name, count(*) AS n FROM orders GROUP BY window(seen, '20 days'), name)) WHERE place = 1",
    "means": "SELECT name, avg(n) AS mean, count(DISTINCT item) AS items, max(most) AS highest FROM counts GROUP BY name",
    "whole": "SELECT count(*) AS groups, sum(n) AS tuples FROM counts WHERE n > 4",
}
VIEWS = {"counts": COUNTS, "visits": VISITS, **OVER}


def test_they_are_their_text_over_the_tuples_taken_in(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    views = dict(VIEWS)
    lives = [(range(5, 8), False), (range(2), True), (range(2, 4), False)]
    for files, ended in lives if ALL else lives[::2]:
        write(data, files)
        if files.start == 2:
            views["late"] = VIEWS["top"]
        made = engine(spark, data, views)
        run = finished(made, out, ended=ended)
        wanted = expected(spark, data, views)
        for name in (*OVER, *(["late"] if "late" in views else [])):
            found = run.results(name)
            assert found.columns == spark.table(name).columns
            assert values(published(run, name)) == wanted[name], (name, files)
    told = {row.op for name in OVER for row in run.changes(name).select("op").distinct().collect()}
    assert told == {"upsert", "delete"}
    assert view_of(made._declared, "top").key == ("name", "place")
    told = made.explain()
    assert "ranking: row_number <= 3 of each partition, by n DESC, item; computed from the live rows" in told
    assert "the state keeps every live row of running view counts" in told
    assert made.why("top", {"name": "east", "item": 3, "n": 2, "most": 3.5}).kind == "running"
    assert verify(out).faults == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT name, count(*) AS m FROM counts GROUP BY name, window(most, '1 hour')", "no event time"),
        (
            "SELECT /*+ BACKFILL */ name, item FROM counts QUALIFY row_number() OVER (PARTITION BY name ORDER BY n) = 1",
            "Write the hint in running view counts",
        ),
        (
            "SELECT /*+ STATE_TTL('1 day') */ name, avg(n) AS m FROM (SELECT name, id, count(*) AS n FROM orders GROUP BY name, id) GROUP BY name",
            "Write hints behind the SELECT that aggregates",
        ),
        ("SELECT name, max(m) AS m FROM means GROUP BY name", "running view over another view"),
        (
            "SELECT name, count(*) AS n, rank() OVER (ORDER BY count(*)) AS r FROM orders GROUP BY name QUALIFY r < 3",
            "Group in its FROM",
        ),
    ],
)
def test_refusals(spark: SparkSession, tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path / "data", range(1), rows=3)
    views = {"counts": COUNTS, "means": OVER["means"]}
    with pytest.raises(SqlError, match=message):
        engine(spark, tmp_path / "data", views).add_views({"over": text})
