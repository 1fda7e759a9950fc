"""Aggregates that are other ones, and those of single values, are what Spark says of the same tuples; where Spark leaves the answer open, ours is the least or ascends."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import put_file
from forms import ALL
from order_files import COLUMNS, expected, finished, values, write
from penstock import Engine
from penstock.errors import SqlError
from penstock.monitor.verification import verify
from read_results import published

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

DAYS = "window(seen, '2 days')"
GAP = "session_window(seen, '2 hours')"
CONDITIONS = (
    "count_if(amount > 500), count_if(price IS NULL OR name = 'w') AS missing, bool_and(amount > 20), every(price < 99) AS e, "
    "bool_or(amount > 990), some(name = 'w') AS s, any(exact < -990), count_if(amount % 2 = 0) FILTER (WHERE price > 50) AS f, "
    "any_value(name) IS NULL AS without_name, min(DISTINCT price) AS least, max(DISTINCT name), bool_or(NOT amount IS NULL) FILTER (WHERE id < 0) AS nothing"
)
VALUES = (
    "sum(DISTINCT amount % 9), avg(DISTINCT amount % 9) AS a, sum(DISTINCT exact) AS x, avg(DISTINCT exact) AS m, sum(DISTINCT price) AS p, "
    "sort_array(collect_set(name)) AS names, array_size(collect_list(amount)) AS n, sort_array(array_agg(price) FILTER (WHERE amount > 700)) AS few, "
    "sort_array(collect_list(DISTINCT amount % 5)) AS five, array_join(sort_array(collect_set(name)), '+') AS text, "
    "count(DISTINCT amount % 9) AS d, mode(CASE WHEN amount % 3 > 0 THEN name END, true) AS often"
)
VIEWS = {
    "conditions": f"SELECT name, {CONDITIONS} FROM orders GROUP BY name",
    "of_all": f"SELECT {CONDITIONS}, {VALUES} FROM orders",
    "of_none": f"SELECT {CONDITIONS}, {VALUES} FROM orders WHERE amount > 5000",
    "single": f"SELECT name, {VALUES} FROM orders GROUP BY name",
    "kept": "SELECT name, amount % 7 AS k, count_if(price > 50) AS c FROM orders GROUP BY name, k "
    "HAVING every(price > 2) AND size(collect_set(amount)) > 3 OR sum(DISTINCT amount) % 2 = 1",
    "sets": f"SELECT name, amount % 3 AS k, grouping_id() AS g, {VALUES}, count_if(price > 30) AS c, any(amount > 995) AS o "
    "FROM orders GROUP BY CUBE(name, amount % 3)",
    "days": f"SELECT {DAYS} AS w, name, {CONDITIONS}, {VALUES} FROM orders GROUP BY w, name",
    "sliding": "SELECT window(seen, '1 day', '8 hours').end AS e, sum(DISTINCT amount % 20) AS s, bool_and(amount > 30) AS b, "
    "sort_array(collect_list(exact)) AS l FROM orders GROUP BY window(seen, '1 day', '8 hours') HAVING count_if(price > 20) > 2",
    "early": "SELECT /*+ MAX_ERROR(0.1, 0.1) */ window(seen, '1 day').start AS b, avg(DISTINCT amount % 20) AS s, "
    "sort_array(collect_set(name)) AS l, mode(name, true) AS often, any(amount > 990) AS o FROM orders GROUP BY window(seen, '1 day')",
    "visits": f"SELECT {GAP} AS w, name, {VALUES}, count_if(amount > 500) AS c FROM orders GROUP BY {GAP}, name",
    "above": "SELECT w.start AS begun, n, names[0] AS first FROM days WHERE size(names) > 0 AND e",
    "over_days": "SELECT name, bool_or(e) AS e, sum(DISTINCT n) AS s, avg(DISTINCT x) AS a, sort_array(collect_list(n)) AS l, mode(n % 3, true) AS m "
    "FROM days GROUP BY name",
    "weeks": "SELECT window(w.start, '8 days') AS w8, count_if(n > 2) AS c, sort_array(collect_set(name)) AS names, sum(DISTINCT n) AS s, mode(n, true) AS m "
    "FROM days GROUP BY window(w.start, '8 days')",
    "over_kept": "SELECT k, sort_array(collect_list(name)) AS names, every(c > 1) AS e, sum(DISTINCT c) AS s, mode(c, true) AS m FROM kept GROUP BY k",
}
#: these say so only as their windows end
OF_WINDOWS = {"days", "sliding", "early", "visits", "above", "over_days", "weeks"}


def ours(text: str) -> str:
    """A text as a view: Penstock's `mode` has the least value in any case."""
    return text.replace(", true)", ")")


