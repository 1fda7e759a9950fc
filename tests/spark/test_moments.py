"""Moments, correlation, regression and bits are what Spark says of the same tuples, through restarts, late tuples and corrections."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine_cases import put_file
from forms import ALL
from order_files import engine, finished, write
from penstock import Engine
from penstock.errors import SqlError
from penstock.monitor.verification import verify
from read_results import published
from spark_answers import frames_of, in_one_partition, tuples_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

DAYS = "window(seen, '2 days')"
GAP = "session_window(seen, '2 hours')"
EVERY = (
    "corr(amount, price), covar_pop(amount, price), covar_samp(price, exact) AS cs, regr_slope(price, amount), regr_intercept(price, amount) AS i, "
    "regr_r2(price, amount), regr_count(price, amount), regr_avgx(price, exact), regr_avgy(exact, price) AS y, regr_sxx(price, amount), "
    "regr_syy(price, amount), regr_sxy(price, amount), skewness(price), kurtosis(price), stddev(price) AS s, skewness(amount % 2) AS k2, "
    "bit_and(amount), bit_or(amount % 7) AS o, bit_xor(id), bit_and(DISTINCT amount) AS d, bit_or(CAST(amount % 5 AS TINYINT)) AS t, "
    "corr(amount, -price) FILTER (WHERE amount > 500) AS f, kurtosis(exact) FILTER (WHERE price > 50) AS q, bit_xor(amount) FILTER (WHERE id < 0) AS none, "
    "regr_count(price, amount) FILTER (WHERE amount > 500) AS n, corr(id, id) AS one"
)
FEW = "corr(amount, price) AS c, regr_slope(price, amount) AS s, kurtosis(price) AS k, bit_xor(id) AS x, regr_avgx(price, exact) AS m"
VIEWS = {
    "running": f"SELECT name, {EVERY} FROM orders GROUP BY name",
    "of_all": f"SELECT {EVERY} FROM orders",
    "of_none": f"SELECT {EVERY} FROM orders WHERE amount > 5000",
    "of_few": f"SELECT id % 50 AS k, {EVERY} FROM orders WHERE id % 1000 < 4 GROUP BY id % 50",
    "kept": "SELECT name, amount % 7 AS k, corr(amount, price) * 2 AS c, round(skewness(price), 3) AS s FROM orders GROUP BY name, k "
    "HAVING regr_count(amount, price) > 5 AND bit_or(amount) > 100 AND abs(corr(amount, price)) > 0.01",
    "sets": f"SELECT name, amount % 3 AS k, grouping_id() AS g, {EVERY} FROM orders GROUP BY CUBE(name, amount % 3)",
    "days": f"SELECT {DAYS} AS w, name, {EVERY} FROM orders GROUP BY w, name",
    "sliding": f"SELECT window(seen, '1 day', '8 hours').end AS e, {FEW} FROM orders GROUP BY window(seen, '1 day', '8 hours') "
    "HAVING skewness(price) > -0.5",
    "early": f"SELECT /*+ MAX_ERROR(0.1, 0.1) */ window(seen, '1 day').start AS b, {FEW} FROM orders GROUP BY window(seen, '1 day')",
    "visits": f"SELECT {GAP} AS w, name, {FEW}, covar_samp(amount, exact) AS v FROM orders GROUP BY {GAP}, name",
    "over_days": "SELECT name, corr(n, f) AS c, kurtosis(n) AS k, bit_or(o) AS o, regr_intercept(s, i) AS r, regr_avgy(y, n) AS y FROM days GROUP BY name",
    "weeks": "SELECT window(w.start, '8 days') AS w8, covar_pop(n, t) AS c, skewness(n) AS k, bit_xor(n) AS x FROM days GROUP BY window(w.start, '8 days')",
    "over_running": "SELECT corr(n, y) AS c, stddev(n) AS s, bit_and(n) AS b, regr_count(n, y) AS r FROM running",
    "over_kept": "SELECT k % 2 AS odd, covar_samp(c, s) AS v, skewness(c) AS w, bit_xor(k) AS x FROM kept GROUP BY k % 2",
}
#: these say so only as their windows end
OF_WINDOWS = {"days", "sliding", "early", "visits", "over_days", "weeks"}


def answers(spark: SparkSession, data: Path, views: dict[str, str]) -> dict[str, DataFrame]:
    in_one_partition(spark, tuples_of(data)).createOrReplaceTempView("orders")
    return frames_of(spark, views)


def assert_same(found: list[dict[str, Any]], wanted: list[dict[str, Any]], told: object) -> None:
    """The same rows, doubles but for what differs with the order of what is added up."""

    def order(row: dict[str, Any]) -> str:
        return repr([f"{each:.4e}" if isinstance(each, float) else each for each in row.values()])

    assert len(found) == len(wanted), told
    for one, other in zip(sorted(found, key=order), sorted(wanted, key=order), strict=True):
        for (name, value), hoped in zip(one.items(), other.values(), strict=True):
            if isinstance(value, float) and isinstance(hoped, float):
                same = math.isclose(value, hoped, rel_tol=1e-9, abs_tol=1e-9)
                assert same or (math.isnan(value) and math.isnan(hoped)), (told, name, value, hoped)
            else:
                assert value == hoped, (told, name, value, hoped)


def test_they_are_their_text_over_the_tuples_taken_in(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    lives = [(range(3), False), (range(3, 5), True), (range(5, 6), False)]
    for files, ended in lives if ALL else lives[:2]:
        write(data, files)
        run = finished(engine(spark, data, VIEWS), out, ended=ended)
        for name, wanted in answers(spark, data, VIEWS).items():
            if name in OF_WINDOWS and not ended:
                continue
            frame = run.results(name)
            assert frame.columns == wanted.columns
            assert [field.dataType for field in frame.schema] == [field.dataType for field in wanted.schema]
            assert_same(published(run, name), wanted.toArrow().to_pylist(), (name, files))
    assert verify(out).faults == []


EDGES = "id BIGINT, real DOUBLE, small FLOAT, wide BIGINT, tiny TINYINT, word STRING, exact DECIMAL(38, 2), seen TIMESTAMP"
OF_EDGES = {
    "edges": "SELECT id % 10 AS k, corr(real, small) AS c, covar_pop(real, wide) AS p, covar_samp(wide, tiny) AS s, regr_slope(real, small) AS rs, "
    "regr_intercept(real, small) AS ri, regr_r2(real, small) AS rr, regr_count(real, small) AS n, regr_avgx(real, small) AS ax, "
    "regr_avgy(real, small) AS ay, regr_sxx(real, small) AS xx, regr_syy(real, small) AS yy, regr_sxy(real, small) AS xy, "
    "skewness(real) AS sk, kurtosis(real) AS ku, stddev_pop(real) AS sd, var_samp(small) AS vs, skewness(small) AS sk2, regr_r2(small, real) AS r2, "
    "corr(word, tiny) AS w, regr_avgy(word, real) AS aw, regr_count(word, word) AS nw, bit_and(wide) AS ba, bit_or(tiny) AS bo, bit_xor(wide) AS bx, "
    "regr_avgx(real, exact) AS e, skewness(exact) AS se FROM orders GROUP BY id % 10",
}
_NAN, _INF = math.nan, math.inf


def test_edges_of_types(spark: SparkSession, tmp_path: Path) -> None:
    """NULLs alone, one tuple, equal values, NaN, infinity, far values, both ends of whole numbers: in files of their own, merged by restarts."""
    data = tmp_path / "data"
    data.mkdir()
    rows = [
        *((0, None, 1.5, None, None, None, None), (0, 2.0, None, None, None, None, "1.25")),
        (1, 0.1, 3.5, 2**63 - 1, 127, "12", "0.10"),
        # equal values whose mean by sums is another number
        *((2, 0.1, 0.3, -(2**63), -128, "3", "0.10"),) * 7,
        # of one column equal
        *((3, float(each), 7.0, each, 1, "4", "2.00") for each in range(4)),
        *((4, 5.5, float(each) / 3, 2**62 + each, each, f"{each}.5", "-3.33") for each in range(5)),
        *(
            (5, _NAN, 1.0, 1, 1, "1", "1.00"),
            (5, 2.0, 2.0, 2, 2, "2", "2.00"),
            (5, 3.0, 4.0, 4, 4, "4", "1.00"),
        ),
        *(
            (6, _INF, 1.0, 1, 1, "1", "1.00"),
            (6, 2.0, 2.0, 2, 2, "2", "2.00"),
            (6, 3.0, 4.0, 4, 4, "4", "9.00"),
        ),
        (7, _INF, 2.0, -1, -1, "-1", "1.00"),
        *((8, 1e6 + each, each * 1.0, each, 3, "5", "7.00") for each in (1, 2, 4, 9)),
        *((9, -0.0, 0.0, 0, 0, "0", None), (9, 0.0, -0.0, 0, 0, "0", None)),
    ]
    kinds = (pa.int64(), pa.float64(), pa.float32(), pa.int64(), pa.int8(), pa.string(), pa.string())
    names = [each.split()[0] for each in EDGES.replace(", 2)", ")").split(", ")]
    for number in range(3):
        own = rows[number::3]
        columns = [pa.array(each, kind) for each, kind in zip(zip(*own, strict=True), kinds, strict=True)]
        columns[-1] = columns[-1].cast(pa.decimal128(38, 2))
        columns.append(pa.array([10**12 * number] * len(own), pa.timestamp("us", "UTC")))
        table = pa.table(columns, names=names)
        put_file(data / f"{number}.parquet", lambda path, table=table: pq.write_table(table, path))
    script = f"CREATE TABLE orders ({EDGES}) USING parquet OPTIONS (path '{data}', max_files_per_trigger '1', event_time 'seen')"
    run = finished(Engine(spark).execute(script).add_views(OF_EDGES), tmp_path / "out", ended=True)
    for name, wanted in answers(spark, data, OF_EDGES).items():
        assert_same(published(run, name), wanted.toArrow().to_pylist(), name)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("corr(amount)", "takes another number of arguments"),
        ("regr_slope(amount)", "REGR_SLOPE takes two arguments, not 1"),
        ("regr_count(amount, price, id)", "takes another number of arguments"),
        ("corr(DISTINCT amount, price)", "DISTINCT of several is not supported"),
        ("regr_slope(DISTINCT amount, price)", r"REGR_SLOPE\(DISTINCT\) is not supported yet"),
        ("regr_count(DISTINCT amount, price)", r"REGR_COUNT\(DISTINCT\) is not supported yet"),
        ("skewness(DISTINCT amount)", r"SKEWNESS\(DISTINCT\) is not supported yet"),
        ("bit_xor(DISTINCT amount)", r"BIT_XOR\(DISTINCT\) is not supported yet"),
        ("corr(amount, *)", r"allowed in COUNT\(\*\) only"),
        ("corr(amount, seen)", "DATATYPE_MISMATCH|NUMERIC|DOUBLE"),
        ("regr_avgx(seen, amount)", "DATATYPE_MISMATCH|NUMERIC|DOUBLE"),
        ("kurtosis(seen)", "DATATYPE_MISMATCH|NUMERIC|DOUBLE"),
        ("bit_and(price)", "DATATYPE_MISMATCH|INTEGRAL"),
        ("bit_or(exact)", "DATATYPE_MISMATCH|INTEGRAL"),
        ("histogram_numeric(amount, 5)", "HISTOGRAM_NUMERIC is not supported yet"),
    ],
)
def test_refusals(spark: SparkSession, tmp_path: Path, item: str, message: str) -> None:
    (tmp_path / "data").mkdir()
    for group in ("name", DAYS):
        with pytest.raises(SqlError, match=message):
            engine(spark, tmp_path / "data", {"v": f"SELECT {item} AS x FROM orders GROUP BY {group}"})
