"""Entries of a stream's log, and what they are on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.operators.ingest.arrivals import CLOCK, Arrival
from penstock.operators.windows.answers import Progress
from penstock.operators.windows.arrival_steps import ArrivalStep
from penstock.spark.storage.documents import Place
from penstock.spark.storage.formats import LOG_ENTRY


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the log: a batch of the stream, or what is said of it between two batches.

    Attributes:
        number: its place; entries follow each other without a gap, from 0.
        batch: the batch of the ingest query, or the last one before.
        plan: the plan version the batch is bound to.
        clock: when it was put, microseconds since the epoch.
        newest: largest event time seen up to here, microseconds, or None; tuples too far ahead to be believed aside.
        furthest: largest event time of any tuple in the files up to here, or None. By it those are found that windows and
            joins need again (`LogReader.first_reaching`): both go by the one event time of the stream.
        delays: delays of some tuples of the batch, microseconds, the largest among them.
        files: names of the batch's files, by kind.
        flush: whether late tuples of answered windows are corrected now, however few.
        whole: operators whose partials in `files` are those of all batches before their first one.
        reached: the event time a silent stream is taken to have come to; None: `newest`.
        answer_all: whether every window with tuples is answered now: what is there is all there is for now.
        ended: whether the stream has ended.
        kept_before: windows that begin before it, microseconds, are not corrected from the history any more: it may
            lack tuples of theirs; None: it lacks none.
        progress: in the log of a view's rows, how far its windows are answered, or its rows told; None elsewhere. There `batch` is
            a publication, and `answer_all` says that rows of earlier ones are not in the log.
        steps: the arrival steps of the batch; none where all of it came at once.
        arrivals: when its tuples arrived, and how far event times had come by then; none where no reader asks for tuples.
        arrived_by: what says so, see `Arrived`; "" without arrivals.
    """

    number: int
    batch: int
    plan: int
    clock: int
    newest: int | None = None
    furthest: int | None = None
    delays: tuple[int, ...] = ()
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    flush: bool = False
    whole: tuple[int, ...] = ()
    reached: int | None = None
    answer_all: bool = False
    ended: bool = False
    kept_before: int | None = None
    progress: Progress | None = None
    steps: tuple[ArrivalStep, ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    arrived_by: str = ""

    @property
    def reached_or_newest(self) -> int | None:
        """The event time the stream has come to, or is taken to have come to; None before any."""
        return max((each for each in (self.reached, self.newest) if each is not None), default=None)

    def arrival_of(self, moment: int) -> tuple[int, str]:
        """When the tuple arrived with which the stream came to an event time, and what says so.

        Args:
            moment: the event time, microseconds.

        Returns:
            Microseconds since the epoch, never after `clock`. If no tuple of the entry brought the stream there, as in silence, it is the
            entry's clock, by CLOCK.
        """
        if self.newest is None or self.newest < moment or not self.arrivals:
            return self.clock, CLOCK
        found = next((each for each in self.arrivals if each.newest >= moment), self.arrivals[-1])
        return min(found.moment, self.clock), self.arrived_by

    def document(self) -> dict[str, Any]:
        """The entry as JSON."""
        fields = asdict(self)
        if self.progress is None:
            del fields["progress"]
        if not self.steps:
            del fields["steps"]
        if not self.arrivals:
            del fields["arrivals"], fields["arrived_by"]
        return LOG_ENTRY.stamped(fields)

    @classmethod
    def of(cls, document: Mapping[str, Any], path: Place) -> Entry:
        """The entry of a document.

        Args:
            document: as `document` gave it.
            path: where it was read, for messages.

        Raises:
            CheckpointError: another version of Penstock wrote it.
        """
        fields = LOG_ENTRY.opened(document, path)
        fields["files"] = {kind: tuple(names) for kind, names in fields["files"].items()}
        fields["delays"], fields["whole"] = tuple(fields["delays"]), tuple(fields["whole"])
        if "progress" in fields:
            fields["progress"] = Progress(**fields["progress"])
        fields["steps"] = tuple(
            ArrivalStep(each["number"], each["newest"], tuple(each["delays"]))
            for each in fields.get("steps", ())
        )
        fields["arrivals"] = tuple(Arrival(**each) for each in fields.get("arrivals", ()))
        return cls(**fields)
