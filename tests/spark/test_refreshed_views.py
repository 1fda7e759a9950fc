"""Refreshed views: what the engine publishes, rows withdrawn left out, equals what Spark says of the same tuples, as multisets."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine_cases import put_file
from joined_inputs import wait
from penstock.errors import InputError, StreamFailedError
from penstock.monitor.folder import folder_status
from penstock.monitor.problems import problem_lines
from penstock.monitor.report import status_lines
from penstock.spark.engine import Engine
from penstock.spark.results.read import results
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger
from spark_answers import in_one_partition, tuples_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

SCHEMA = pa.schema(
    [
        ("seen", pa.timestamp("us", "UTC")),
        ("k", pa.string()),
        ("v", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)
VIEWS = {
    "counts": "SELECT /*+ REFRESH('1 minute') */ k, count(*) AS n, max(v) AS most FROM orders GROUP BY k",
    "distinct_keys": "SELECT /*+ REFRESH('1 minute') */ DISTINCT k FROM orders",
    "best": (
        "WITH ranked AS (SELECT /*+ REFRESH('1 minute') */ *, row_number() OVER (PARTITION BY k ORDER BY v DESC, seen) AS place "
        "FROM orders) SELECT k, v, place FROM ranked WHERE place <= 2"
    ),
    "both": "SELECT /*+ REFRESH('1 minute') */ k, v FROM orders WHERE v > 40 UNION ALL SELECT name, 0D FROM names",
    "named": (
        "SELECT /*+ REFRESH('1 minute') */ n.name, o.v, struct(o.k, o.v) AS pair FROM orders o LEFT JOIN names n ON o.k = n.k "
        "WHERE o.v >= (SELECT avg(v) FROM large)"
    ),
    "tagged": "SELECT /*+ REFRESH('1 minute') */ tag, count(*) AS n FROM orders LATERAL VIEW explode(tags) t AS tag GROUP BY tag",
}
#: a view that a refreshed one reads by its text
LARGE = "SELECT seen, v FROM orders WHERE v > 10"


def write_orders(folder: Path, number: int, rows: range) -> None:
    """A file of orders."""
    folder.mkdir(parents=True, exist_ok=True)
    start = 1_577_836_800_000_000
    table = pa.table(
        {
            "seen": pa.array([start + each % 7 * 1_000_000 for each in rows]).cast(SCHEMA.field("seen").type),
            "k": [None if each % 11 == 0 else f"k{each % 5}" for each in rows],
            "v": [None if each % 13 == 0 else float(each % 50) for each in rows],
            "tags": [[f"t{each % 3}", "all"] for each in rows],
        },
        schema=SCHEMA,
    )
    put_file(folder / f"{number}.parquet", lambda path: pq.write_table(table, path))


def script(root: Path, views: dict[str, str] = VIEWS) -> str:
    """The tables and views."""
    (root / "names").mkdir(exist_ok=True)
    pq.write_table(
        pa.table({"k": ["k0", "k1", "k1"], "name": ["a", "b", None]}), root / "names" / "0.parquet"
    )
    declared = [
        f"CREATE TABLE orders USING parquet OPTIONS (path '{root / 'orders'}', event_time 'seen')",
        f"CREATE TABLE names USING parquet OPTIONS (path '{root / 'names'}', static 'true')",
        f"CREATE VIEW large AS {LARGE}",
        *(f"CREATE VIEW {name} AS {text}" for name, text in views.items()),
    ]
    return ";\n".join(declared)


def run_once(spark: SparkSession, root: Path, views: dict[str, str] = VIEWS) -> Engine:
    """A run over the files that there are."""
    engine = Engine(spark)
    engine.execute(script(root, views))
    with engine.start(root / "out", trigger=Trigger.available_now()) as run:
        assert run.await_termination(300)
    return engine


def multiset(rows: DataFrame) -> Counter[str]:
    """Rows, counted."""
    return Counter(repr(row) for row in rows.collect())


def expected(spark: SparkSession, root: Path, text: str) -> Counter[str]:
    """What Spark answers over the files."""
    for name in ("orders", "names"):
        in_one_partition(spark, tuples_of(root / name)).createOrReplaceTempView(name)
    spark.sql(LARGE).createOrReplaceTempView("large")
    try:
        return multiset(spark.sql(text))
    finally:
        for name in ("orders", "names", "large"):
            spark.catalog.dropTempView(name)


def check(spark: SparkSession, root: Path, views: dict[str, str] = VIEWS) -> None:
    """Every view has the rows that Spark answers."""
    for name, text in views.items():
        found = multiset(results(spark, Layout.of(root / "out", None), name))
        assert found == expected(spark, root, text), name


def test_answers_equal_sparks_and_change_with_more_tuples(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "orders", 0, range(100))
    run_once(spark, tmp_path)
    check(spark, tmp_path)
    write_orders(tmp_path / "orders", 1, range(100, 160))
    run_once(spark, tmp_path)
    check(spark, tmp_path)


OF_SPARK = {
    "listed": "k, listagg(DISTINCT k, ',') AS d, string_agg(k, '-') AS l, listagg(v, ' ') WITHIN GROUP (ORDER BY v, seen) AS o",
    "ends": "k, first(k) AS a, last(k IGNORE NULLS) AS b, first_value(k) IGNORE NULLS AS c, last_value(k, true) AS d",
    "drawn": "k, aggregate(histogram_numeric(v, 60), 0D, (n, each) -> n + each.y) AS h, sort_array(approx_top_k(v, 60)) AS top",
    "quantiles": "k, percentile_cont(0.4) WITHIN GROUP (ORDER BY v) AS c, percentile_disc(0.4) WITHIN GROUP (ORDER BY v DESC) AS d, "
    "approx_percentile(v, array(0.1, 0.9), 100) AS p, try_sum(v) AS s, try_avg(v) AS a",
    "sketched": "hll_sketch_estimate(hll_sketch_agg(k)) AS n, bitmap_count(bitmap_construct_agg(bitmap_bit_position(CAST(v AS BIGINT)))) AS bits, "
    "hex(count_min_sketch(k, 0.5D, 0.5D, 1)) AS c, kll_sketch_get_quantile_double(kll_sketch_agg_double(v), 0.5D) AS q",
}


def test_aggregates_that_spark_alone_has(spark: SparkSession, tmp_path: Path) -> None:
    """Also those that depend on the order of the tuples, where it changes nothing."""
    views = {
        name: f"SELECT /*+ REFRESH('1 minute') */ {items} FROM orders"
        + (" GROUP BY k" if items.startswith("k, ") else "")
        for name, items in OF_SPARK.items()
    }
    for number, rows in enumerate((range(100), range(100, 160))):
        write_orders(tmp_path / "orders", number, rows)
        run_once(spark, tmp_path, views)
        check(spark, tmp_path, views)


def test_what_is_told_of_a_refreshed_view(spark: SparkSession, tmp_path: Path) -> None:
    views = {
        "counts": VIEWS["counts"],
        "rows_of_names": "SELECT /*+ REFRESH('1 hour') */ n.name, o.v FROM orders o JOIN names n USING (k)",
    }
    write_orders(tmp_path / "orders", 0, range(40))
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "a.csv").write_text("k0,1\nk1,no number\nk2,2\n")
    engine = Engine(spark)
    tables = script(tmp_path, {}).replace(
        f"names USING parquet OPTIONS (path '{tmp_path / 'names'}'",
        f"names (k STRING, name INT) USING csv OPTIONS (path '{tmp_path / 'names' / 'a.csv'}'",
    )
    engine.execute(tables)
    engine.execute(";\n".join(f"CREATE VIEW {name} AS {text}" for name, text in views.items()))
    sink = tmp_path / "sink"
    engine.execute(
        f"CREATE TABLE files USING parquet OPTIONS (path '{sink}'); INSERT INTO files SELECT * FROM counts"
    )
    assert engine.warnings == []
    explained = engine.explain()
    assert "view counts: refreshed every 1 min" in explained
    assert "kept of all tuples of stream orders, as long as the view exists: k, v" in explained
    with engine.start(tmp_path / "out", trigger=Trigger.available_now()) as run:
        assert run.await_termination(300)
        assert run.status().views["counts"].kind == "refreshed"
        rows = run.results("rows_of_names").collect()
        assert {row.name for row in rows} == {1, 2}, "a record of the table that does not fit is in no answer"
        assert {row.op for row in run.changes("counts").collect()} == {"insert"}
    write_orders(tmp_path / "orders", 1, range(40, 50))
    engine = Engine(spark)
    engine.execute(tables)
    engine.execute(f"CREATE VIEW counts AS {VIEWS['counts']}")
    engine.execute(
        f"CREATE TABLE files USING parquet OPTIONS (path '{sink}'); INSERT INTO files SELECT * FROM counts"
    )
    with engine.start(tmp_path / "out", trigger=Trigger.available_now()) as run:
        assert run.await_termination(300)
        told = run.changes("counts").collect()
    assert {row.op for row in told} == {"insert", "delete"}
    status = folder_status(tmp_path / "out")
    lines = "\n".join(status_lines(status, verbose=True))
    assert "refreshed view counts of orders: 6 rows | every 1 min | the newest answer took" in lines
    assert status["views"]["counts"]["rows"] - status["views"]["counts"]["withdrawn"] == 6
    assert "dropped at" in lines, "rows_of_names"
    delivered = spark.read.parquet(str(sink))
    assert delivered.count() == len(told)


@pytest.mark.long
def test_a_static_table_of_which_no_record_fits_is_a_problem(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "orders", 0, range(40))
    (tmp_path / "towns").mkdir()
    (tmp_path / "towns" / "1.csv").write_text("k0,a,b\nk1,c,d\n")
    text = (
        f"{script(tmp_path, {})}; CREATE TABLE towns (k STRING, town STRING) USING csv "
        f"OPTIONS (path '{tmp_path / 'towns'}', static 'true'); "
        "CREATE VIEW placed AS SELECT /*+ REFRESH('1 minute') */ o.k, t.town FROM orders o LEFT JOIN towns t ON o.k = t.k"
    )
    engine = Engine(spark).execute(text)
    assert any("the table declares 2 columns" in each for each in engine.warnings if "towns: " in each)
    with engine.start(tmp_path / "out", trigger=Trigger.available_now()) as run:
        assert run.await_termination(300)
        (read,) = run.events("static_table_read")
    reason = "malformed csv record: 3 fields, 2 columns"
    assert (read["rows"], read["malformed"]) == (0, {reason: 2})
    (problem,) = problem_lines(folder_status(tmp_path / "out"))
    assert problem.startswith(f"static table towns: NO ROWS: 2 records set aside, all: {reason}. ")
    (tmp_path / "towns" / "2.csv").write_text("k0,a\n")
    with engine.start(tmp_path / "out", trigger=Trigger.available_now()) as run:
        assert run.await_termination(300)
        assert run.events("static_table_read")[-1]["rows"] == 1
    (problem,) = problem_lines(folder_status(tmp_path / "out"))
    assert problem.startswith(f"static table towns: 2 records set aside, all: {reason}: penstock")


def test_a_redefined_view_keeps_its_tuples(spark: SparkSession, tmp_path: Path) -> None:
    first = {"some": "SELECT /*+ REFRESH('1 second') */ k, v FROM orders WHERE v > 40"}
    second = {"some": "SELECT /*+ REFRESH('1 second') */ DISTINCT k, v FROM orders WHERE v > 30"}
    write_orders(tmp_path / "orders", 0, range(60))
    engine = Engine(spark)
    engine.execute(script(tmp_path, first))
    with engine.start(tmp_path / "out") as run:
        wait(lambda: multiset(run.results("some")) == expected(spark, tmp_path, first["some"]), run)
        engine.view("some", second["some"])
        write_orders(tmp_path / "orders", 1, range(60, 90))
        wait(lambda: multiset(run.results("some")) == expected(spark, tmp_path, second["some"]), run)
    write_orders(tmp_path / "orders", 2, range(90, 130))
    third = {"some": second["some"].replace("30", "20")}
    run_once(spark, tmp_path, third)
    check(spark, tmp_path, third)


def test_what_cannot_be_answered_is_refused_with_words(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "orders", 0, range(40))
    engine = Engine(spark)
    engine.execute(script(tmp_path, {}))
    hint = "/*+ REFRESH('1 minute') */"
    refused = {
        f"SELECT {hint} nothing FROM orders": "Column nothing does not exist",
        f"SELECT {hint} k FROM nowhere": "nowhere does not exist",
        f"SELECT {hint} name FROM names": "static tables only",
        f"SELECT {hint} k, k FROM orders": "Two columns have the name k",
        f"SELECT {hint} k, v AS K FROM orders": "Two columns have the name K",
        f"SELECT {hint} seen - seen AS gap FROM orders": "CAST it",
        f"SELECT {hint} rand() AS x FROM orders": "differs between evaluations",
        f"SELECT {hint} reflect('java.lang.Math', 'abs', 1) AS x FROM orders": "Code of the Java machine",
        f"WITH a AS (SELECT {hint} reflect('java.lang.Math', 'abs', 1) AS x FROM orders) SELECT * FROM a": "Code of the Java",
        f"SELECT TRANSFORM(k) USING 'cat' AS (x) FROM (SELECT {hint} k FROM orders)": "ScriptTransformation",
        f"SELECT {hint} * FROM parquet.`{tmp_path}`": "one part",
    }
    for text, told in refused.items():
        with pytest.raises(InputError, match=re.escape(told)):
            engine.view("v", text)
    assert engine.declared["orders"] == ["large"]


def test_a_refusal_names_the_hint_where_it_answers(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "orders", 0, range(40))
    engine = Engine(spark)
    engine.execute(script(tmp_path, {}))
    named = "Or add the hint /*+ REFRESH('1 minute') */ behind SELECT"
    answered = "SELECT k FROM orders WHERE v = (SELECT max(v) FROM orders)"
    with pytest.raises(InputError, match=re.escape(named)):
        engine.view("v", answered)
    with pytest.raises(InputError, match=re.escape(named)):
        engine.execute(f"CREATE VIEW w AS SELECT k FROM orders WHERE v > 1;\nCREATE VIEW v AS {answered}")
    with pytest.raises(InputError) as error:
        engine.view("v", "SELECT k FROM orders WHERE v = (SELECT max(nothing) FROM orders)")
    assert named not in str(error.value)


def test_joins_with_the_newest_row_name_what_spark_answers(spark: SparkSession, tmp_path: Path) -> None:
    tables = "".join(
        f"CREATE TABLE {name} (k INT, at TIMESTAMP) USING json OPTIONS (path '{tmp_path}/{name}', event_time 'at');"
        for name in "abc"
    )
    for name in "abc":
        (tmp_path / name).mkdir()
    engine = Engine(spark)
    engine.execute(f"{tables}CREATE VIEW running AS SELECT k, count(*) AS n FROM a GROUP BY k")
    lateral = "JOIN LATERAL (SELECT * FROM r WHERE r.key = l.key AND r.time <= l.time ORDER BY r.time DESC LIMIT 1) AS r"

    def told(query: str) -> str:
        with pytest.raises(InputError) as error:
            engine.view("v", query)
        return str(error.value).partition("\n")[0]

    of_time = (
        "{join} b FOR SYSTEM_TIME AS OF a.at ON a.k = b.k {join} c FOR SYSTEM_TIME AS OF a.at ON a.k = c.k"
    )
    matched = "{join} b MATCH_CONDITION (a.at >= b.at) ON a.k = b.k {join} c MATCH_CONDITION (a.at >= c.at) ON a.k = c.k"
    for joins in (
        *(of_time.format(join=join) for join in ("JOIN", "LEFT JOIN")),
        *(matched.format(join=f"{join}ASOF JOIN") for join in ("", "LEFT ")),
        "LEFT JOIN b FOR SYSTEM_TIME AS OF a.at ON a.k = b.k LEFT JOIN c ON a.k = c.k",
    ):
        message = told(f"SELECT a.k FROM a {joins}")
        assert lateral in message
        assert "inner JOIN" not in message
        assert message.count("REFRESH") == 1
        message = told(f"SELECT /*+ REFRESH('1 minute') */ a.k FROM a {joins}")
        assert lateral in message
        assert "is not supported there" in message
    inner = "(SELECT a.k, a.at FROM a JOIN b FOR SYSTEM_TIME AS OF a.at ON a.k = b.k)"
    assert lateral in told(f"SELECT l.k FROM {inner} l JOIN c FOR SYSTEM_TIME AS OF l.at ON l.k = c.k")
    answered = lateral.replace("l.", "a.").replace("key", "k").replace("time", "at")
    engine.view(
        "star",
        f"SELECT /*+ REFRESH('1 minute') */ a.k FROM a LEFT {answered.replace('FROM r', 'FROM b r')} "
        f"LEFT {answered.replace('FROM r', 'FROM c r').replace('AS r', 'AS s')}",
    )
    two = (
        "SELECT a.k FROM a LEFT JOIN b ON a.k = b.k AND a.at = b.at LEFT JOIN c ON a.k = c.k AND a.at = c.at"
    )
    assert told(two).count("REFRESH") == 1
    grouped = "SELECT k, count(*) AS n FROM running GROUP BY ROLLUP (k)"
    assert told(grouped).count("REFRESH") == 1


def test_an_answer_with_too_many_rows_fails_by_name(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "orders", 0, range(40))
    engine = Engine(spark, refreshed_rows=5, retry_attempts=0)
    engine.execute(script(tmp_path, {"every": "SELECT /*+ REFRESH('1 minute') */ k, v FROM orders"}))
    told = pytest.raises(StreamFailedError, match="refreshed view every has more than 5 rows")
    with engine.start(tmp_path / "out", trigger=Trigger.available_now()) as run, told:
        run.await_termination(300)
