"""How tuples of a table are stored, for who reads them again outside a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.operators.ingest.malformed import RecordForm
from penstock.spark.sources.declared_columns import declared_columns
from penstock.spark.sources.event_times import StoredTimes
from penstock.spark.sources.option_paths import FILE_SOURCES
from penstock.spark.sources.reader_options import plain_option
from penstock.spark.sources.stored_fields import StoredFields, records_kind, stored_fields, without_format
from penstock.spark.sources.tables import (
    REPLAY_OPTIONS,
    STREAMING_OPTIONS,
    event_times_of,
    inferred_columns,
)
from penstock.sql.script.statements import CreateTable


@dataclass(frozen=True, slots=True)
class StoredTuples:
    """How tuples of a stream's table are stored.

    Attributes:
        kind: the format, or the name of a source that is none of files.
        path: of files; None: the table is none of files.
        schema: the records as they are stored.
        options: the reader's.
        times: how the event time is stored; None: as a timestamp.
        arrival: column that Penstock adds, or None.
        fields: how the columns are taken from the records; None: each has a field of its name.
    """

    kind: str
    path: str | None
    schema: StructType
    options: Mapping[str, str]
    times: StoredTimes | None = None
    arrival: str | None = None
    fields: StoredFields | None = None

    def seen(self, frame: DataFrame) -> DataFrame:
        """A frame of stored records with the columns as queries see them."""
        flat = frame if self.fields is None else self.fields.of(frame)
        return flat if self.times is None else self.times.of(flat)

    @property
    def form(self) -> RecordForm:
        """Of its records."""
        return RecordForm.of(self.kind, self.schema.fieldNames(), self.options)


def stored_tuples(spark: SparkSession, table: CreateTable, schema: StructType) -> StoredTuples:
    """How tuples of a stream's table that was opened are stored.

    Args:
        spark: the session.
        table: the statement.
        schema: the stream's columns as queries see them.
    """
    options = {plain_option(name): value for name, value in table.options.items()}
    event_time, arrival = options.pop("eventtime", None), options.pop("arrival", None)
    written, kind = options.pop("eventtimeformat", None), table.source.lower()
    declared = declared_columns(table)
    fields = stored_fields(table, declared, options, records_kind(table, options))
    path = options.pop("path", None)
    if kind == "replay":
        kind = options.get("format", "parquet")
        options = {name: value for name, value in options.items() if name not in REPLAY_OPTIONS}
    elif kind not in FILE_SOURCES:
        options = {}
    options = {name: value for name, value in options.items() if name not in STREAMING_OPTIONS}
    if kind == "json":
        options = without_format(table, options)
    stored = StructType([field for field in schema if field.name != arrival])
    times = None
    if written is not None and event_time is not None:
        reader = spark.read.format(kind).options(**options)
        stored = declared or inferred_columns(table, str(path), reader)
        times = event_times_of(spark, table, stored, event_time, written)
    return StoredTuples(
        kind, path, stored if fields is None else fields.stored, options, times, arrival, fields
    )
