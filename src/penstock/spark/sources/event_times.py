"""The option `event_time_format`: an event time that is stored as a number or as text becomes a TIMESTAMP."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    CharType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from penstock.errors import InputError, UnknownNameError
from penstock.operators.ingest.event_times import UNITS, EpochTimes, most_units
from penstock.spark.analysis.gate import one_row
from penstock.spark.recovery.messages import quoted
from penstock.spark.sources.event_formats import wrong_letter
from penstock.spark.tasks.dataframe_stage import REASON

_FRACTIONAL = (FloatType, DoubleType, DecimalType)
_TEXT = (StringType, VarcharType, CharType)
_ALLOWED = (
    f"{', '.join(repr(unit) for unit in UNITS)} or a datetime pattern of Spark such as 'yyyy-MM-dd HH:mm:ss'"
)
_A_MICROSECOND = 1_000
_MOMENTS = {"seconds": F.timestamp_seconds, "millis": F.timestamp_millis, "micros": F.timestamp_micros}
#: parts of what units are called elsewhere
_STEMS = {"mil": "millis", "mic": "micros", "nan": "nanos", "sec": "seconds", "ms": "millis"}
#: a moment that a pattern has to write and to read again
_MOMENT = "2013-11-12 10:09:08.765432"


@dataclass(frozen=True, slots=True)
class StoredTimes:
    """How the event time of a stream is stored.

    Attributes:
        stored: the columns as they are stored.
        column: the event time's.
        written: one of UNITS, or a datetime pattern of Spark.
    """

    stored: StructType
    column: str
    written: str

    @property
    def schema(self) -> StructType:
        """The stream's columns: the event time is a TIMESTAMP."""
        return StructType(
            [
                StructField(each.name, TimestampType() if each.name == self.column else each.dataType)
                for each in self.stored
            ]
        )

    @property
    def epoch(self) -> EpochTimes | None:
        """What a worker needs to read the column itself; None where only Spark reads it."""
        kind = self.stored[self.column].dataType
        if self.written not in UNITS or not isinstance(kind, IntegralType | DoubleType):
            return None
        return EpochTimes(self.column, self.written)

    def of(self, frame: DataFrame) -> DataFrame:
        """A frame of the stored columns and others with the event time as a TIMESTAMP; NULL where it is none.

        Of a record that is set aside it is any moment where the column has a value: the reason tells by that which column has none.
        """
        moment = self._moment()
        if REASON in frame.columns:
            has_value = F.when(F.col(quoted(self.column)).isNotNull(), F.timestamp_micros(F.lit(0)))
            moment = F.when(F.col(REASON).isNull(), moment).otherwise(has_value)
        return frame.withColumn(self.column, moment)

    def _moment(self) -> Column:
        stored, kind = F.col(quoted(self.column)), self.stored[self.column].dataType
        if self.written not in UNITS:
            return F.try_to_timestamp(stored, F.lit(self.written)).cast(TimestampType())
        if self.written == "nanos":
            down = F.when(stored % _A_MICROSECOND < 0, 1).otherwise(0)
            return F.timestamp_micros(F.call_function("div", stored, F.lit(_A_MICROSECOND)) - down)
        most = most_units(self.written)
        # a DECIMAL with digits below a microsecond would raise
        value = F.floor(stored, F.lit(6)) if isinstance(kind, DecimalType) else stored
        return F.when(stored.between(-most, most), _MOMENTS[self.written](value))


def stored_times(
    spark: SparkSession, stream: str, stored: StructType, column: str, written: str
) -> StoredTimes:
    """What is made of the option `event_time_format`.

    Args:
        spark: the session, with which a pattern is tried.
        stream: the stream's name.
        stored: its columns as they are stored.
        column: the event time's.
        written: the option's value.

    Raises:
        UnknownNameError: there is no such column.
        InputError: the value is no format, or none of the column's type.
    """
    refuse_missing(stream, stored, column)
    kind = stored[column].dataType
    unit = written.lower() if written.lower() in UNITS else None
    about = f"stream {stream}: event_time_format '{written}'"
    if isinstance(kind, TimestampType | TimestampNTZType):
        raise InputError(
            f"{about} does not fit column {column}, which is {kind.simpleString()}. Declare {column} "
            f"{'BIGINT' if unit else 'STRING'}, or remove event_time_format."
        )
    if unit is None:
        _try_pattern(spark, about, written)
        if not isinstance(kind, _TEXT):
            raise InputError(
                f"{about} is a pattern for text, but column {column} is {kind.simpleString()}. For numbers use "
                f"{', '.join(map(repr, UNITS))}."
            )
    elif not isinstance(kind, IntegralType) and not (unit == "seconds" and isinstance(kind, _FRACTIONAL)):
        raise InputError(
            f"{about} is for whole numbers such as BIGINT, but column {column} is {kind.simpleString()}"
            + (". For text use a datetime pattern of Spark" if isinstance(kind, _TEXT) else "")
        )
    return StoredTimes(stored, column, unit or written)


def refuse_missing(stream: str, schema: StructType, column: str) -> None:
    """Makes sure that the event time's column is there.

    Raises:
        UnknownNameError: it is not.
    """
    if column not in schema.fieldNames():
        raise UnknownNameError(
            f"stream {stream}: event_time names column {column}, which does not exist; "
            f"existing columns: {', '.join(schema.fieldNames())}"
        )


def no_timestamp(stream: str, column: str, kind: DataType) -> InputError:
    """What is said of an event time that is no timestamp and has no format."""
    way = ""
    if isinstance(kind, IntegralType | FloatType | DoubleType | DecimalType):
        way = f". Set the unit of its numbers: event_time_format {', '.join(map(repr, UNITS))}"
    elif isinstance(kind, _TEXT):
        way = ". Declare it TIMESTAMP, or set the format of its text: event_time_format 'yyyy-MM-dd HH:mm:ss'"
    return InputError(
        f"stream {stream}: event_time column {column} is {kind.simpleString()}; it must be a timestamp{way}"
    )


def reads_any(spark: SparkSession, pattern: str, texts: Sequence[str]) -> bool:
    """Ask Spark whether a datetime pattern reads one of some texts at least; True where Spark cannot tell."""
    values = F.from_json(F.lit(json.dumps(list(texts))), "ARRAY<STRING>")
    is_read = F.exists(values, lambda text: F.try_to_timestamp(text, F.lit(pattern)).isNotNull())
    try:
        return bool(one_row(spark).select(is_read).collect()[0][0])
    except PySparkException:
        return True


def _try_pattern(spark: SparkSession, about: str, pattern: str) -> None:
    """Lets Spark write a moment by a pattern and read that again."""
    wrong = wrong_letter(pattern)
    if wrong is not None:
        meant = next((unit for part, unit in _STEMS.items() if part in pattern.lower()), None)
        if meant and pattern.isalpha():
            raise InputError(f"{about} is unknown; did you mean '{meant}'?")
        raise InputError(f"{about} {wrong}")
    try:
        text = F.date_format(F.lit(_MOMENT).cast(TimestampType()), pattern)
        is_read = one_row(spark).select(F.try_to_timestamp(text, F.lit(pattern)).isNotNull()).collect()[0][0]
    except PySparkException as error:
        raise InputError(f"{about} is not a format that Spark reads; allowed: {_ALLOWED}") from error
    if not is_read:
        raise InputError(
            f"{about} does not determine a moment: Spark cannot read a text written by this pattern; allowed: {_ALLOWED}"
        )
