"""A sink in a run: a thread that reads what is published of a view and hands it to a target (docs/decisions/0079).

Order: a delivery is read, its number and end are stored, the target takes it, and the mark moves behind it. A kill in between repeats the
delivery: the same rows under the same number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pyspark.sql import SparkSession

from penstock.errors import DamagedError, SinkFailedError, UnknownNameError
from penstock.settings import Settings
from penstock.spark.log.appended import Appended
from penstock.spark.recovery.retries import Retries, told_of
from penstock.spark.sinks.declared import Sink
from penstock.spark.sinks.delivery import Delivery
from penstock.spark.sinks.feeds import CurrentFeeds, SelectionFeed, ViewFeed, open_feed
from penstock.spark.sinks.marks import Mark, Marks, Planned
from penstock.spark.sinks.providers import Target, TargetHome
from penstock.spark.sinks.published import BEGINNING, Feed, Place, Publications, Stretch
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.formats import SINK
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.ledger_documents import StoredDocument
from penstock.spark.storage.names import on_disk

_T = TypeVar("_T")
#: where nothing is told, what is published is looked at so often
_LOOK_SECONDS = 1.0
#: places that moved over batches without rows of the view are stored this seldom
_MOVED_SECONDS = 10.0
_MISSED = (
    "{:,} stored rows left the results folder by retention or `penstock prune` before the sink had them; rows of other views may be "
    "among them. The sink continues with the first row that is kept"
)
#: jobs of all followers have a pool of their own
POOL = "sinks"


@dataclass(frozen=True, slots=True)
class FollowerContext:
    """What every follower of a run is given.

    Attributes:
        spark: the session.
        layout: output and checkpoint folders.
        events: the event log.
        settings: frozen settings.
        is_bounded: whether the run ends with what is available.
        is_over: whether no publication follows: a follower ends once it has delivered what there is.
        publications: finds published rows.
        marks: stores marks.
        published: is told of publications.
        views: is told where feeds of views may have changed.
        told: is given the figures of a follower by its name.
    """

    spark: SparkSession
    layout: Layout
    events: EventLog
    settings: Settings
    is_bounded: bool
    is_over: Callable[[], bool]
    publications: Publications
    marks: Marks
    published: Appended
    views: Appended
    told: Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class _Next:
    """A delivery that is due.

    Attributes:
        delivery: what the target is given.
        planned: as the ledger has it.
        mark: with the plan.
        is_full: whether it has as many rows as it may, so that others follow.
    """

    delivery: Delivery
    planned: Planned
    mark: Mark
    is_full: bool


class Follower:
    """Delivers the rows of one view to one target, begun again where that fails.

    Args:
        name: of the sink in the ledger and the status.
        sink: what is declared.
        context: the run's.
    """

    def __init__(self, name: str, sink: Sink, context: FollowerContext) -> None:
        self.name = name
        self.sink = sink
        self._context = context
        self._where: StoredDocument = context.layout.sinks[name]
        self._retries = Retries(
            sink.name,
            "sink",
            context.settings,
            context.events,
            details=lambda: {"sink": self.name, "views": [sink.view]},
            is_endless=not context.is_bounded,
        )
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._feeds: dict[Feed, ViewFeed] = {}
        self._current: CurrentFeeds | None = None
        self._seen_views = -1
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"penstock-sink-{name}")

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def prepare_stop(self) -> None:
        """Says that no further delivery is to be begun."""
        self._stopping.set()
        self._context.published.tell()

    def stop(self) -> None:
        """Stops after the delivery that is being made; the next start goes on behind it."""
        self.prepare_stop()
        self._thread.join()

    def join(self, timeout_seconds: float) -> bool:
        """Waits for the end; False where the time ran out first."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    @property
    def active(self) -> bool:
        """Whether deliveries may follow."""
        return self._thread.is_alive()

    @property
    def failed(self) -> Mapping[str, Any] | None:
        """What was told of the failure that has ended it, or None."""
        return told_of(self._failure, self._retries)

    def _run(self) -> None:
        self._context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
        try:
            self._retries.run(self._attempt, self._stopping)
        except BaseException as error:
            self._failure = error

    def _attempt(self) -> None:
        try:
            self._follow()
        except DamagedError as error:
            # files that were merged between two looks are found again by the next attempt
            for feed in self._feeds:
                self._context.publications.forget(feed.query)
            raise SinkFailedError(self.sink.name, self.sink.view) from error

    def _follow(self) -> None:
        stored = mark = self._begin()
        put, moved_at = self._context.marks.put, time.monotonic()
        due: _Next | None = None
        target: Target | None = None
        next_at = time.monotonic()
        try:
            if self.sink.is_eager:
                target = self._opened(mark)
            while not self._stopping.is_set():
                seen, is_over = self._context.published.count, self._context.is_over()
                is_early = not is_over and mark.planned is None and time.monotonic() < next_at
                if due is None and not is_early:
                    mark = self._with_feeds(mark)
                    due, mark = self._due(mark)
                if due is None:
                    if mark != stored and (
                        is_over
                        or mark.delivered != stored.delivered
                        or time.monotonic() - moved_at > _MOVED_SECONDS
                    ):
                        put(self._where, mark)
                        stored, moved_at = mark, time.monotonic()
                    if not is_early:
                        self._tell(mark)
                    if target is not None:
                        self._guarded(partial(target.idle, is_over=is_over))
                    if is_over:
                        return
                    if is_early:
                        self._stopping.wait(min(_LOOK_SECONDS, max(0.0, next_at - time.monotonic())))
                    else:
                        self._context.published.wait(seen, _LOOK_SECONDS)
                    continue
                if due.mark != stored:
                    put(self._where, due.mark)
                    stored = due.mark
                failpoint("sink_planned", due.delivery.number)
                if self._retries.pending is not None:
                    # the backlog grows while it fails
                    self._tell(mark)
                if target is None:
                    target = self._opened(mark)
                self._guarded(partial(target.deliver, due.delivery))
                failpoint("sink_delivered", due.delivery.number)
                self._retries.succeeded()
                if not due.is_full:
                    next_at = time.monotonic() + self.sink.every_seconds
                # the commit that plans the next delivery says that this one is made
                mark, due = self._behind(due), None
                self._tell(mark)
        finally:
            if target is not None:
                target.close()
        if mark != stored:
            put(self._where, mark)

    def _begin(self) -> Mark:
        document = SINK.read(self._where)
        if document is not None:
            return Mark.of(document)
        while not self._stopping.is_set():
            seen = self._context.views.count
            try:
                current = CurrentFeeds(self._context.layout, self.sink.view)
            except UnknownNameError:
                # the catalog is written as the stream is added
                self._context.views.wait(seen, _LOOK_SECONDS)
                continue
            is_latest = self.sink.begin == "latest"
            publications = self._context.publications
            find = publications.newest if is_latest else publications.oldest
            places = {each: find(each) for each in current.list()}
            mark = Mark.new(current.number, places, is_counted=not self.sink.takes_frames)
            self._context.marks.put(self._where, mark)
            self._context.events.record(
                "sink_began", sink=self.name, view=self.sink.view, begin=self.sink.begin
            )
            return mark
        return Mark.new(1, {})

    def _with_feeds(self, mark: Mark) -> Mark:
        """The mark with the feeds that the view has got since."""
        seen = self._context.views.count
        if self._current is None or seen != self._seen_views:
            try:
                self._current, self._seen_views = CurrentFeeds(self._context.layout, self.sink.view), seen
            except UnknownNameError:
                return mark
            # a selection may have got another SELECT list
            self._feeds = {}
        places = dict(mark.places)
        for each in self._current.list():
            places.setdefault(each, BEGINNING)
        for each in places:
            if each not in self._feeds:
                self._feeds[each] = open_feed(self._context.layout, self.sink.view, each)
        return replace(mark, places=places) if places != mark.places else mark

    def _due(self, mark: Mark) -> tuple[_Next | None, Mark]:
        """The next delivery, and the mark behind what has no rows of the view before it."""
        if (planned := mark.planned) is not None:
            stretch = self._context.publications.between(planned.feed, mark.places[planned.feed], planned.end)
            mark = self._past_missed(mark, stretch)
            if stretch.rows:
                own = self._feeds[stretch.feed].known(planned.definition)
                return self._next(mark, stretch, planned.definition, own), mark
            # the target may have it under its number
            mark = replace(mark, delivered=mark.delivered + 1, planned=None)
        for feed in mark.places:
            while not self._stopping.is_set():
                found = self._context.publications.after(feed, mark.places[feed], self.sink.limits)
                if found is None:
                    break
                mark = self._past_missed(mark, found)
                due = self._next_of(mark, found) if found.rows else found.end
                if due is None:
                    # the catalog is written after the plan that the rows were matched by
                    self._current = None
                    return None, mark
                if isinstance(due, _Next):
                    return due, mark
                mark = replace(mark, places={**mark.places, feed: due})
        return None, mark

    def _past_missed(self, mark: Mark, stretch: Stretch) -> Mark:
        """The mark behind rows before a stretch that have left before they were delivered; that is told."""
        feed, begin = stretch.feed, stretch.begin
        missed = begin.rows - mark.places[feed].rows
        if missed > 0:
            self._context.events.record(
                "sink_missed", sink=self.name, view=self.sink.view, rows=missed, told=_MISSED.format(missed)
            )
            mark = replace(mark, places={**mark.places, feed: begin})
        return mark

    def _next_of(self, mark: Mark, stretch: Stretch) -> _Next | Place | None:
        """The delivery of a stretch's first rows; or a place that has no wanted rows before it. None where the rows are of a definition
        that the feed does not know."""
        feed = self._feeds[stretch.feed]
        definition: int | None = None
        if isinstance(feed, SelectionFeed):
            told = feed.told(stretch, with_rows=not self.sink.takes_frames)
            count = len(told.numbers)
            if not count:
                return stretch.end
            definition = int(told.definitions[0])
            others = np.flatnonzero(told.definitions != definition)
            if len(others):
                count = int(others[0])
                end = replace(stretch.begin, rows=int(told.numbers[count]))
                stretch = self._context.publications.between(stretch.feed, stretch.begin, end)
            if definition < mark.since:
                return stretch.end
            if not feed.knows(definition):
                return None
            feed = feed.holding(definition, told, count)
        due = self._next(mark, stretch, definition, feed)
        return due if self.sink.takes_frames or due.delivery.count else stretch.end

    def _next(self, mark: Mark, stretch: Stretch, definition: int | None, feed: ViewFeed) -> _Next:
        number = mark.delivered + 1
        batch = max(stretch.end.batch, stretch.begin.batch + 1)
        delivery = Delivery(
            mark.id,
            number,
            self.sink.view,
            batch,
            self.sink.form,
            definition,
            feed,
            stretch,
            self._context.spark,
        )
        planned = Planned(stretch.feed, stretch.end, definition)
        most = self.sink.limits.rows
        is_full = most is not None and stretch.rows >= most
        return _Next(delivery, planned, replace(mark, planned=planned), is_full)

    def _behind(self, due: _Next) -> Mark:
        places = {**due.mark.places, due.planned.feed: due.planned.end}
        # of targets that take frames nobody counts rows
        sent = None if due.mark.sent is None or self.sink.takes_frames else due.mark.sent + due.delivery.count
        return replace(due.mark, delivered=due.delivery.number, places=places, planned=None, sent=sent)

    def _opened(self, mark: Mark) -> Target:
        folder = self._context.layout.local / "sinks" / on_disk(self.name)
        folder.mkdir(parents=True, exist_ok=True)
        home = TargetHome(self.name, mark.id, folder, self._rejected)
        return self._guarded(partial(self.sink.opens, home))

    def _guarded(self, act: Callable[[], _T]) -> _T:
        """Lets a failure of the target name the sink."""
        try:
            return act()
        except Exception as error:
            raise SinkFailedError(self.sink.name, self.sink.view) from error

    def _rejected(self, rows: int, reason: str, place: Path) -> None:
        self._context.events.record(
            "sink_rejected", sink=self.name, view=self.sink.view, rows=rows, told=reason, file=str(place)
        )

    def _tell(self, mark: Mark) -> None:
        behind, since = 0, 0.0
        for feed, place in mark.places.items():
            newest = self._context.publications.last(feed.query)
            behind += max(0, newest - place.batch)
            if newest > place.batch:
                since = self._context.publications.published_at(feed.query, place.batch + 1) or since
        figures = {
            "view": self.sink.view,
            "kind": self.sink.kind,
            "promise": self.sink.promise,
            "deliveries": mark.delivered + 1,
            "rows": mark.sent,
            "backlog": behind,
            "backlog_since": since or None,
        }
        self._context.told(self.name, figures)
