"""One tuple as a frame of one row: decoded from its record as a batch would decode it, or made from Python values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.errors import InputError
from penstock.operators.ingest.malformed import RecordForm, explained
from penstock.plan.spark_types import spark_name
from penstock.spark.analysis.gate import one_row
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.provenance.verdicts import Answer
from penstock.spark.recovery.messages import quoted
from penstock.spark.sources.file_frames import TOLERANT, with_corrupt
from penstock.spark.sources.kafka_source import decode_json
from penstock.spark.sources.stored_tuples import StoredTuples
from penstock.spark.tasks.dataframe_stage import CORRUPT, REASON

#: formats whose records are JSON
_JSON = ("json", "kafka")
_PREFIX = "malformed "


@dataclass(frozen=True, slots=True)
class GivenTuple:
    """A tuple, and what was given for it.

    Attributes:
        frame: one row with the columns as queries see them, and REASON where a record was decoded.
        record: the record that was decoded; None: it was made from values.
        stored: how such records are stored.
        missing: columns that were not given.
        unknown: given names that are no columns.
        is_own: whether the record is as the source has it: what does not fit is set aside. Otherwise it is a mistake.
    """

    frame: DataFrame
    record: str | None
    stored: StoredTuples
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    is_own: bool = False

    @property
    def texts(self) -> list[str]:
        """What has to be computed to know whether the record fits: its columns, and why it does not."""
        columns = [quoted(name) for name in self.frame.columns if name not in (REASON, CORRUPT)]
        return columns if self.record is None else [*columns, quoted(REASON)]

    def misfit(self, found: Mapping[str, Answer]) -> str:
        """Why the record does not fit the columns, empty where it does.

        Args:
            found: the answers for `texts`.
        """
        if self.record is None or (reason := found[quoted(REASON)].value) is None:
            return ""
        form = self.stored.form if reason == "malformed csv record" else RecordForm()
        schema = arrow_schema(self.stored.schema)
        if self.stored.fields is not None:
            return explained(reason, self.record.encode(), schema, form)
        names = self.stored.schema.fieldNames()
        has_value = frozenset(
            name
            for name in names
            if (answer := found[quoted(name)]).value is not None or answer.error is not None
        )
        return explained(reason, self.record.encode(), schema, form, [has_value])


def of_values(spark: SparkSession, stored: StoredTuples, schema: StructType, values: Any) -> GivenTuple:
    """A tuple of Python values.

    Args:
        spark: the session.
        stored: how tuples of the table are stored.
        schema: the columns as queries see them.
        values: column -> value.

    Raises:
        InputError: a value does not fit its column.
    """
    fields = arrow_schema(schema)
    columns = []
    for field in fields:
        try:
            columns.append(pa.array([values.get(field.name)], field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            given = values[field.name]
            raise InputError(
                f"Column {field.name} is {spark_name(field.type)}; the value {given!r} ({type(given).__name__}) does not fit."
            ) from None
    frame = spark.createDataFrame(pa.table(columns, schema=fields), schema)
    return GivenTuple(frame, None, stored, *_compared(schema.fieldNames(), values))


def of_json(
    spark: SparkSession, stored: StoredTuples, schema: StructType, text: str, max_record_bytes: int
) -> GivenTuple:
    """A tuple given as a JSON object.

    Args:
        spark: the session.
        stored: how tuples of the table are stored.
        schema: the columns as queries see them.
        text: the object.
        max_record_bytes: a larger record is malformed.

    Raises:
        InputError: it is no JSON object.
    """
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"The row is not JSON: {error}. Write an object such as {_example(stored.schema)}."
        ) from None
    if not isinstance(given, dict):
        raise InputError(f"The row is not a JSON object. Write one such as {_example(stored.schema)}.")
    missing, unknown = _compared(stored.schema.fieldNames(), given)
    frame = _as_queries_see(_decoded_json(spark, stored, text, max_record_bytes), stored, schema)
    return GivenTuple(frame, text, stored, missing, unknown, stored.kind in _JSON)


def of_record(
    spark: SparkSession, stored: StoredTuples, schema: StructType, record: str, max_record_bytes: int
) -> GivenTuple:
    """A tuple by its record as the source had it; arguments as of `of_json`."""
    is_csv = stored.kind == "csv" and not record.lstrip().startswith("{")
    decoded = (
        _decoded_csv(spark, stored, record)
        if is_csv
        else _decoded_json(spark, stored, record, max_record_bytes)
    )
    return GivenTuple(_as_queries_see(decoded, stored, schema), record, stored, is_own=True)


def _decoded_json(spark: SparkSession, stored: StoredTuples, record: str, max_record_bytes: int) -> DataFrame:
    options = stored.options if stored.kind == "json" else {}
    records = one_row(spark).select(
        _opaque(record).cast("binary").alias("value"),
        F.lit("").alias("topic"),
        F.lit(0).alias("partition"),
        F.lit(0).alias("offset"),
    )
    return decode_json(records, stored.schema, max_record_bytes, options=options).drop(CORRUPT)


def _decoded_csv(spark: SparkSession, stored: StoredTuples, record: str) -> DataFrame:
    wide = with_corrupt(stored.schema)
    columns = ", ".join(f"{quoted(each.name)} {each.dataType.simpleString()}" for each in wide)
    parsed = F.from_csv(_opaque(record), columns, {**stored.options, **TOLERANT, "header": "false"})
    tuples = one_row(spark).select(parsed.alias("tuple"))
    reason = F.when(F.col(f"tuple.{CORRUPT}").isNotNull(), f"{_PREFIX}csv record")
    return tuples.select("tuple.*", reason.alias(REASON)).drop(CORRUPT)


def _as_queries_see(decoded: DataFrame, stored: StoredTuples, schema: StructType) -> DataFrame:
    """Decoded columns as those of the stream, with REASON."""
    frame = stored.seen(decoded)
    columns = [
        F.lit(None).cast(field.dataType).alias(field.name)
        if field.name == stored.arrival
        else F.col(quoted(field.name))
        for field in schema
    ]
    return frame.select(*columns, REASON)


def _opaque(text: str) -> Column:
    """A constant that Spark's optimiser does not see to be one, so that nothing is computed from it beforehand."""
    return F.when(F.spark_partition_id() >= 0, F.lit(text))


def _compared(columns: list[str], given: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns that were not given, and the names that are no columns."""
    missing = tuple(name for name in columns if name not in given)
    return missing, tuple(str(name) for name in given if name not in columns)


def _example(schema: StructType) -> str:
    return json.dumps(dict.fromkeys(schema.fieldNames()[:2], "..."), ensure_ascii=False)
