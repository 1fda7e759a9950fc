"""The rows of join views: what readers of the folder are told of them, and reading them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.plan.joins import JoinPlan
from penstock.spark.analysis.catalyst import empty_frame
from penstock.spark.publication.kinds import view_kind
from penstock.spark.publication.manifests import published_paths
from penstock.spark.results.window_schemas import spark_schema
from penstock.spark.storage.joins import RegisteredJoin, join_lane
from penstock.spark.storage.layout import Layout

#: of a view in the catalog: the numbers of the lanes that have answered it; no other views have it
LANES = "lanes"


def row_schema(plan: JoinPlan) -> pa.Schema:
    """The columns of a join view."""
    return pa.schema([(each.name, each.type) for each in plan.outputs])


def catalog_entry(registered: RegisteredJoin) -> dict[str, Any]:
    """What the catalog says of a join view."""
    definition = registered.definition
    return {
        "name": definition.name,
        "id": definition.id,
        "sql": definition.sql,
        "beneath": definition.beneath,
        "streams": definition.streams,
        "columns": spark_schema(row_schema(definition.plan)).jsonValue(),
        LANES: [*registered.before, registered.number],
    }


def joined_schema(entry: Mapping[str, Any]) -> StructType:
    """The columns of a join view, by its entry in the catalog."""
    return StructType.fromJson(entry["columns"])


def joined_paths(layout: Layout, entry: Mapping[str, Any]) -> Iterator[Path]:
    """The published files of a join view, by its entry in the catalog."""
    for number in entry[LANES]:
        yield from published_paths(layout, join_lane(number), view_kind(number, entry["name"]))


def joined_results(spark: SparkSession, layout: Layout, entry: Mapping[str, Any]) -> DataFrame:
    """The rows of a join view, by its entry in the catalog."""
    schema = joined_schema(entry)
    paths = [str(path) for path in joined_paths(layout, entry)]
    return spark.read.schema(schema).parquet(*paths) if paths else empty_frame(spark, schema)
