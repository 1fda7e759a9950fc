"""A file whose types do not fit is told with the columns as files have them, not as the stream has them."""

from __future__ import annotations

from pyspark.sql.types import LongType, StructType, TimestampType

from penstock.spark.sources.event_times import StoredTimes
from penstock.spark.sources.source import DataFrameSource


def test_an_event_time_is_judged_as_it_is_stored() -> None:
    stored = StructType().add("at", LongType())
    source = DataFrameSource(stored, "at", lambda session: session.table("t"), "")
    assert source._stored == stored
    timed = source.timed(StoredTimes(stored, "at", "millis"))
    assert timed.schema["at"].dataType == TimestampType()
    assert timed._stored == stored
