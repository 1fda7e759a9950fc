"""What lanes ask of the tuples of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.spark.ingest.plans import StreamPlans
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.demands import TupleDemand


@dataclass(frozen=True, slots=True)
class Asked:
    """What a view asks of a stream.

    Attributes:
        reader: the name of the lane that answers it, among the readers of the log.
        view: its name.
        demands: what is kept of the stream's tuples for it.
        reads_again: whether the lane reads tuples again that it has left behind.
        patience: seconds that tuples may wait for others to come with the same batch.
    """

    reader: str
    view: str
    demands: tuple[TupleDemand, ...]
    reads_again: bool
    patience: float = 0.0


def ask(log: LogReader, plans: StreamPlans, asked: Sequence[Asked]) -> None:
    """Asks a stream for the tuples of all views, and no more for others.

    Args:
        log: the stream's.
        plans: the stream's.
        asked: by all views of the run.
    """
    wanted = [demand for each in asked for demand in each.demands]
    for numbered in plans.demands:
        if numbered.demand not in wanted:
            plans.withdraw(numbered.id)
    for each in asked:
        if each.demands and log.mark(each.reader) is None:
            # before the first of its tuples can come: nothing goes that the lane has not left behind
            log.join(each.reader, reads_again=each.reads_again)
    views: dict[int, list[str]] = {}
    owners = [each.view for each in asked for _ in each.demands]
    for id_, view in zip(plans.demand_all(wanted), owners, strict=True):
        views.setdefault(id_, []).append(view)
    plans.demanding = views
    plans.patience = min((each.patience for each in asked), default=0.0)
