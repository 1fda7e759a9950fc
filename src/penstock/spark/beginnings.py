"""Where a window view begins in a stream that had batches before: what it cannot have seen, and what it answers."""

from __future__ import annotations

import time

from penstock.settings import Settings
from penstock.spark.bindings import FROM_THE_START, Beginning, WindowDefinition
from penstock.spark.layout import Layout
from penstock.spark.past import read_offset
from penstock.spark.publish import read_manifests


class Beginnings:
    """Says of the views of one stream where they begin.

    Args:
        layout: output and checkpoint folders.
        stream: the stream's name.
        settings: frozen settings.
    """

    def __init__(self, layout: Layout, stream: str, settings: Settings) -> None:
        self._layout = layout
        self._stream = stream
        self._ahead = settings.max_clock_ahead_seconds

    def __call__(self, batch: int, definition: WindowDefinition) -> Beginning:  # noqa: ARG002 - none differs yet
        """Where a new view begins.

        Args:
            batch: the first one it is answered by; all before are published.
            definition: the view.
        """
        newest = self._newest(batch)
        if newest is None:
            return FROM_THE_START
        return Beginning(batch, newest, newest, read_offset(self._layout.spark(self._stream), batch - 1))

    def _newest(self, batch: int) -> int | None:
        """Largest event time of the batches before one; None where they brought no tuples."""
        newest: int | None = None
        for manifest in read_manifests(self._layout, self._stream):
            for figures in manifest["batches"]:
                if figures["batch"] >= batch or not figures["tuples"]:
                    continue
                found = figures["newest_event_time_us"]
                if found is None and "null_event_times" not in figures:
                    # the stream had no event time then: as late as any tuple can have been believed
                    found = int((time.time() + self._ahead) * 1e6)
                if found is not None:
                    newest = found if newest is None else max(newest, found)
        return newest
