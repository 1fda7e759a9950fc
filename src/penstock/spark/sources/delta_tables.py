"""CREATE TABLE ... USING delta: a Delta table as a stream of the rows that are appended, or as a static table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.errors import ConnectionFailedError, SqlError, UnknownNameError, UnsupportedError
from penstock.spark.analysis.gate import stored_schema
from penstock.spark.sources.parquet_source import ParquetSource
from penstock.spark.sources.patterns import absolute
from penstock.spark.sources.providers import StreamTable
from penstock.spark.sources.source import DataFrameSource
from penstock.spark.storage.past import CannotReadAgainError, Past
from penstock.spark.tasks.dataframe_stage import CORRUPT, ORIGIN, REASON
from penstock.spark.tasks.delta_log import DeltaLog
from penstock.spark.tasks.delta_source import (
    AFTER,
    FROM_ALL,
    NAME,
    PATH,
    PATHS,
    SKIPS,
    TASKS,
    VERSION,
    DeltaSource,
)
from penstock.sql.script.statements import CreateTable

DELTA = "delta"
_STARTING, _SKIPS = "startingversion", "skipchangecommits"
DELTA_OPTIONS = ("path", "starting_version", "skip_change_commits", "static")
_TASKS_A_CORE = 4
#: features of tables whose files have the rows as they are
_READABLE = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "inCommitTimestamp"})


@dataclass(frozen=True, slots=True)
class DeltaScan(ParquetSource):
    """A Delta table without partitions, whose files are read in the scan.

    Attributes:
        settings: options of the data source.
    """

    settings: Mapping[str, str] = field(kw_only=True)

    def frame(self, spark: SparkSession) -> DataFrame:
        """One row a new file: its path."""
        reader = spark.readStream.format(NAME).schema("path STRING")
        return reader.options(**{**self.settings, PATHS: "true"}).load()

    def again(self, spark: SparkSession, past: Past) -> Iterable[DataFrame]:  # noqa: ARG002 - the versions may be gone
        """What was read before is not read again."""
        raise CannotReadAgainError("Penstock reads the versions of a Delta table once")


def open_delta(spark: SparkSession, opened: StreamTable) -> DataFrameSource | DeltaScan:
    """Opens the stream of a Delta table.

    Args:
        spark: the session.
        opened: the table.

    Raises:
        UnsupportedError: the package deltalake is missing, or the table has a feature that Penstock does not read.
        ConnectionFailedError: there is no Delta table.
        UnknownNameError, SqlError: a column or an option does not fit.
    """
    table, options = opened.statement, opened.options
    path, schema, is_partitioned = _opened(table, options, opened.columns)
    skips = options.get(_SKIPS, "false").lower()
    if skips not in ("true", "false"):
        message = f"table {table.name}: skip_change_commits is '{skips}'. Write 'true' or 'false'."
        raise SqlError(message, *table.at("skip_change_commits"))
    after = str(_after(table, path, options))
    settings = {PATH: path, AFTER: after, SKIPS: skips, PATHS: "false", **_tasks(spark)}
    spark.dataSource.register(DeltaSource)
    if not is_partitioned and opened.arrival is None:
        in_scan = opened.settings.map_in_scan
        return DeltaScan(schema, opened.event_time, path, {}, in_scan, settings=settings)
    return DataFrameSource(
        schema,
        opened.event_time,
        lambda session: session.readStream.format(NAME).schema(schema).options(**settings).load(),
        "only Spark adds the partition columns of Delta tables",
    )


@dataclass(frozen=True, slots=True)
class DeltaFiles:
    """A Delta table at rest.

    Attributes:
        path: its folder.
        schema: the wanted columns.
    """

    path: str
    schema: StructType

    def version(self) -> str:
        """Tells the newest version, as it is read, from others."""
        told = json.dumps([DELTA, self.path, self.schema.json(), DeltaLog(self.path).newest()])
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def read(self, spark: SparkSession) -> DataFrame:
        """The newest version, with CORRUPT and REASON, which are NULL, and ORIGIN."""
        spark.dataSource.register(DeltaSource)
        options = {PATH: self.path, VERSION: str(DeltaLog(self.path).newest()), **_tasks(spark)}
        frame = spark.read.format(NAME).schema(self.schema).options(**options).load()
        nothing = ((CORRUPT, "binary"), (REASON, "string"))
        return frame.select(
            "*",
            *(F.lit(None).cast(kind).alias(name) for name, kind in nothing),
            F.lit(self.path).alias(ORIGIN),
        )


def _tasks(spark: SparkSession) -> dict[str, str]:
    return {TASKS: str(spark.sparkContext.defaultParallelism * _TASKS_A_CORE)}


def delta_files(table: CreateTable, options: Mapping[str, str], declared: StructType | None) -> DeltaFiles:
    """A Delta table at rest; raises as `open_delta`."""
    for name, option in ((_STARTING, "starting_version"), (_SKIPS, "skip_change_commits")):
        if name in options:
            message = (
                f"table {table.name}: {option} is an option of streams, but the table is static. Remove it."
            )
            raise SqlError(message, *table.at(option))
    path, schema, _ = _opened(table, options, declared)
    return DeltaFiles(path, schema)


def _opened(
    table: CreateTable, options: Mapping[str, str], declared: StructType | None
) -> tuple[str, StructType, bool]:
    """The table's folder, the columns that are read, and whether the table has partitions."""
    known = {name.replace("_", "") for name in DELTA_OPTIONS}
    odd = next(
        (
            name
            for name in table.options
            if name.replace("_", "") not in {*known, "eventtime", "eventtimeformat", "arrival"}
        ),
        None,
    )
    if odd is not None:
        owner = f"table {table.name}: source delta"
        raise UnknownNameError.among("option", odd, DELTA_OPTIONS, "Options", owner=owner).at(*table.at(odd))
    if find_spec("deltalake") is None:
        message = f"table {table.name}: source delta needs the package deltalake. Install penstock[delta]."
        raise UnsupportedError(message, *table.at("using"))
    if "path" not in options:
        raise SqlError(
            f"table {table.name}: set the option path. Write OPTIONS (path '/data/{table.name}').",
            *table.at(),
        )
    path = absolute(options["path"])
    if "://" in path:
        raise UnsupportedError(
            f"table {table.name}: Penstock reads Delta tables of local and mounted folders; {path} is not one.",
            *table.at("path"),
        )
    found = _delta_table(table, path)
    whole = stored_schema(json.loads(found.schema().to_json()))
    chosen = whole if declared is None else _chosen(table, whole, declared)
    return path, chosen, bool(found.metadata().partition_columns)


