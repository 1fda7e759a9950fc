"""Static tables as a refreshed view reads them: whole, again for each answer, what does not fit set aside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.lanes.joins.static_aside import HAS_VALUE, keep_aside
from penstock.spark.recovery.messages import quoted
from penstock.spark.sources.static_tables import StaticTable
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout
from penstock.spark.tasks.dataframe_stage import CORRUPT, ORIGIN, REASON


class ReadTables:
    """The static tables of a refreshed view; the lane's thread owns it.

    Args:
        tables: the tables by name.
        layout: of the results folder, whose quarantine takes the records that do not fit.
        events: the event log.
        lane: the lane's name, for events.
    """

    def __init__(
        self, tables: Mapping[str, StaticTable], layout: Layout, events: EventLog, lane: str
    ) -> None:
        self._tables = tables
        self._layout = layout
        self._events = events
        self._lane = lane
        #: the version of each table whose records have been set aside
        self._looked_at: dict[str, str] = {}

    def versions(self) -> dict[str, str | None]:
        """The version of each table as it is now; None where it has no files."""
        return {name: table.version() for name, table in self._tables.items()}

    def frames(self, spark: SparkSession, versions: Mapping[str, str | None]) -> dict[str, DataFrame]:
        """The rows of the tables that fit their columns.

        Args:
            spark: the session.
            versions: as they were said before; what does not fit is kept once a version.
        """
        found = {}
        for name, table in self._tables.items():
            frame = table.read(spark)
            version = versions.get(name)
            if version is not None and self._looked_at.get(name) != version:
                self._set_aside(name, table, frame, version)
            columns = (quoted(each) for each in table.schema.names)
            found[name] = frame.where(F.col(REASON).isNull()).select(*columns)
        return found

    def _set_aside(self, name: str, table: StaticTable, frame: DataFrame, version: str) -> None:
        has_value = [
            F.col(quoted(each)).isNotNull().alias(HAS_VALUE.format(place))
            for place, each in enumerate(table.schema.names)
        ]
        aside = frame.where(F.col(REASON).isNotNull()).select(CORRUPT, REASON, ORIGIN, *has_value).toArrow()
        malformed = keep_aside(self._layout, name, version, aside, arrow_schema(table.schema), table.form)
        self._looked_at[name] = version
        rows = {"rows": _fitting(frame, table.schema.names)} if malformed else {}
        self._events.record(
            "static_table_read", lane=self._lane, table=name, **rows, malformed=malformed, version=version
        )


def _fitting(frame: DataFrame, columns: Sequence[str]) -> int:
    """The rows that fit; it takes a job. Every column is counted, as Spark's readers pass over faults of columns that nobody asks for."""
    counts = (F.count(quoted(each)).alias(f"n{place}") for place, each in enumerate(columns))
    (found,) = (
        frame.where(F.col(REASON).isNull()).agg(F.count(F.lit(1)).alias("rows"), *counts).toLocalIterator()
    )
    return int(found["rows"])
