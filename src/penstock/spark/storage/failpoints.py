"""Named places where a test may kill the driver, to prove that a restart mends it.

`PENSTOCK_FAILPOINT=<name>:<batch>` ends the process as `kill -9` would when that batch reaches the place,
`PENSTOCK_FAILPOINT=<name>` when the first one does, `PENSTOCK_FAILPOINT=<name>@<lane>` when the first one of a lane does. Names: bound, staged, manifest_written,
before_commit; of a backfill, with the first of its operators: backfill_staged,
backfill_logged; of a lane, with its cuts: cut_put, cut_answered, cut_published, cut_handed_over; of the lane of views with a deadline,
with its publications: order_started, order_judged, order_published, order_marked, and where windows are answered late late_started,
late_judged, late_published; of the log of a view's rows, with the publication: rows_logged; of a compaction, with the last batch that
it merges: compaction_merged, compaction_listed, of a lane with cut_ before; of the event log, with the number that the full file gets: events_renamed, events_turned; of a stream's log, with the
number of the segment: segment_merged, segment_put, and as it is removed history_announced,
history_kept; with the place of a merged run of tuples in its level: runs_merged; as files that were replaced are removed, with
how many were before: replaced_half_removed; of a sink, with the number of the delivery: sink_planned, sink_delivered; of
rows that leave, with the newest batch: rows_leave, rows_left.
"""

from __future__ import annotations

import os
import signal

NAMES = ("bound", "staged", "manifest_written", "before_commit")
CUT_NAMES = ("cut_put", "cut_answered", "cut_published", "cut_handed_over")
ORDER_NAMES = (
    "order_started",
    "order_judged",
    "order_published",
    "order_marked",
)
LATE_NAMES = ("late_started", "late_judged", "late_published")
ROW_NAMES = ("rows_logged",)
COMPACTION_NAMES = ("compaction_merged", "compaction_listed")
EVENT_NAMES = ("events_renamed", "events_turned")
LOG_NAMES = (
    "segment_merged",
    "segment_put",
    "history_announced",
    "history_kept",
)
RETENTION_NAMES = ("rows_leave", "rows_left")
RUN_NAMES = ("runs_merged", "replaced_half_removed")
SINK_NAMES = ("sink_planned", "sink_delivered")
BACKFILL_NAMES = ("backfill_staged", "backfill_logged")


def failpoint(name: str, batch: int, lane: str = "") -> None:
    """Kills this process if the environment asks for it here."""
    if os.environ.get("PENSTOCK_FAILPOINT") in (name, f"{name}:{batch}", f"{name}@{lane}"):
        os.kill(os.getpid(), signal.SIGKILL)
