"""The whole text of messages about mistakes in joins, which need Spark to be found.

`PENSTOCK_BLESS=1 pytest tests/golden/test_join_messages.py` writes the messages anew: read the difference before
committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from join_texts import RELATIONS, SCHEMAS, VIEWS, random_tables
from penstock.errors import SqlError
from penstock.spark.analysis.joins import SparkJoinHost
from penstock.sql.joins.bind import bind_join
from penstock.sql.joins.query import JoinQuery
from penstock.sql.script.queries import parse_query
from penstock.sql.script.views import flatten
from refusals import refuse

pytestmark = pytest.mark.spark

MESSAGES = Path(__file__).with_name("join_messages.txt")
_BOUND = "w.seen BETWEEN f.dep AND f.dep + INTERVAL 1 HOUR"
QUERIES = [
    "SELECT f.k FROM flights f JOIN weather w\nON f.k = w.k",
    "SELECT f.k FROM flights f JOIN weather w ON f.k = w.k AND w.seen > f.dep",
    "SELECT f.k FROM flights f JOIN weather w ON f.k = w.k AND f.dep + INTERVAL 1 MONTH >= w.seen",
    f"SELECT f.k FROM flights f JOIN weather w ON {_BOUND} JOIN bookings b ON b.k = w.k",
    "SELECT f.k FROM flights f JOIN timeless s ON f.k = s.k",
    "SELECT f.k FROM flights f JOIN weather w ON w.seen > f.dep AND w.seen < f.dep",
    "SELECT f.k FROM flights f JOIN airports a ON f.k > 3 AND a.x > 1",
    f"SELECT f.k FROM flights f JOIN weather w ON {_BOUND} JOIN airports a ON f.k = w.k",
    f"SELECT k FROM flights f JOIN weather w ON {_BOUND}",
    f"SELECT f.k FROM flights f\nJOIN weather w ON {_BOUND}\nWHERE origin = 'JFK'",
    f"SELECT f.kk FROM flights f JOIN weather w ON {_BOUND}",
    f"SELECT nothing FROM flights f JOIN weather w ON {_BOUND}",
    f"SELECT f.k FROM flights f JOIN weather w ON {_BOUND} AND b.x = 1 JOIN bookings b USING (k)",
    f"SELECT flights.k FROM flights f JOIN weather w ON {_BOUND}",
    "SELECT f.k FROM flights f JOIN airports a USING (dest)",
    f"SELECT f.k FROM flights f JOIN weather w ON {_BOUND} JOIN airports a USING (k)",
    f"SELECT * FROM flights f JOIN weather w ON {_BOUND}",
    f"SELECT f.k, w.k FROM flights f JOIN weather w ON {_BOUND}",
    f"SELECT z.* FROM flights f JOIN weather w ON {_BOUND}",
    f"SELECT f.place.* FROM flights f JOIN weather w ON {_BOUND}",
    f"SELECT f.k FROM flights f JOIN weather w ON f.place = w.k AND {_BOUND}",
    f"SELECT f.k FROM flights f JOIN weather w ON f.dep = w.k AND {_BOUND}",
    f"SELECT f.k FROM flights f JOIN weather w ON f.k + w.k AND {_BOUND}",
    f"SELECT f.k FROM flights f JOIN weather w ON {_BOUND} WHERE upperr(f.origin) = 'X'",
    f"SELECT f.k, rand() AS r FROM flights f JOIN weather w ON {_BOUND}",
    f"SELECT f.k FROM flights f JOIN weather w ON {_BOUND} AND w.seen > current_timestamp()",
    f"SELECT f.k FROM flights f JOIN weather w ON {_BOUND}\nWHERE f.k",
    f"SELECT f.k FROM flights f JOIN weather w ON {_BOUND}\nWHERE f.x > 1 AND rand() > 0.5",
    f"SELECT f.k FROM flights f JOIN weather w ON {_BOUND} AND f.k IN",
    "SELECT a.k FROM airports a JOIN airports b ON a.k = b.k",
    "SELECT a.k FROM airports a LEFT JOIN flights f ON a.k = f.k",
    "SELECT a.k FROM flights f RIGHT JOIN airports a ON a.k = f.k",
    "SELECT f.k FROM flights f FULL JOIN airports a ON a.k = f.k",
    f"SELECT f.k, w.k FROM flights f SEMI JOIN weather w ON f.k = w.k AND {_BOUND}",
    f"SELECT f.k, wx AS x FROM flights f ANTI JOIN weather w ON f.k = w.k AND {_BOUND}",
    f"SELECT w.* FROM flights f ANTI JOIN weather w ON f.k = w.k AND {_BOUND}",
    "SELECT f.k FROM flights f WHERE f.k IN (SELECT k FROM weather)",
    "SELECT f.k FROM flights f WHERE f.dest NOT IN (SELECT code FROM airports)",
    "SELECT f.k FROM flights f WHERE f.k IN (SELECT code FROM airports)",
    "SELECT f.k FROM flights f WHERE f.k IN (SELECT city FROM airports WHERE cod = 'x')",
    f"SELECT f.k FROM flights f WHERE w.seen > 1 AND EXISTS (SELECT 1 FROM weather w WHERE f.k = w.k AND {_BOUND})",
    f"SELECT f.k FROM flights f LEFT JOIN weather w ON f.k = w.k AND {_BOUND} LEFT JOIN bookings b ON f.k = b.k AND b.at = f.dep",
    f"SELECT f.k FROM flights f LEFT JOIN airports a ON f.k = a.k FULL JOIN weather w ON f.k = w.k AND {_BOUND}",
    f"SELECT f.k FROM flights f LEFT JOIN airports a ON f.k = a.k LEFT JOIN weather w ON a.city = w.origin AND f.k = w.k AND {_BOUND}",
    "SELECT f.k FROM flights f LEFT JOIN airports a ON f.k = a.k LEFT JOIN airports b ON f.k > 1 AND b.x > 0",
    "SELECT f.k FROM flights f LEFT JOIN airports a ON f.k = a.k LEFT JOIN airports b ON f.k = b.k AND (f.x > b.x OR b.x = 1)",
    "SELECT f.k FROM flights f LEFT JOIN airports a ON f.k = a.k LEFT JOIN airports b ON coalesce(a.city, 'x') = b.city",
    "SELECT f.k FROM flights f LEFT JOIN airports a ON f.k = a.k LEFT JOIN airports b ON f.k = b.k AND a.city IS NULL",
    "SELECT f.k FROM flights f LEFT JOIN airports a ON f.k = a.k LEFT JOIN airports b ON b.k = f.k + a.k",
    "SELECT kk FROM near",
    "SELECT k FROM nearer n\nWHERE n.dep > seen",
    "SELECT w.k FROM near",
    "SELECT k, wx AS K FROM near",
    "SELECT k FROM near WHERE upperr(origin) = 'X' AND k > 1",
    "SELECT k + place AS s FROM near",
    "SELECT n.k FROM nearer n JOIN airports a ON n.k = a.k",
    "SELECT n.k FROM flights f JOIN near n ON n.k = f.k",
    f"SELECT f.k FROM flights f JOIN bookings b ON f.k = b.k LEFT JOIN weather w ON {_BOUND} AND w.seen = b.at",
    f"SELECT f.k FROM flights f JOIN airports a ON f.x > 0 LEFT JOIN weather w ON f.k = w.k AND a.k = w.k AND {_BOUND}",
    "SELECT f.k FROM flights f ASOF JOIN weather w MATCH_CONDITION (f.dep <= w.seen) ON f.k = w.k",
    "SELECT f.k FROM flights f ASOF JOIN weather w MATCH_CONDITION (f.k >= w.k) ON f.k = w.k",
    "SELECT f.k FROM flights f ASOF JOIN weather w MATCH_CONDITION (f.dep >= w.seen AND f.k > 1) ON f.k = w.k",
    "SELECT f.k FROM flights f ASOF JOIN weather w MATCH_CONDITION (f.dep >= w.sen) ON f.k = w.k",
    "SELECT f.k FROM flights f ASOF JOIN weather w MATCH_CONDITION (f.dep >= w.seen) ON f.k > w.k",
    "SELECT f.k FROM flights f LEFT JOIN airports FOR SYSTEM_TIME AS OF f.dep AS a ON f.k = a.k",
    "SELECT f.k FROM airports a JOIN weather FOR SYSTEM_TIME AS OF a.x AS w ON a.k = w.k",
    "SELECT f.k FROM flights f JOIN weather FOR SYSTEM_TIME AS OF f.proctime AS w ON f.k = w.k",
    f"SELECT f.k FROM flights f JOIN weather w ON {_BOUND} ASOF JOIN bookings b MATCH_CONDITION (f.dep >= b.at) ON f.k = b.k",
]


def _message(text: str, host: SparkJoinHost) -> str:
    try:
        refuse(text)
        query = flatten(parse_query(text), {name.upper(): parse_query(view) for name, view in VIEWS.items()})
        assert isinstance(query, JoinQuery)
        bind_join(query, "v", RELATIONS, host)
    except SqlError as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"{text} is accepted")


def test_messages_are_those_recorded(spark: SparkSession) -> None:
    tables = random_tables(seed=1, rows=1)
    host = SparkJoinHost(spark, {name: spark.createDataFrame(tables[name]).schema for name in SCHEMAS})
    found = "\n\n".join(f"{text}\n{_message(text, host)}" for text in QUERIES) + "\n"
    if os.environ.get("PENSTOCK_BLESS"):
        MESSAGES.write_text(found)
    assert found == MESSAGES.read_text()
