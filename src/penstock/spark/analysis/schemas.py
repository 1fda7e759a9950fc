"""Columns as Arrow's types and as Spark's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructType


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of Spark's columns; timestamps with time zone are in UTC."""
    return to_arrow_schema(schema, timezone="UTC")


def spark_schema(schema: pa.Schema) -> StructType:
    """Arrow's columns as Spark's."""
    whole = StructType()
    for field in schema:
        whole.add(field.name, spark_type(field.type))
    return whole


def spark_type(kind: pa.DataType) -> Any:
    """Arrow's type as Spark's; timestamps without time zone are TIMESTAMP_NTZ."""
    return from_arrow_type(kind, prefer_timestamp_ntz=True)
