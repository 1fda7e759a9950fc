"""A source as a package of somebody else registers it: levels of a river, of which some arrive late."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StructType, TimestampType

from penstock.spark.sources.providers import StreamTable
from penstock.spark.sources.replay import Pace, ReplaySource

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = StructType().add("gauge", IntegerType()).add("level", IntegerType()).add("measured", TimestampType())


class GaugeProvider:
    """`USING gauges`: one level of each gauge a second."""

    def options(self, given: Mapping[str, str]) -> tuple[str, ...]:  # noqa: ARG002 - every table has all
        """Return its one option."""
        return ("number_of_gauges",)

    def open(self, spark: SparkSession, table: StreamTable) -> ReplaySource:  # noqa: ARG002 - needs none
        """Open the levels of some gauges."""
        number = int(table.options.get("numberofgauges", "2"))
        pace = Pace(math.inf, 100_000)
        return ReplaySource(
            SCHEMA,
            lambda: levels(number),
            table.event_time or "measured",
            "measured",
            pace,
            table.settings.map_in_scan,
        )


def levels(number: int) -> pa.Table:
    """The levels of some gauges during a minute."""
    places = [(gauge, second) for second in range(60) for gauge in range(number)]
    return pa.table(
        {
            "gauge": pa.array([gauge for gauge, _ in places], pa.int32()),
            "level": pa.array([gauge + second for gauge, second in places], pa.int32()),
            "measured": pa.array(
                [BEGINNING + timedelta(seconds=second) for _, second in places], pa.timestamp("us", "UTC")
            ),
        }
    )
