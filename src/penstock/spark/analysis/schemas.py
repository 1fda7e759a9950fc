"""A stream's columns as Arrow types."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of Spark's columns; timestamps with time zone are in UTC."""
    return to_arrow_schema(schema, timezone="UTC")
