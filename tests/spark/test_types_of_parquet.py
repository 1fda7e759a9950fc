"""What `penstock check` says of the types of Parquet files is what Spark does with them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from forms import ALL, thinned
from penstock.spark.sources.table_checks import table_warnings
from penstock.sql.script.script import parse_script

MOMENT = dt.datetime(2026, 1, 1)
COLUMNS = {
    "float": pa.array([1.5], pa.float32()),
    "double": pa.array([1.5]),
    "string": pa.array(["a"]),
    "bool": pa.array([True]),
    "timestamp": pa.array([MOMENT], pa.timestamp("us")),
    "utc": pa.array([MOMENT], pa.timestamp("us", tz="UTC")),
    "date32": pa.array([MOMENT.date()]),
    "nanoseconds": pa.array([MOMENT], pa.timestamp("ns")),
    "milliseconds": pa.array([MOMENT], pa.timestamp("ms", tz="UTC")),
    "time32": pa.array([1], pa.time32("ms")),
    "time64": pa.array([1], pa.time64("us")),
    "half": pa.array([1.5], pa.float16()),
    "decimal": pa.array([Decimal("1.25")], pa.decimal128(5, 2)),
    "long decimal": pa.array([Decimal("1.25")], pa.decimal128(20, 2)),
}
#: the largest integers, which Spark may read as others
INTEGERS = {
    **{f"int{bits}": 2 ** (bits - 1) - 1 for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": 2**bits - 1 for bits in (8, 16, 32, 64)},
}
DECLARED = (
    "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "BOOLEAN", "DATE", "TIMESTAMP",
    "TIMESTAMP_NTZ", "DECIMAL(4,2)", "DECIMAL(6,2)", "DECIMAL(10,0)", "DECIMAL(20,0)", "DECIMAL(21,0)", "DECIMAL(38,10)",
)  # fmt: skip


def _declared(name: str) -> tuple[str, ...]:
    """The types that a column is declared as; in the short form every fourth, others for each column."""
    return DECLARED if ALL else DECLARED[len(name) % 4 :: 4]


@pytest.mark.parametrize("name", thinned(list(COLUMNS), 4))
def test_a_type_is_warned_of_where_spark_cannot_read_it(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    pq.write_table(pa.table({"x": COLUMNS[name]}), tmp_path / "1.parquet")
    warned, unread = set(), set()
    for declared in _declared(name):
        script = f"CREATE TABLE t (x {declared}) USING parquet OPTIONS (path '{tmp_path}')"
        if table_warnings(parse_script(script).tables[0]):
            warned.add(declared)
        try:
            spark.read.schema(f"x {declared}").parquet(str(tmp_path)).collect()
        except Py4JJavaError:
            unread.add(declared)
    assert warned == unread


@pytest.mark.parametrize("name", thinned(list(INTEGERS), 2))
def test_an_integer_is_warned_of_where_spark_reads_another_or_none(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    value = INTEGERS[name]
    for number, dictionary in enumerate((False, True)):
        table = pa.table({"x": pa.array([value] * 3, getattr(pa, name)())})
        pq.write_table(table, tmp_path / f"{number}.parquet", use_dictionary=dictionary)
    warned, other = set(), set()
    for declared in (each for each in _declared(name) if each not in ("DATE", "BINARY", "BOOLEAN")):
        script = f"CREATE TABLE t (x {declared}) USING parquet OPTIONS (path '{tmp_path}')"
        if table_warnings(parse_script(script).tables[0]):
            warned.add(declared)
        try:
            read = {row.x for row in spark.read.schema(f"x {declared}").parquet(str(tmp_path)).collect()}
        except Py4JJavaError:
            read = set()
        if read != {value}:
            other.add(declared)
    assert warned == other
