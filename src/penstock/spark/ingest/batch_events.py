"""The events of a published batch: what it counted and took, and what of it was kept out of the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from penstock.monitor.figures import counted, shortened
from penstock.operators.functions.judging import CALLED
from penstock.operators.ingest.stage_counts import StageCounts
from penstock.spark.publication.manifests import VIEW_PAIRS
from penstock.spark.storage.events import EventLog
from penstock.spark.tasks.worker import SetAside

#: places of unreadable rows that an event names
_MOST_NAMED = 100
#: views whose failing expression an event has
_MOST_EXPRESSIONS = 8


@dataclass(frozen=True, slots=True)
class Spent:
    """Wall time of a batch by part, seconds."""

    bind: float
    run: float
    publish: float

    @property
    def whole(self) -> float:
        """From the start of the batch to its publication."""
        return self.bind + self.run + self.publish


class BatchEvents:
    """Tells of the batches of one stream.

    Args:
        stream: the stream's name.
        events: the event log.
    """

    def __init__(self, stream: str, events: EventLog) -> None:
        self._stream = stream
        self._events = events

    def published(
        self, figures: Mapping[str, Any], counts: StageCounts, spent: Spent, raising: Mapping[str, str]
    ) -> None:
        """A batch is published.

        Args:
            figures: those of its manifest.
            counts: the sums over its tasks.
            spent: the time it took.
            raising: by view that lost tuples to an expression, that expression.
        """
        self._events.record(
            "batch",
            stream=self._stream,
            **{name: told for name, told in figures.items() if name != VIEW_PAIRS},
            evaluations=counts.evaluations if counts.asc_tuples else None,
            asc_tuples=counts.asc_tuples,
            index_ns_per_tuple=_a_tuple(counts.index_ns, counts.index_tuples),
            asc_ns_per_tuple=_a_tuple(counts.asc_ns, counts.asc_tried),
            skipped=counts.skipped,
            function_rows=int(counts.calls[:, CALLED].sum()),
            set_tuples=counts.set_tuples,
            set_partials=counts.set_partials,
            bind_seconds=round(spent.bind, 4),
            run_seconds=round(spent.run, 4),
            publish_seconds=round(spent.publish, 4),
            encode_cpu_seconds=round(counts.encode_ns / 1e9, 4),
            match_cpu_seconds=round(counts.match_ns / 1e9, 4),
            pane_cpu_seconds=round(counts.pane_ns / 1e9, 4),
            write_cpu_seconds=round(counts.write_ns / 1e9, 4),
        )
        where = {"stream": self._stream, "batch": figures["batch"], "plan": figures["plan"]}
        if figures["quarantined"]:
            self._events.record("records_quarantined", **where, counts=figures["quarantined"])
        if figures["errors"]:
            most = sorted(raising, key=lambda view: -figures["errors"][view])[:_MOST_EXPRESSIONS]
            expressions = {view: shortened(raising[view]) for view in most}
            self._events.record(
                "expression_raised", **where, counts=figures["errors"], expressions=expressions
            )
        if counts.null_event_times or counts.future_event_times:
            self._events.record(
                "event_times_unusable",
                **where,
                null_event_times=counts.null_event_times,
                future_event_times=counts.future_event_times,
            )
        if counts.ahead_event_times:
            self._events.record("event_times_ahead", **where, ahead_event_times=counts.ahead_event_times)

    def set_aside(self, batch: int, found: Sequence[SetAside]) -> None:
        """Files and row groups of a batch could not be read, if there are any."""
        if found:
            known = [each.rows for each in found if each.rows is not None]
            self._events.record(
                "rows_set_aside",
                stream=self._stream,
                batch=batch,
                told=f"{_unreadable(len(found), known)}; first {found[0].origin}: {found[0].reason}",
                rows=sum(known) if known else None,
                places=[asdict(each) for each in found[:_MOST_NAMED]],
                further=max(0, len(found) - _MOST_NAMED),
            )

    def compacted(self, first: int, last: int) -> None:
        """The files of a range of batches were merged."""
        self._events.record("compacted", stream=self._stream, first=first, last=last)


def _unreadable(number: int, known: Sequence[int]) -> str:
    """Files and row groups that are unreadable, with the rows of those whose footer has their number."""
    places = f"{counted(number, 'file')} or row {'group' if number == 1 else 'groups'} unreadable"
    if not known:
        return f"{places}, number of rows unknown"
    rows = counted(sum(known), "row")
    if len(known) == number:
        return f"{places}, {rows} skipped"
    return f"{places}, {rows} skipped in {len(known):,} of them, number unknown in the others"


def _a_tuple(ns: int, tuples: int) -> float | None:
    return round(ns / tuples, 2) if tuples else None
