"""WITH and queries in FROM are answered as Spark answers them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from joined_inputs import multiset
from penstock.errors import InputError, SqlError
from penstock.spark.engine import Engine
from penstock.trigger import Trigger
from read_results import bag, published
from spark_answers import in_one_partition, tuples_of

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, city STRING, qty INT, ts TIMESTAMP"
#: a view that the others may read
LARGE = "SELECT id, city AS town, qty * 10 AS tens, ts FROM t WHERE qty > 1"
VIEWS = {
    "named": "WITH big AS (SELECT id AS i, city AS c, qty FROM t WHERE qty > 2) SELECT c, i * qty AS x FROM big WHERE c <> 'Rome'",
    "nested": "SELECT x.c, n FROM (SELECT c, i + 1 AS n FROM (SELECT id AS i, city AS c FROM t WHERE qty < 4) WHERE i % 2 = 0) AS x WHERE x.n > 9",
    "shadow": "WITH T AS (SELECT * FROM t WHERE qty = 3) SELECT id, qty FROM t",
    "chain": "WITH a AS (SELECT * FROM large WHERE town IS NOT NULL), b AS (SELECT tens + 1 AS m, town FROM a) SELECT * FROM b WHERE m > 21",
    "windows": "WITH a AS (SELECT city AS c, qty * 2 AS q, ts FROM t WHERE qty > 0) "
    "SELECT c, window(ts, '10 minutes') AS w, sum(q) AS s FROM a GROUP BY c, w HAVING count(*) > 1",
    "over_windows": "SELECT c, s FROM (SELECT city AS c, window(ts, '10 minutes') AS w, sum(qty) AS s FROM t GROUP BY city, w) WHERE s % 2 = 0",
    "groups": "SELECT k, n FROM (SELECT city AS k, count(*) AS n FROM t GROUP BY city) AS g WHERE g.n % 2 = 0",
    "of_groups": "WITH g AS (SELECT city, max(qty) AS m FROM t GROUP BY city) SELECT max(m) AS mm, count(*) AS n FROM g",
    "joined": "WITH a AS (SELECT id, city, ts FROM t WHERE qty > 1), b AS (SELECT id AS k, qty + 1 AS more, ts AS at FROM t) "
    "SELECT a.city, y.more FROM a JOIN (SELECT * FROM b WHERE more > 2) y ON a.id = y.k AND y.at = a.ts",
    "over_join": "SELECT city FROM (SELECT l.city, r.qty FROM t l JOIN t r ON l.id = r.id AND l.ts = r.ts) WHERE qty > 2",
    "united": "WITH a AS (SELECT id AS i FROM t WHERE qty = 1) SELECT i FROM a UNION ALL SELECT i + 1000 AS i FROM a WHERE i > 5",
    "ranked": "WITH a AS (SELECT id, city, qty FROM t WHERE id > 3) SELECT city, id FROM "
    "(SELECT *, row_number() OVER (PARTITION BY city ORDER BY qty DESC, id) AS r FROM a) WHERE r <= 2",
    "deep": "SELECT m FROM (SELECT max(n) AS m FROM (SELECT city, count(*) AS n FROM t GROUP BY city)) WHERE m > 2",
    "with_groups": "WITH a AS (SELECT city FROM t WHERE qty > 1), g AS (SELECT city, count(*) AS n FROM a GROUP BY city) "
    "SELECT city, n FROM g WHERE n > 3",
    "with_union": "WITH a AS (SELECT city FROM t WHERE qty > 1), u AS (SELECT city FROM a UNION ALL SELECT city FROM t) "
    "SELECT city FROM u WHERE city <> 'Rome'",
    "of_union": "SELECT city, n FROM (SELECT city, count(*) AS n FROM (SELECT city FROM t UNION ALL SELECT city FROM t) GROUP BY city) WHERE n > 3",
    "keyword": "WITH date AS (SELECT id FROM t WHERE qty > 1), first AS (SELECT id + 1 AS i FROM date) SELECT first.i FROM first WHERE i > 4",
    "qualified": "WITH a AS (SELECT * FROM t WHERE id > 3) SELECT city, qty FROM a "
    "QUALIFY row_number() OVER (PARTITION BY city ORDER BY qty DESC, id) <= 2",
    "over_qualified": "WITH r AS (SELECT city, id FROM t QUALIFY row_number() OVER (PARTITION BY city ORDER BY id) <= 1) SELECT city FROM r",
    "two_unnamed": "SELECT c FROM (SELECT city AS c, id AS i, ts AS a FROM t) JOIN (SELECT city AS d, id AS j, ts AS b FROM t WHERE id > 2) "
    "ON i = j AND a = b",
    "as_of": "WITH b AS (SELECT id AS k, qty AS q, ts AS u FROM t WHERE qty > 1) "
    "SELECT t.id, b.q FROM t ASOF JOIN b MATCH_CONDITION (t.ts >= b.u) ON t.id = b.k",
    "from_within": "WITH ts AS (SELECT id, ts, city FROM t WHERE qty > 1), city AS (SELECT * FROM t) "
    "SELECT extract(minute FROM ts) AS m, (city IS DISTINCT FROM city) AS same, trim(BOTH 'R' FROM city) AS c FROM ts WHERE city IS DISTINCT FROM 'Bern'",
    "unread": "WITH a AS (SELECT id FROM t), b AS (SELECT city FROM t) SELECT count(*) AS n FROM b",
}


def write(folder: Path) -> None:
    folder.mkdir()
    for number in range(3):
        ids = range(number * 20, number * 20 + 20)
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "city": [
                    None if each % 9 == 0 else ("Rome", "Bern", "Oslo", "Aix")[each % 4] for each in ids
                ],
                "qty": pa.array([each * 7 % 5 for each in ids], pa.int32()),
                "ts": pa.array([each * 60_000_000 for each in ids], pa.timestamp("us", "UTC")),
            }
        )
        pq.write_table(table, folder / f"{number}.parquet")


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Engine:
    write(tmp_path / "in")
    return Engine(spark).execute(
        f"CREATE TABLE t ({COLUMNS}) USING parquet OPTIONS (path '{tmp_path / 'in'}', event_time 'ts', max_files_per_trigger '1')"
    )


def test_rows_are_sparks(spark: SparkSession, engine: Engine, tmp_path: Path) -> None:
    run = engine.add_views({"large": LARGE, **VIEWS}).start(
        tmp_path / "out", trigger=Trigger.available_now(ended=True)
    )
    assert run.await_termination(300)
    run.stop()
    in_one_partition(spark, tuples_of(tmp_path / "in")).createOrReplaceTempView("t")
    spark.sql(LARGE).createOrReplaceTempView("large")
    spark.conf.set("spark.sql.join.asofJoin.enabled", "true")
    try:
        for name, text in VIEWS.items():
            wanted = spark.sql(text)
            columns, rows = wanted.columns, multiset(wanted)
            found = [{column: row[column] for column in columns} for row in published(run, name)]
            assert bag(found) == rows, name
            assert rows, name
    finally:
        spark.conf.unset("spark.sql.join.asofJoin.enabled")


def test_what_a_query_in_from_reads_is_there_first(engine: Engine) -> None:
    engine.view("large", LARGE).view("chain", VIEWS["chain"])
    with pytest.raises(InputError, match="chain"):
        engine.drop("large")
    engine.drop("chain", "large")


@pytest.mark.parametrize(
    ("marked", "message"),
    [
        ("WITH a AS (SELECT «idd» FROM t) SELECT * FROM a", "Column idd does not exist; did you mean id?"),
        ("WITH a AS (SELECT id FROM t) SELECT «town» FROM a", "Column town does not exist"),
        ("WITH a AS (SELECT id FROM «nowhere») SELECT * FROM a", "Stream or view nowhere does not exist"),
        ("WITH «RECURSIVE» a AS (SELECT 1) SELECT * FROM a", "WITH RECURSIVE is not supported"),
        ("WITH a«(»x) AS (SELECT id FROM t) SELECT x FROM a", "Names of columns behind a are not supported"),
        ("WITH a AS (SELECT id FROM t), «A» AS (SELECT 1) SELECT * FROM a", "two queries of the name A"),
        ("WITH a AS «SELECT» id FROM t SELECT * FROM a", "A query in parentheses is expected behind a"),
        (
            "WITH b AS (SELECT id FROM t), c AS (SELECT id ids «idx» FROM t) SELECT id FROM b",
            "This is not an expression",
        ),
        (
            "SELECT city, count(*) AS n FROM «(SELECT city FROM kept WHERE n > 1)» GROUP BY city",
            "over a query in FROM that reads kept, whose rows are a stream of their own",
        ),
        ("WITH a AS (SELECT id FROM t«)»", "SELECT is expected behind the queries of WITH"),
        (
            "SELECT l.id FROM t l JOIN (SELECT city, count(*) AS n FROM t «GROUP BY» city) r ON l.city = r.city",
            "A query that aggregates is not supported here yet",
        ),
        (
            "SELECT u.city FROM (SELECT city FROM t «UNION» ALL SELECT city FROM t) u JOIN t USING (city)",
            "A UNION ALL is not supported here yet",
        ),
    ],
)
def test_mistakes_are_where_they_were_written(engine: Engine, marked: str, message: str) -> None:
    engine.view("kept", "SELECT city, count(*) AS n FROM t GROUP BY city")
    with pytest.raises(InputError, match=message) as raised:
        engine.view("v", marked.replace("«", "").replace("»", ""))
    error = raised.value
    assert isinstance(error, SqlError)
    assert (
        f"{error.text[: error.start]}«{error.text[error.start : error.end]}»{error.text[error.end :]}"
        == marked
    )
