"""What orders have released and what became of the other instances, published together; and where the lane goes on from that."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.control.policies.deadlines.debts import OwedWindow
from penstock.errors import CheckpointError
from penstock.spark.lanes.cuts import Reach
from penstock.spark.lanes.deadlines.following import ViewStands
from penstock.spark.lanes.deadlines.ledger import (
    ANSWERED,
    LateOutcome,
    Outcome,
    counts_of,
    late_counts,
    told_late,
    told_outcome,
    written_misses,
)
from penstock.spark.lanes.deadlines.publication_times import PublicationTimes
from penstock.spark.lanes.lane import LaneContext
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.kinds import misses_kind, view_kind
from penstock.spark.publication.publish import Published, Publisher
from penstock.spark.publication.staged import WrittenFile
from penstock.spark.results.window_rows import MadeResults
from penstock.spark.storage.codec import Codec
from penstock.spark.storage.deadlines import RegisteredDeadline
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.ledger_documents import StoredDocument
from penstock.spark.storage.offsets import REMEDY
from penstock.spark.storage.store_paths import StorePath, remove_folder

#: of a publication and of a reader's mark: how each view stands, by its number
_STANDS = "stands"
#: of a reader's mark: the last entry that whoever goes on need not follow: older ones hold tuples of windows that are answered late
_FOLLOWED = "followed"

_VIEW_STANDS = Codec(ViewStands)


@dataclass(slots=True)
class Judged:
    """What became of instances, before it is published.

    Attributes:
        outcomes: of each.
        released: the files of those that are released, each with the number of its view.
        late: what became of windows that were owed an answer.
        staging: the folders of orders, which go afterwards.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    released: list[tuple[int, WrittenFile]] = field(default_factory=list)
    late: list[LateOutcome] = field(default_factory=list)
    staging: list[StorePath] = field(default_factory=list)

    @property
    def has_news(self) -> bool:
        """Whether something has become of a window."""
        return bool(self.outcomes or self.late)

    def with_more(self, later: Judged) -> Judged:
        """These and later ones."""
        return Judged(
            self.outcomes + later.outcomes,
            self.released + later.released,
            self.late + later.late,
            self.staging + later.staging,
        )


