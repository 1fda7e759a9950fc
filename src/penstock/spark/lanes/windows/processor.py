"""The stateful processor of the keyed query: names the state, and leaves the rest to `shard_task`.

Spark runs `init` once on the driver, in a fresh Python process, before a query's first batch. What this module
imports is loaded there, so it imports next to nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from penstock.spark.log.shards import KeyedContext

#: the row that the processor puts out for each shard of a batch: a pickled ShardReport
REPORT_SCHEMA = "report BINARY"


class ShardProcessor(StatefulProcessor):
    """Follows the log for one shard at a time."""

    def __init__(self, context: KeyedContext) -> None:
        self._context = context

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Names the state."""
        self._scalars = handle.getValueState("scalars", "stored BINARY")
        self._panes = handle.getMapState("panes", "operator INT, pane BIGINT, piece INT", "stored BINARY")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Takes in the log up to the newest entry in `rows`."""
        from penstock.spark.lanes.windows.shard_task import ShardTask  # not on the driver: see above

        task = ShardTask(self._context, self._scalars, self._panes)
        report = task.follow(self._context.keys.index(key[0]), rows)
        yield Row(report=pickle.dumps(report))
