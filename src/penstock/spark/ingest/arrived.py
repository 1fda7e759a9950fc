"""When the tuples of a batch arrived, as its entry of the log says it."""

from __future__ import annotations

import time

from penstock.operators.ingest.arrivals import (
    FILE,
    PLANNED,
    Arrival,
    Arrived,
    arrivals_told,
    merged_arrivals,
)
from penstock.operators.ingest.stage_counts import StageCounts
from penstock.spark.sources.source import BoundBatch
from penstock.spark.storage.offsets import planned_at, times_of_batch


class ArrivalClock:
    """Says when tuples arrived.

    What was there before the run began has been waiting for it: it counts as arriving as its batch was planned. So does what has no other time.
    """

    def __init__(self) -> None:
        self._began = _now()

    def of(self, bound: BoundBatch, counts: StageCounts) -> Arrived:
        """The arrivals of a batch that its tasks have answered; none where no lane reads its tuples.

        Args:
            bound: the batch.
            counts: of its tasks.
        """
        found, newest = counts.arrivals, counts.newest_event_time
        if newest is None or bound.checkpoint is None or bound.program.tuples is None:
            return Arrived()
        planned = planned_at(bound.checkpoint, bound.number) * 1_000
        known = {moment: event for moment, event in found.items() if self._began <= moment <= planned}
        others = [event for moment, event in found.items() if moment not in known]
        if newest > max(found.values(), default=newest - 1):
            # tasks do not know of all
            others.append(newest)
        if not others:
            return Arrived(arrivals_told(known), bound.arrived_by)
        moment = self._earliest_file(bound) if not found else None
        if moment is not None and self._began <= moment <= planned:
            return Arrived((Arrival(moment, newest),), FILE)
        by = bound.arrived_by if known else PLANNED
        return Arrived(arrivals_told(merged_arrivals(known, {planned: max(others)})), by)

    def _earliest_file(self, bound: BoundBatch) -> int | None:
        """When the first file of a batch arrived whose tasks do not know it; None of a source without files."""
        if bound.arrived_by != FILE or bound.checkpoint is None:
            return None
        times = times_of_batch(bound.checkpoint, bound.number)
        return min(times.values()) * 1_000 if times else None


def _now() -> int:
    return time.time_ns() // 1_000
