"""Spark's own analysis of joins of several streams and tables."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.plan.expressions import SourceColumn
from penstock.spark.analysis.catalyst import empty_frame
from penstock.spark.analysis.expressions import SparkExpressionHost, query_schema


class SparkJoinHost:
    """The `penstock.plan.expressions.JoinHost` of a Spark session, for joins that are declared.

    Args:
        spark: a classic session.
        schemas: the columns of streams and tables, by name.
    """

    def __init__(self, spark: SparkSession, schemas: Mapping[str, StructType]) -> None:
        self._spark = spark
        self.time_zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
        self._hosts = {
            name: SparkExpressionHost(spark, schema, declaring=True) for name, schema in schemas.items()
        }
        self._tables = {
            f"__penstock_{uuid.uuid4().hex}": empty_frame(spark, each) for each in schemas.values()
        }
        self._names = dict(zip(schemas, self._tables, strict=True))

    def name_of(self, relation: str) -> str:
        """See `JoinHost.name_of`."""
        return self._names[relation]

    def schema_of(self, query: str) -> pa.Schema:
        """See `JoinHost.schema_of`."""
        return query_schema(self._spark, query, self._tables)

    def over(self, columns: Mapping[str, SourceColumn]) -> SparkExpressionHost:
        """See `JoinHost.over`."""
        texts: dict[str, list[str]] = {}
        for column in columns.values():
            texts.setdefault(column.relation, []).append(column.text)
        kinds = {
            (relation, text): kind
            for relation, own in texts.items()
            for text, kind in zip(own, self._hosts[relation].spark_types(own), strict=True)
        }
        joined = StructType()
        for name, column in columns.items():
            joined.add(name, kinds[column.relation, column.text])
        return SparkExpressionHost(self._spark, joined, declaring=True)