def _delta_table(table: CreateTable, path: str) -> Any:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if not Path(path).is_dir() or not DeltaTable.is_deltatable(path):
        raise ConnectionFailedError(f"table {table.name}: {path} is not a Delta table", *table.at("path"))
    try:
        found = DeltaTable(path)
    except (DeltaError, OSError) as error:
        raise ConnectionFailedError(f"table {table.name}: {path}: {error}", *table.at("path")) from error
    features = set(found.protocol().reader_features or ())
    if found.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    odd = sorted(features - _READABLE)
    if odd:
        raise UnsupportedError(
            f"table {table.name}: {path} has the feature {odd[0]}, which Penstock does not read.",
            *table.at("path"),
        )
    return found


def _chosen(table: CreateTable, whole: StructType, declared: StructType) -> StructType:
    names = whole.fieldNames()
    for column in declared:
        if column.name not in names:
            owner = f"table {table.name}: the Delta table"
            error = UnknownNameError.among("column", column.name, names, "Columns", owner=owner)
            raise error.at(*table.at(column.name))
        own = whole[column.name].dataType
        if own != column.dataType:
            raise SqlError(
                f"table {table.name}: column {column.name} is {own.simpleString()} in the Delta table, not "
                f"{column.dataType.simpleString()}. Declare it {own.simpleString().upper()}.",
                *table.at(column.name),
            )
    return declared


def _after(table: CreateTable, path: str, options: Mapping[str, str]) -> int:
    """The version before the first one that the stream reads."""
    value = options.get(_STARTING)
    if value is None:
        return FROM_ALL
    newest = DeltaLog(path).newest()
    if value.lower() == "latest":
        return newest
    if not value.isdecimal() or int(value) > newest + 1:
        raise SqlError(
            f"table {table.name}: starting_version is '{value}'. Write 'latest', or a version from 0 to {newest + 1}.",
            *table.at("starting_version"),
        )
    return int(value) - 1
