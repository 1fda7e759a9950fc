"""The batch module of a stream: answers from its history, beside the lanes with early answers, which do not wait for it.

As in the HPM paper (section 1.4), the module that answers at once and the one that answers from everything are apart. The history is either
what the log has kept, the partials of tuples (`Corrections`), or the source, read again (`BackfillLane`).
"""

from __future__ import annotations

from itertools import count
from typing import Any

from penstock.spark.lanes.cells import CellJobs
from penstock.spark.lanes.lane import Lane, LaneContext, LaneInput
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.sessions.priority import LOW_PRIORITY
from penstock.spark.sessions.slots import task_slots


class HistoryLane(Lane):
    """Answers from the history of one stream; it publishes nothing itself.

    Args:
        name: see `Lane`.
        context: the run's.
        stream: the stream.
    """

    def __init__(self, name: str, context: LaneContext, stream: LaneInput) -> None:
        super().__init__(name, context, [stream])
        # early answers find a slot
        self.most_tasks = max(1, task_slots(context.spark) // 2)
        self.jobs = CellJobs(context.spark, name, niceness=LOW_PRIORITY, most_tasks=self.most_tasks)
        #: numbers of attempts: each leaves its files in a folder of its own
        self._attempts = count()

    def recount(self, status: StatusFile) -> None:
        """Nothing: it publishes nothing."""

    def status(self) -> dict[str, Any]:
        """Nothing: the lanes that publish its answers say what there is to say."""
        return {}

    def _halt(self) -> None:
        self.jobs.cancel()

    def _close(self) -> None:
        # who waits for its answers goes on, also without them
        self.context.appended.tell()
