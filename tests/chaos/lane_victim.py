"""A process with one lane over logs that lie there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lane_cases import PairLane, lane_context
from penstock.spark.storage.layout import Layout

NAME = "killed.pairs"
ENTRIES_PER_CUT = 2


def main(layout: Layout, seconds: float, *streams: str) -> None:
    """Answers all that is in the logs of some streams, each cut taking so many seconds at least, and ends."""
    keepers: list[Any] = [
        SimpleNamespace(stream=name, ingest=SimpleNamespace(stream=name), active=False, is_complete=True)
        for name in streams
    ]

    ledger = layout.ledger.open()
    context = lane_context(layout, compact_every_batches=5)
    lane = PairLane(NAME, context, keepers, ENTRIES_PER_CUT, seconds=seconds)
    lane.start()
    while not lane.await_termination(1.0):
        pass
    ledger.close()
