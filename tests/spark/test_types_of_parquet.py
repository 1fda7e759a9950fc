"""What `penstock check` says of the types of Parquet files is what Spark does with them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from penstock.spark.sources.table_checks import table_warnings
from penstock.sql.script.script import parse_script

MOMENT = dt.datetime(2026, 1, 1)
COLUMNS = {
    "int32": pa.array([1], pa.int32()),
    "int64": pa.array([1], pa.int64()),
    "float": pa.array([1.5], pa.float32()),
    "double": pa.array([1.5]),
    "string": pa.array(["a"]),
    "bool": pa.array([True]),
    "timestamp": pa.array([MOMENT], pa.timestamp("us")),
    "utc": pa.array([MOMENT], pa.timestamp("us", tz="UTC")),
    "date32": pa.array([MOMENT.date()]),
}
DECLARED = (
    "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "BOOLEAN", "DATE", "TIMESTAMP",
    "TIMESTAMP_NTZ",
)  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_a_type_is_warned_of_where_spark_cannot_read_it(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    pq.write_table(pa.table({"x": COLUMNS[name]}), tmp_path / "1.parquet")
    warned, unread = set(), set()
    for declared in DECLARED:
        script = f"CREATE TABLE t (x {declared}) USING parquet OPTIONS (path '{tmp_path}')"
        if table_warnings(parse_script(script).tables[0]):
            warned.add(declared)
        try:
            spark.read.schema(f"x {declared}").parquet(str(tmp_path)).collect()
        except Py4JJavaError:
            unread.add(declared)
    assert warned == unread
