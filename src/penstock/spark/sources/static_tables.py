"""Static tables: folders of files that joins read as a whole, anew whenever the files change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.errors import InputError, SqlError, UnsupportedError
from penstock.operators.ingest.malformed import RecordForm
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.sources.columns import check_columns
from penstock.spark.sources.declared_columns import declared_columns
from penstock.spark.sources.delta_tables import DELTA, DeltaFiles, delta_files
from penstock.spark.sources.file_frames import files_at_rest
from penstock.spark.sources.listing import is_passed_over
from penstock.spark.sources.option_paths import FILE_SOURCES
from penstock.spark.sources.reader_options import plain_option
from penstock.spark.sources.stored_fields import StoredFields
from penstock.spark.sources.tables import open_files_at_rest
from penstock.spark.tasks.parquet_files import local_path
from penstock.sql.script.statements import CreateTable

#: the option that makes a table static
STATIC = "static"


@dataclass(frozen=True, slots=True, eq=False)
class StaticTable:
    """A declared static table.

    Attributes:
        name: the table's.
        path: the folder or file.
        kind: the format, a word after USING.
        schema: its columns.
        options: the reader's.
        fields: how the columns are taken from the records; None: each has a field of its name.
        delta: the Delta table; None: the table is one of plain files.
    """

    name: str
    path: str
    kind: str
    schema: StructType
    options: Mapping[str, str]
    fields: StoredFields | None = None
    delta: DeltaFiles | None = None

    @property
    def stored(self) -> StructType:
        """Its records."""
        return self.schema if self.fields is None else self.fields.stored

    @property
    def form(self) -> RecordForm:
        """Of its records."""
        if self.fields is not None:
            return RecordForm(stored=arrow_schema(self.fields.stored), is_nested=True)
        return RecordForm.of(self.kind, self.schema.fieldNames(), self.options)

    def version(self) -> str | None:
        """Tells the table as it is now from others, by names, sizes and times of its files and by its declaration.

        None where there are no files.
        """
        if self.delta is not None:
            return self.delta.version()
        top = Path(local_path(self.path) or self.path)
        files = [top] if top.is_file() else sorted(each for each in top.rglob("*") if each.is_file())
        listed: list[tuple[object, ...]] = []
        for file in files:
            parts = file.relative_to(top).parts
            if not any(map(is_passed_over, parts)):
                told = file.stat()
                listed.append((*parts, told.st_size, told.st_mtime_ns))
        if not listed:
            return None
        declared: list[object] = [self.kind, sorted(self.options.items()), self.schema.json()]
        if self.fields is not None:
            declared.append([(each.column, each.paths) for each in self.fields.fields.fields])
        return hashlib.sha256(json.dumps([declared, listed]).encode()).hexdigest()[:16]

    def read(self, spark: SparkSession) -> DataFrame:
        """The table as it is now.

        Returns:
            Its columns, CORRUPT and REASON, which are NULL but for records that do not fit the columns, and ORIGIN.
        """
        if self.delta is not None:
            return self.delta.read(spark)
        frame = files_at_rest(spark, self.kind, self.path, self.stored, self.options)
        return frame if self.fields is None else self.fields.of(frame)


def is_static(table: CreateTable) -> bool:
    """Whether a table is declared as static.

    Raises:
        SqlError: the option is neither true nor false.
    """
    value = table.options.get(STATIC, "false").strip().lower()
    if value not in ("true", "false"):
        raise SqlError(
            f"table {table.name}: static is '{table.options[STATIC]}'. Write 'true' or 'false'.",
            *table.at(STATIC),
        )
    return value == "true"


def open_static(spark: SparkSession, table: CreateTable) -> StaticTable:
    """Opens a static table.

    Raises:
        UnsupportedError: it is not one of files.
        ConnectionFailedError: there is no such path, or it cannot be read.
        InputError: an option that only streams have, or reserved column names.
    """
    if table.source.lower() not in (*FILE_SOURCES, DELTA):
        raise UnsupportedError(
            f"table {table.name}: a static table reads files only. Use {', '.join((*FILE_SOURCES, DELTA))}",
            *table.at("using"),
        )
    for option in ("event_time", "event_time_format", "arrival"):
        if option in table.options:
            raise SqlError(
                f"table {table.name}: a static table has no event time. Remove the option {option}.",
                *table.at(option),
            )
    if table.source.lower() == DELTA:
        return _open_delta(table)
    path, stored, options, fields = open_files_at_rest(spark, table)
    schema = stored if fields is None else fields.columns
    found = StaticTable(table.name, path, table.source.lower(), schema, options, fields)
    try:
        check_columns(table.name, schema, None)
    except InputError as error:
        raise SqlError(str(error), *table.at()) from error
    if "://" in path and local_path(path) is None:
        raise UnsupportedError(
            f"table {table.name}: Penstock watches the files of a static table, so they must be local; {path} is not.",
            *table.at("path"),
        )
    return found


def _open_delta(table: CreateTable) -> StaticTable:
    options = {plain_option(name): value for name, value in table.options.items()}
    found = delta_files(table, options, declared_columns(table))
    try:
        check_columns(table.name, found.schema, None)
    except InputError as error:
        raise SqlError(str(error), *table.at()) from error
    return StaticTable(table.name, found.path, DELTA, found.schema, {}, delta=found)
