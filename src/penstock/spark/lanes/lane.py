"""What is common to everything that consumes the logs of streams."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from pyspark.sql import SparkSession

from penstock.operators.deadlines.aggregates import UserAggregate
from penstock.settings import Settings
from penstock.spark.ingest.query import IngestQuery
from penstock.spark.lanes.cuts import Reach, newest_reach, refuse_another_log
from penstock.spark.lanes.shared_jobs import SharedJobs
from penstock.spark.log.appended import Appended
from penstock.spark.log.row_log import RowLogs
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.publish import Publisher
from penstock.spark.publication.retention import FOREVER, Retention
from penstock.spark.recovery.retried_thread import RetriedThread
from penstock.spark.recovery.retries import Retries
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import LANE
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

#: time between two words to a lane to break off
_HALT_SECONDS = 1.0
#: views that an event names
_MOST_NAMED = 100


@dataclass(frozen=True, slots=True)
class LaneContext:
    """What every lane of a run is given.

    Attributes:
        spark: the session.
        layout: output and checkpoint folders.
        events: the event log.
        settings: frozen settings.
        trigger: when the streams end by themselves.
        run: names the run's queries, of which one session may hold several of the same name.
        published: is told of each publication.
        appended: wakes who waits for entries of the logs.
        rows: the logs of the views whose rows other lanes read.
        functions: the users' functions by name.
        aggregates: the users' aggregates by name in upper case.
        shared_jobs: where the window lanes of several streams run light jobs together.
        retention: how long published rows are kept.
    """

    spark: SparkSession
    layout: Layout
    events: EventLog
    settings: Settings
    trigger: Trigger
    run: str
    published: Appended
    appended: Appended
    rows: RowLogs
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    aggregates: Mapping[str, UserAggregate] = field(default_factory=dict)
    shared_jobs: SharedJobs = field(default_factory=SharedJobs)
    retention: Retention = FOREVER


class LaneInput(Protocol):
    """A log that a lane reads, as the run knows it.

    Attributes:
        stream: the log's name.
        ingest: the stream that its entries come from in the end.
        active: whether entries may still come.
        is_complete: whether it has come to its end in this run: no entry follows.
    """

    @property
    def stream(self) -> str: ...
    @property
    def ingest(self) -> IngestQuery: ...
    @property
    def active(self) -> bool: ...
    @property
    def is_complete(self) -> bool: ...


class Lane(RetriedThread):
    """Consumes the logs of streams in a thread of its own, begun again where that helps.

    A lane ends by itself once the logs of all its streams are complete, and answered. What fails in it is tried again for as long as the
    run goes on; in a run that ends with what is available, as often as the ingest query.

    Args:
        name: unique in the run, and the same in the next one.
        context: the run's.
        streams: the logs it reads.
    """

    #: what it is, for messages and events
    part: ClassVar[str]
    #: of its results; a lane that hands them to another has none
    publisher: Publisher

    def __init__(self, name: str, context: LaneContext, streams: Sequence[LaneInput]) -> None:
        retries = Retries(
            streams[0].ingest.stream,
            self.part,
            context.settings,
            context.events,
            details=lambda: {"lane": self.name, "views": list(self.views)[:_MOST_NAMED]},
            is_endless=not context.trigger.is_bounded,
        )
        super().__init__(f"penstock-{name}", retries)
        self.name = name
        self.context = context
        self.streams = tuple(streams)
        self.readers = {each.stream: LogReader(context.layout.log(each.stream)) for each in streams}
        #: what `status` says of it; replaced as a whole
        self._told: Mapping[str, Any] = {}
        LANE.put(context.layout.lanes[name], {})
        self._finishing = threading.Event()
        #: whether it has answered all that its logs will ever hold in this run
        self.is_complete = False

    def stop(self) -> None:
        """Stops the lane; what is in the logs is answered at the next start."""
        self._stopping.set()
        self._halt()
        while self._thread.is_alive():
            self._thread.join(_HALT_SECONDS)
            # what was begun just behind the word to break off has not heard it
            self._halt()

    def finish(self) -> None:
        """Lets the lane end once it has answered what is in the logs now; see `await_termination`."""
        self._finishing.set()

    @property
    def views(self) -> Sequence[str]:
        """The views that it answers."""
        return ()

    @property
    def failures(self) -> list[Mapping[str, Any]]:
        """What was recorded of failures that are not tried again in this run: of its own, and of views of its."""
        return [] if self.failed is None else [self.failed]

    def is_complete_for(self, view: str) -> bool:  # noqa: ARG002
        """Whether it has answered a view as far as it will in this run."""
        return self.is_complete

    @property
    def waits_for_others(self) -> bool:
        """Whether it has ended because a lane that it reads from has failed."""
        return (
            self._failure is None and not self.is_complete and not self.active and not self._stopping.is_set()
        )

    def status(self) -> dict[str, Any]:
        """What `Run.status` says of the lane: how far it has come, by its name."""
        return {"lanes": {self.name: {"active": self.active, **self._told}}}

    @property
    def before(self) -> Sequence[str]:
        """Names of the lanes that answered the same views before, while these were declared earlier."""
        return ()

    def recount(self, status: StatusFile) -> None:
        """Lets the status count what the lane has published in earlier runs and told nobody of."""
        status.begin_lane(self.name)

    @property
    def reader(self) -> str:
        """Its name among the readers of its logs."""
        return self.name

    @property
    def reader_names(self) -> Sequence[str]:
        """All names that it has among the readers of its logs."""
        return (self.reader,)

    def leave(self) -> None:
        """Says that the lane, which has been stopped, is needed no more: its logs wait for it no longer."""
        for reader in self.readers.values():
            reader.leave(self.reader)

    def explain(self) -> list[str]:
        """What `Run.explain` says of the lane beside what its streams say."""
        return []

    @abstractmethod
    def _halt(self) -> None:
        """Breaks off what the lane's thread is doing; `_stopping` is set. May be called again."""

    @property
    def _is_fed(self) -> bool:
        """Whether more entries may come that are to be answered."""
        return not self._finishing.is_set() and any(keeper.active for keeper in self.streams)

    @property
    def _is_to_end(self) -> bool:
        """Whether what is in the logs is all that is to be answered."""
        return not self._stopping.is_set() and (
            self._finishing.is_set() or all(keeper.is_complete for keeper in self.streams)
        )

    def _newest_published(self) -> tuple[int, dict[str, Reach]] | None:
        """The number of the newest publication, and how far the logs are answered by it; None before the first one.

        Raises:
            CheckpointError: a log is another, or ends before.
        """
        newest = newest_reach(read_published(self.context.layout, self.name).batches)
        for stream, reach in (newest[1] if newest is not None else {}).items():
            if stream in self.readers:
                refuse_another_log(self.name, stream, self.readers[stream], reach)
        return newest

    def _compact(self, number: int) -> None:
        """Merges published files where there are many; see Publisher."""
        every = self.context.settings.compact_every_batches
        self.publisher.compact_if_due(number, every, self.context.events)

    def _run(self) -> None:
        try:
            super()._run()
            self.is_complete = self._failure is None and self._is_to_end
        finally:
            # lanes that read its rows learn that none follow
            self.context.appended.tell()
            self._close()

    def _close(self) -> None:
        """Ends what the lane has begun beside its thread, which is at its end."""
        self.publisher.close()


@dataclass(frozen=True, slots=True)
class LanePlan:
    """A lane that is to run.

    Attributes:
        name: the lane's.
        streams: names of the streams whose logs it reads.
        make: makes it, given these logs in the same order.
    """

    name: str
    streams: tuple[str, ...]
    make: Callable[[LaneContext, Sequence[Any]], Lane]
