"""Files behind a DataFrame: how Spark reads them, and which of their records do not fit the columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from penstock.operators.ingest.malformed import RecordForm
from penstock.spark.recovery.messages import quoted
from penstock.spark.sources.long_lines import line_ends
from penstock.spark.sources.offenders import CHECKED
from penstock.spark.sources.patterns import base_path, by_name, has_signs, table_path
from penstock.spark.sources.source import DataFrameSource
from penstock.spark.tasks.dataframe_stage import CORRUPT, ORIGIN, REASON

#: formats whose reader may meet records that do not fit, and its options for going on
TOLERANT_SOURCES = ("csv", "json")
TOLERANT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}


def reader_at_rest(spark: SparkSession, kind: str, path: str, options: Mapping[str, str]) -> DataFrameReader:
    """A reader of single files of a stream's folder that sees the columns a stream sees."""
    return spark.read.format(kind).options(**{**CHECKED, **base_path(path), **options})


def folder_option(path: str) -> Mapping[str, str]:
    """What Spark's stream has to be told of a folder whose name has signs of a pattern."""
    return base_path(path) if has_signs(path) else {}


@dataclass(frozen=True, slots=True)
class TolerantFiles:
    """CSV and JSON: a record that does not fit the schema is handed on with its text and a reason.

    Attributes:
        behind: the files behind a DataFrame.
        records: gives the streaming frame as Spark's reader makes it, with ORIGIN: it is planned quickly, however many columns it has.
        apart: makes a frame as that of `behind` of one like `records`, see `set_apart`.
    """

    behind: DataFrameSource
    records: Callable[[SparkSession], DataFrame]
    apart: Callable[[DataFrame], DataFrame]


def tolerant_files(
    kind: str,
    path: str,
    schema: StructType,
    options: Mapping[str, str],
    at_rest: Mapping[str, str],
    event_time: str | None,
) -> TolerantFiles:
    """The files of a folder whose records may not fit the schema."""
    wide = with_corrupt(schema)

    def records(spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema(wide).format(kind).options(**{**folder_option(path), **options})
        return with_origin(reader.options(**TOLERANT).load(table_path(path)))

    def apart(frame: DataFrame) -> DataFrame:
        return set_apart(frame, kind, schema)

    def read(spark: SparkSession, paths: Sequence[str], more: Mapping[str, str]) -> DataFrame:
        reader = reader_at_rest(spark, kind, path, {**at_rest, **more}).schema(wide).options(**TOLERANT)
        return apart(with_origin(reader.load(by_name(paths))))

    behind = DataFrameSource(
        schema,
        event_time,
        lambda spark: apart(records(spark)),
        f"Spark decodes {kind} before the rules run",
        read,
        kind,
        line_ends=line_ends(kind, at_rest),
        form=RecordForm.of(kind, schema.fieldNames(), at_rest),
    )
    return TolerantFiles(behind, records, apart)


def files_at_rest(
    spark: SparkSession, kind: str, path: str, schema: StructType, options: Mapping[str, str]
) -> DataFrame:
    """Read a folder or file as it is now.

    Args:
        spark: the session.
        kind: the format.
        path: of the table.
        schema: its columns.
        options: the reader's.

    Returns:
        The table's columns, CORRUPT and REASON, which are NULL but for records that do not fit the columns, and ORIGIN.
    """
    reader = spark.read.format(kind).options(**options)
    if kind in TOLERANT_SOURCES:
        whole = reader.schema(with_corrupt(schema)).options(**TOLERANT).load(table_path(path))
        return set_apart(with_origin(whole), kind, schema)
    nothing = [F.lit(None).cast(kind).alias(name) for name, kind in ((CORRUPT, "binary"), (REASON, "string"))]
    whole = reader.schema(schema).load(table_path(path))
    return whole.select("*", *nothing, F.col("_metadata.file_path").alias(ORIGIN))


def with_corrupt(schema: StructType) -> StructType:
    """The columns to read with TOLERANT: those of a table and CORRUPT."""
    return StructType([*schema.fields]).add(CORRUPT, StringType())


def with_origin(frame: DataFrame) -> DataFrame:
    """Records of files with ORIGIN, the file of each."""
    return frame.select("*", F.col("_metadata.file_path").alias(ORIGIN))


def _texts(schema: StructType, within: str = "") -> Iterator[str]:
    """The names of the strings among columns and within structs."""
    for field in schema:
        name = f"{within}{quoted(field.name)}"
        if isinstance(field.dataType, StringType):
            yield name
        elif isinstance(field.dataType, StructType):
            yield from _texts(field.dataType, f"{name}.")


def set_apart(frame: DataFrame, kind: str, schema: StructType) -> DataFrame:
    """Says which records do not fit.

    Args:
        frame: of `with_corrupt(schema)`, read with TOLERANT, with ORIGIN.
        kind: the format.
        schema: the table's columns.

    Returns:
        The table's columns, CORRUPT and REASON, which are NULL where a record fits, and ORIGIN.
    """
    undecodable = F.lit(False)
    for text in _texts(schema):
        undecodable = undecodable | F.coalesce(F.contains(F.col(text), F.lit("\ufffd")), F.lit(False))
    columns = [F.col(quoted(field.name)) for field in schema]
    reason = F.when(F.col(CORRUPT).isNotNull(), f"malformed {kind} record").when(undecodable, "not UTF-8")
    record = F.coalesce(F.col(CORRUPT), F.to_json(F.struct(*columns))).cast("binary")
    return frame.select(
        *columns,
        F.when(reason.isNotNull(), record).alias(CORRUPT),
        reason.alias(REASON),
        F.col(ORIGIN),
    )