@dataclass(frozen=True, slots=True)
class Settled:
    """What is published together.

    Attributes:
        judged: what became of instances.
        began: when that was judged, by the performance counter.
        reach: how far the logs were followed, by stream.
        stands: how views stand then, by their numbers.
        left: by stream the last entry that is needed no more, and the last one that is not to be followed again: those behind the
            first are needed for late answers alone.
        standing: what the status says of views, by their names.
    """

    judged: Judged
    began: float
    reach: Mapping[str, Reach]
    stands: Mapping[int, ViewStands]
    left: Mapping[str, tuple[int, int]]
    standing: Mapping[str, Mapping[str, Any]]

    def followed_by(self, later: Settled) -> Settled:
        """Both, as views stand with the later one."""
        return replace(later, judged=self.judged.with_more(later.judged), began=self.began)


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where the lane goes on.

    Attributes:
        reach: how far each log is answered.
        left: the last entry of each log that is needed no more.
        stands: how views stood, by their numbers; new ones are not in it.
    """

    reach: dict[str, Reach]
    left: dict[str, int]
    stands: dict[int, ViewStands]


def outcome_publisher(lane: str, context: LaneContext, views: Sequence[RegisteredDeadline]) -> Publisher:
    """Publishes results and misses of views with a deadline."""
    kinds = [
        kind
        for each in views
        for kind in (view_kind(each.number, each.definition.name), misses_kind(each.definition.name))
    ]
    return Publisher(
        context.layout,
        lane,
        kinds,
        owner=lane,
        failpoints="order_",
        passing=(_STANDS,),
        grace_seconds=context.settings.replaced_seconds,
        retention=context.retention,
    )


def resumed_from(
    lane: str,
    readers: Mapping[str, LogReader],
    newest: Published | None,
) -> Resumed:
    """Where a lane goes on.

    Args:
        lane: its name.
        readers: of its logs, by stream.
        newest: its newest publication.

    Raises:
        CheckpointError: what is said there cannot be read.
    """
    stands: dict[str, Any] = {} if newest is None else dict(newest.figures[_STANDS])
    reach: dict[str, Reach] = {}
    left: dict[str, int] = {}
    for stream, log in readers.items():
        mark = log.mark(lane)
        if mark is None:
            mark = log.join(lane)
        said = log.readers()[lane]
        stands |= said.get(_STANDS, {})
        reach[stream], left[stream] = Reach(said.get(_FOLLOWED, mark)), mark
    return Resumed(reach, left, {int(view): _read(lane, view, each) for view, each in stands.items()})


def marks_of(
    lane: str,
    readers: Mapping[str, LogReader],
    streams: Mapping[int, str],
    settled: Settled,
) -> dict[StoredDocument, dict[str, Any]]:
    """The marks that say which entries are needed no more: whoever goes on reads the others again.

    Args:
        lane: whose.
        readers: of its logs, by stream.
        streams: of its views, by their numbers.
        settled: what is published with them.
    """
    marks: dict[StoredDocument, dict[str, Any]] = {}
    for stream, (until, followed) in settled.left.items():
        own = {view: each for view, each in settled.stands.items() if streams[view] == stream}
        said = {_STANDS: _told(own), _FOLLOWED: followed}
        marks |= readers[stream].mark_document(lane, until, **said)
    return marks


class OutcomePublication:
    """Publishes what became of instances; one thread uses it at a time.

    Args:
        lane: the lane's name.
        publisher: of its results.
        views: by number.
        events: the run's.
        number: of the next publication.

    Attributes:
        number: of the next publication.
        times: from when an order is judged until its rows are visible, as publications took it.
        newest_seconds: likewise, of the newest one.
    """

    def __init__(
        self,
        lane: str,
        publisher: Publisher,
        views: Mapping[int, RegisteredDeadline],
        events: EventLog,
        number: int,
    ) -> None:
        self.number = number
        self.times = PublicationTimes()
        self.newest_seconds = 0.0
        self._lane = lane
        self._publisher = publisher
        self._views = views
        self._events = events

    def publish(
        self, settled: Settled, marks: Mapping[StoredDocument, Mapping[str, Any]]
    ) -> dict[str, dict[str, int]]:
        """Makes outcomes and what was released visible.

        Args:
            settled: what became of instances, and how views stand.
            marks: what the logs are told with it.

        Returns:
            By view with outcomes, how many of each, and `rows`, see `late_counts`.
        """
        number, judged = self.number, settled.judged
        store = self._publisher.begin(number)
        by_view: defaultdict[int, list[Outcome]] = defaultdict(list)
        for each in judged.outcomes:
            by_view[each.instance.view].append(each)
        late: defaultdict[str, list[LateOutcome]] = defaultdict(list)
        for answered in judged.late:
            late[answered.view].append(answered)
        made: defaultdict[int, list[WrittenFile]] = defaultdict(list)
        for view, file in judged.released:
            made[view].append(file)
        written: list[tuple[int, WrittenFile]] = []
        # a view that is gone may be owed answers, which are given up
        counts = {name: late_counts((), own) for name, own in late.items()}
        told: list[dict[str, Any]] = []
        for view, registered in self._views.items():
            name, own = registered.definition.name, by_view[view]
            if not own and not late[name]:
                continue
            rows = [*made[view], *(file for each in late[name] for file in each.files)]
            written += [(view, file) for file in (*rows, *written_misses(name, own, late[name]))]
            counts[name] = {**counts_of(own), "rows": sum(file.rows for file in rows)}
            if registered.view.late or late[name]:
                counts[name] |= late_counts(own if registered.view.late else (), late[name])
            told += [{**told_outcome(each), "view": name} for each in own]
        figures = {
            "batch": number,
            "until": {stream: asdict(each) for stream, each in settled.reach.items()},
            "views": counts,
            "outcomes": told,
            "late": [told_late(each) for each in judged.late],
            _STANDS: _told(settled.stands),
        }
        stored = store.put_all(0, written)
        files = [MadeResults(view, 0, [file]) for (view, _), file in zip(written, stored, strict=True)]
        failpoint("order_judged", number)
        if judged.late:
            failpoint("late_judged", number)
        self._publisher.publish(number, files, figures, puts=marks)
        self._tell_of_late({self._views[view].definition.name: own for view, own in by_view.items()})
        failpoint("order_published", number)
        if judged.late:
            failpoint("late_published", number)
        self.newest_seconds = time.perf_counter() - settled.began
        self.times.learn(len(judged.outcomes) + len(judged.late), self.newest_seconds)
        self.number += 1
        for folder in judged.staging:
            remove_folder(folder)
        self._tell_given_up(judged.late)
        return counts

    def _tell_of_late(self, outcomes: Mapping[str, Sequence[Outcome]]) -> None:
        """Tells of windows that were taken to be in time, and became visible behind their deadline."""
        now = time.time()
        for view, own in outcomes.items():
            late = [now - each.instance.deadline for each in own if each.outcome in ANSWERED]
            late = [seconds for seconds in late if seconds > 0]
            if late:
                self._events.record(
                    "released_late",
                    lane=self._lane,
                    view=view,
                    windows=len(late),
                    seconds=round(max(late), 4),
                )

    def _tell_given_up(self, late: Sequence[LateOutcome]) -> None:
        given_up: defaultdict[tuple[str, str], list[OwedWindow]] = defaultdict(list)
        for each in late:
            if each.given_up is not None:
                given_up[each.view, each.given_up].append(each.window)
        for (view, reason), windows in given_up.items():
            spans = [[each.start, each.end] for each in windows]
            self._events.record("late_abandoned", lane=self._lane, view=view, reason=reason, windows=spans)


def _read(lane: str, view: str, document: Any) -> ViewStands:
    try:
        return _VIEW_STANDS.value(document)
    except ValueError as error:
        raise CheckpointError(
            f"{lane}: cannot read the state of view number {view}: {error}; {REMEDY}"
        ) from error


def _told(stands: Mapping[int, ViewStands]) -> dict[str, Any]:
    return {str(view): _VIEW_STANDS.document(each) for view, each in stands.items()}
