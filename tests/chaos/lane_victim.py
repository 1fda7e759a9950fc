"""A process with one lane over logs that lie there: `python lane_victim.py OUTPUT CHECKPOINT SECONDS STREAM...`.

It answers all that is in the logs, each cut taking so long at least, and ends.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from lane_cases import VIEW, PairLane, lane_context
from penstock.spark.sinks import Sink
from penstock.spark.storage.layout import Layout

NAME = "killed.pairs"
ENTRIES_PER_CUT = 2


def main(output: str, checkpoint: str, seconds: str, *streams: str) -> None:
    layout = Layout(Path(output), Path(checkpoint))
    keepers: list[Any] = [
        SimpleNamespace(stream=name, ingest=SimpleNamespace(stream=name), active=False, is_complete=True)
        for name in streams
    ]

    def write(rows: Any, cut: int) -> None:
        with (layout.output / "copies").open("a") as file:
            file.write(f"{cut} {sum(row['n'] for row in rows)}\n")

    context = lane_context(layout, sinks=[Sink("file", VIEW, write)], compact_every_batches=5)
    lane = PairLane(NAME, context, keepers, ENTRIES_PER_CUT, seconds=float(seconds))
    lane.start()
    while not lane.await_termination(1.0):
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
