"""The results of a view that cannot be made wait; a cut says so once it is published, and an old operator leaves without the count of the new one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.settings import Settings
from penstock.spark.lanes.cells import CellJobs
from penstock.spark.lanes.stopped import Place, StoppedViews
from penstock.spark.lanes.windows.making import Made, ResultMaking
from penstock.spark.publication.kinds import view_kind
from penstock.spark.publication.publish import Publisher
from penstock.spark.results.window_staging import SaidWindows, StagedResults, written
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout
from penstock.sql.windows.bind import BoundWindow

pytestmark = pytest.mark.spark

LANE = "s.windows"
OLD, NEW = Place(0, "v"), Place(1, "v")


class _Lane:
    """What a lane has of its views; the definitions of all of them cannot be read."""

    def __init__(self, spark: SparkSession, layout: Layout) -> None:
        self.events = EventLog(layout.events)
        settings = Settings(retry_seconds=0.001)
        self.stopped = StoppedViews(LANE, "s", "windows", settings, self.events, is_endless=True)
        self._publisher = Publisher(layout, LANE)
        self._making = ResultMaking(
            spark, layout, LANE, CellJobs(spark, LANE), self.stopped, self._definitions
        )
        self._cut = 0

    def made(self, staged: list[Place], wanted: Place) -> Made:
        """What a cut publishes that has raw results of these."""
        store = self._publisher.begin(self._cut)
        self._cut += 1
        rows = pa.table({"a": [1, 2]})
        raw = [
            StagedResults(
                *place, 0, True, written(view_kind(*place), rows).left(store.scratch), SaidWindows()
            )
            for place in staged
        ]
        return self._making.made(raw, store, {wanted}, lambda _: None, was_tried=False)

    def told(self) -> list[tuple[str, Any, Any]]:
        """The events: kind, attempt and kept rows."""
        return [(event["kind"], event.get("attempt"), event.get("kept_rows")) for event in self.events.recent]

    @staticmethod
    def _definitions(operator: int) -> Mapping[str, BoundWindow]:
        raise ValueError(f"the views of operator {operator} cannot be read")


def test_what_stops_is_told_behind_the_commit_and_each_operator_counts_for_itself(
    spark: SparkSession, layout: Layout
) -> None:
    lane = _Lane(spark, layout)
    first = lane.made([OLD], OLD)
    assert lane.told() == [], "nothing is published yet"
    assert OLD not in lane.stopped
    first.committed()
    assert lane.told() == [("view_retried", 1, 2)]

    time.sleep(0.01)
    # the cut in which the view is redefined has results of both operators
    second = lane.made([OLD, NEW], NEW)
    assert lane.told() == [("view_retried", 1, 2)]
    second.committed()
    assert lane.told()[1:] == [("view_left", None, 2), ("view_retried", 1, 2)]
    assert lane.stopped.places == [NEW]

    time.sleep(0.01)
    lane.made([NEW], NEW).committed()
    assert lane.told()[3:] == [("view_retried", 2, 4)], (
        "its attempts were not forgotten with those of the old one"
    )
    assert lane.stopped.names == ["v"]
