"""The rows of join views: what readers of the folder are told of them, and reading them.

Rows of a view that withdraws some say what is done with them (`op`: insert or delete). One without a partner has a name, `_row`;
those whose name a later row with `delete` has are none any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.operators.joins.changes import DELETE, INSERT, OP, ROW
from penstock.plan.joins import JoinPlan
from penstock.plan.names import free_name
from penstock.spark.analysis.gate import stored_schema
from penstock.spark.analysis.schemas import spark_schema, spark_type
from penstock.spark.publication.kinds import view_kind
from penstock.spark.publication.manifests import published_files
from penstock.spark.results.frames import published_frame
from penstock.spark.storage.joins import JOINS, JoinDefinition
from penstock.spark.storage.lane_views import LaneDefinition, RegisteredView, lane_name
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.refreshed import REFRESHED, RefreshedDefinition
from penstock.spark.storage.store_paths import StorePath
from penstock.spark.storage.unions import UNIONS, UnionDefinition

#: of a view in the catalog: the numbers of the lanes that have answered it; join, refreshed and UNION ALL views have it
LANES = "lanes"
#: of a refreshed view in the catalog: the least seconds between two answers; no other views have it
REFRESH_SECONDS = "refresh_seconds"
#: of a UNION ALL view in the catalog: the number of its selections; no other views have it
BRANCHES = "branches"
#: of a join view in the catalog: the static tables that it joins
TABLES = "tables"
#: of a join view in the catalog: whether some of its rows may be withdrawn
WITHDRAWS = "withdraws"
#: of a join view in the catalog: the names of MARKS
MARK_NAMES = "marks"
#: columns behind those of a view that withdraws rows
MARKS = pa.schema([(OP, pa.string()), (ROW, pa.binary())])


def marks_of(columns: Collection[str]) -> pa.Schema:
    """MARKS behind these columns, one of which may be called so itself."""
    return pa.schema([mark.with_name(free_name(mark.name, columns)) for mark in MARKS])


def row_schema(plan: JoinPlan) -> pa.Schema:
    """The columns of a join view."""
    return pa.schema([(each.name, each.type) for each in plan.outputs])


def file_schema(plan: JoinPlan) -> pa.Schema:
    """The columns of its files."""
    own = row_schema(plan)
    return pa.schema([*own, *(marks_of(own.names) if plan.withdraws else ())])


def join_entry(registered: RegisteredView[JoinDefinition]) -> dict[str, Any]:
    """What the catalog says of a join view."""
    definition = registered.definition
    return {
        **_of_any(definition, row_schema(definition.plan)),
        TABLES: definition.tables,
        LANES: [*registered.before, registered.number],
        WITHDRAWS: definition.plan.withdraws,
        MARK_NAMES: dict(zip(MARKS.names, marks_of(row_schema(definition.plan).names).names, strict=True)),
    }


def refreshed_entry(registered: RegisteredView[RefreshedDefinition]) -> dict[str, Any]:
    """What the catalog says of a refreshed view."""
    definition = registered.definition
    own = definition.schema
    return {
        **_of_any(definition, own),
        TABLES: definition.tables,
        LANES: [registered.number],
        REFRESH_SECONDS: definition.seconds,
        WITHDRAWS: True,
        MARK_NAMES: dict(zip(MARKS.names, marks_of(own.names).names, strict=True)),
    }


def union_entry(registered: RegisteredView[UnionDefinition]) -> dict[str, Any]:
    """What the catalog says of a UNION ALL view."""
    definition = registered.definition
    return {
        **_of_any(definition, definition.schema),
        LANES: [*registered.before, registered.number],
        BRANCHES: len(definition.branches),
    }


def _of_any(definition: LaneDefinition, columns: pa.Schema) -> dict[str, Any]:
    """What the catalog says of every view with a lane of its own."""
    return {
        "name": definition.name,
        "id": definition.id,
        "sql": definition.sql,
        "beneath": definition.beneath,
        "streams": definition.streams,
        "columns": spark_schema(columns).jsonValue(),
    }


def lanes_of(entry: Mapping[str, Any]) -> list[tuple[int, str]]:
    """The lanes that have answered a view, by its entry in the catalog: number and name."""
    kind = {"refreshed": REFRESHED.name, "union": UNIONS.name, "join": JOINS.name}[kind_of_lane(entry)]
    return [(number, lane_name(kind, number)) for number in entry[LANES]]


def kind_of_lane(entry: Mapping[str, Any]) -> str:
    """What a view with a lane of its own is, by its entry in the catalog: `refreshed`, `union` or `join`."""
    if REFRESH_SECONDS in entry:
        return "refreshed"
    return "union" if BRANCHES in entry else "join"


def joined_schema(entry: Mapping[str, Any]) -> StructType:
    """The columns of a join view, by its entry in the catalog."""
    return stored_schema(entry["columns"])


def withdraws(entry: Mapping[str, Any]) -> bool:
    """Whether rows of a join view may be withdrawn, by its entry in the catalog."""
    return bool(entry.get(WITHDRAWS))


def joined_files(layout: Layout, entry: Mapping[str, Any]) -> Iterator[tuple[StorePath, int]]:
    """The published files of a join view, by its entry in the catalog, each with its number of rows."""
    for number, lane in lanes_of(entry):
        yield from published_files(layout, lane, view_kind(number, entry["name"]))


def joined_results(spark: SparkSession, layout: Layout, entry: Mapping[str, Any]) -> DataFrame:
    """The rows of a join view, by its entry in the catalog; those withdrawn left out."""
    rows = _published(spark, layout, entry)
    if not withdraws(entry):
        return rows
    op, row = marks_of(joined_schema(entry).fieldNames()).names
    gone = rows.where(F.col(op) == DELETE).select(row).distinct()
    alone = rows.where((F.col(op) == INSERT) & F.col(row).isNotNull()).join(gone, row, "left_anti")
    return rows.where(F.col(row).isNull()).unionByName(alone).drop(op, row)


def joined_changes(spark: SparkSession, layout: Layout, entry: Mapping[str, Any]) -> DataFrame:
    """The rows of a join view that withdraws some, and what is done with each in OP, by its entry in the catalog."""
    return _published(spark, layout, entry).drop(marks_of(joined_schema(entry).fieldNames()).names[-1])


def _published(spark: SparkSession, layout: Layout, entry: Mapping[str, Any]) -> DataFrame:
    schema = joined_schema(entry)
    for mark in marks_of(schema.fieldNames()) if withdraws(entry) else ():
        schema.add(mark.name, spark_type(mark.type))
    return published_frame(spark, schema, [path for path, _ in joined_files(layout, entry)])