def engine(spark: SparkSession, data: Path, views: dict[str, str], columns: str = COLUMNS) -> Engine:
    script = f"CREATE TABLE orders ({columns}) USING parquet OPTIONS (path '{data}', max_files_per_trigger '2', event_time 'seen')"
    return Engine(spark).execute(script).add_views({name: ours(text) for name, text in views.items()})


def test_they_are_their_text_over_the_tuples_taken_in(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    lives = [(range(3), False), (range(3, 5), True), (range(5, 6), False)]
    for files, ended in lives if ALL else lives[:2]:
        write(data, files)
        run = finished(engine(spark, data, VIEWS), out, ended=ended)
        for name, wanted in expected(spark, data, VIEWS).items():
            if name in OF_WINDOWS and not ended:
                continue
            found = run.results(name)
            if "mode(" not in VIEWS[name]:
                told = spark.table(name).schema
                assert found.columns == told.names
                assert [field.dataType.simpleString() for field in found.schema] == [
                    field.dataType.simpleString() for field in told
                ]
            assert values(published(run, name)) == wanted, (name, files)
    assert verify(out).faults == []


EDGES = "id BIGINT, wide BIGINT, much DECIMAL(38, 2), real DOUBLE, small FLOAT, yes BOOLEAN, raw BINARY, day DATE, seen TIMESTAMP"
OF_EDGES = {
    "edges": "SELECT id % 3 AS k, sort_array(collect_list(real)) AS l, sort_array(collect_set(real)) AS s, count(DISTINCT real) AS d, "
    "sum(DISTINCT real) AS r, sum(DISTINCT small) AS f, mode(real, true) AS m, mode(yes, true) AS y, sort_array(collect_list(yes)) AS ys, "
    "sort_array(collect_set(raw)) AS raws, mode(raw, true) AS often, sort_array(collect_list(day)) AS days, mode(day, true) AS md, "
    "min(yes) AS least, any(yes) AS a, count_if(yes) AS c, avg(DISTINCT wide) AS mean, try_sum(DISTINCT wide) AS w, try_sum(DISTINCT much) AS big, "
    "try_avg(DISTINCT much) AS mid, bool_and(yes) FILTER (WHERE id > 2) AS b FROM orders GROUP BY id % 3",
}


def test_edges_of_types(spark: SparkSession, tmp_path: Path) -> None:
    """NaN, both zeros, NULLs alone, and sums that do not fit: NULL, as Spark's `try_sum`."""
    nan, most, data = float("nan"), 2**63 - 1, tmp_path / "data"
    data.mkdir()
    large = "999999999999999999999999999999999999.99"
    rows = [
        (0, most, large, 0.0, 1.5, True, b"b", 3),
        (3, most - 1, "888888888888888888888888888888888888.88", -0.0, nan, None, b"a", 1),
        (6, most, large, nan, nan, False, b"b", 3),
        (9, 5, None, -nan, 1.5, False, None, None),
        (1, None, None, None, None, None, None, None),
        (4, None, None, None, None, None, None, None),
        (2, 7, "0.01", -0.0, -0.0, True, b"", 8),
        (5, -most, "-7.05", 2.5, 0.0, True, b"", 2),
        (8, 7, "0.01", -1.0, 4.25, True, b"x", 8),
    ]
    for number, own in enumerate((rows[::2], rows[1::2])):
        columns: list[pa.Array] = [
            pa.array(each, kind)
            for each, kind in zip(
                zip(*own, strict=True),
                (
                    pa.int64(),
                    pa.int64(),
                    pa.string(),
                    pa.float64(),
                    pa.float32(),
                    pa.bool_(),
                    pa.binary(),
                    pa.date32(),
                ),
                strict=True,
            )
        ]
        columns[2] = columns[2].cast(pa.decimal128(38, 2))
        columns.append(pa.array([10**12 * number] * len(own), pa.timestamp("us", "UTC")))
        table = pa.table(
            columns, names=[each.split()[0] for each in re.sub(r"\(.*?\)", "", EDGES).split(", ")]
        )
        put_file(data / f"{number}.parquet", lambda path, table=table: pq.write_table(table, path))
    views = {name: re.sub(r"try_(sum|avg)", r"\1", text) for name, text in OF_EDGES.items()}
    run = finished(engine(spark, data, views, EDGES), tmp_path / "out", ended=True)
    for name, wanted in expected(spark, data, OF_EDGES).items():
        assert repr(values(published(run, name))).replace("-0.0", "0.0") == repr(wanted).replace(
            "-0.0", "0.0"
        )


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("count_if(amount)", "BOOLEAN"),
        ("bool_and(amount)", "BOOLEAN"),
        ("any(price)", "BOOLEAN"),
        ("every(id + 1)", "BOOLEAN"),
        ("count_if(amount > 1, 2)", "takes one argument here, not 2"),
        ("count_if(DISTINCT amount > 1)", r"COUNT_IF\(DISTINCT\) is not supported yet"),
        ("mode(DISTINCT amount)", r"MODE\(DISTINCT\) is not supported yet"),
        ("mode() WITHIN GROUP (ORDER BY amount)", "takes one argument here, not 0"),
        ("stddev(DISTINCT amount)", r"STDDEV\(DISTINCT\) is not supported yet"),
        ("collect_list(array(amount))", "type ARRAY<INT> is not supported here"),
        (
            "collect_set(named_struct('a', amount))",
            "type STRUCT<a: INT NOT NULL>|type STRUCT<a: INT> is not supported here",
        ),
        ("mode(map(name, 1))", "is not supported here"),
        ("any_value(named_struct('a', amount))", "Take it of each field"),
        ("any_value(map(1, amount))", "ordering|not supported"),
        ("sum(DISTINCT name = 'w')", "DATATYPE_MISMATCH|requires|BOOLEAN"),
        ("collect_list(NULL)", "The argument is NULL in every tuple: CAST it to a type"),
        ("first(name)", r"FIRST is not supported yet\. Write min_by\(x, time\)"),
        ("last_value(name)", r"LAST_VALUE is not supported yet\. Write max_by\(x, time\)"),
        ("bitmap_or_agg(name)", "BITMAP_OR_AGG is not supported yet"),
    ],
)
@pytest.mark.parametrize("group", ["name", DAYS])
def test_refusals(spark: SparkSession, tmp_path: Path, item: str, message: str, group: str) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(SqlError, match=message) as caught:
        engine(spark, tmp_path / "data", {"v": f"SELECT {item} AS x FROM orders GROUP BY {group}"})
    print(item, "->", caught.value)


def test_like_any_is_a_condition(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, range(2))
    views = {
        "liked": "SELECT id, name LIKE ANY ('n%', 'w') AS l FROM orders WHERE name LIKE SOME ('nor%', 's%') OR name NOT LIKE ANY ('e%')",
        "counted": "SELECT name LIKE ANY ('n%', 'w') AS l, count_if(name LIKE ANY ('%h', 'w')) AS c FROM orders GROUP BY name LIKE ANY ('n%', 'w')",
    }
    run = finished(engine(spark, data, views), tmp_path / "out", ended=True)
    for name, wanted in expected(spark, data, views).items():
        assert values(published(run, name)) == wanted, name
