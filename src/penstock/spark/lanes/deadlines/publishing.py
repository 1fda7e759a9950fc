"""What orders have released and what became of the other instances, published together; and where the lane goes on from that."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.control.policies.deadlines.debts import OwedWindow
from penstock.errors import CheckpointError
from penstock.spark.lanes.cuts import Reach, newest_reach, refuse_another_log
from penstock.spark.lanes.deadlines.following import ViewStands
from penstock.spark.lanes.deadlines.ledger import (
    RELEASED,
    LateOutcome,
    Outcome,
    counts_of,
    late_counts,
    told_late,
    told_outcome,
    written_misses,
)
from penstock.spark.lanes.lane import LaneContext
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.kinds import misses_kind, view_kind
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.publish import Publisher
from penstock.spark.publication.staged import WrittenFile
from penstock.spark.results.window_rows import MadeResults
from penstock.spark.storage.codec import Codec
from penstock.spark.storage.deadlines import RegisteredDeadline
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.ledger_documents import StoredDocument
from penstock.spark.storage.offsets import REMEDY
from penstock.spark.storage.store_paths import StorePath, remove_folder

#: what the last publication took counts for, in the time the next one is taken to take
_FADING = 0.5
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


class OutcomePublication:
    """Publishes what became of instances; the lane's thread owns it.

    Args:
        name: the lane's.
        context: the run's.
        views: the lane's.
        logs: of their streams, by name.

    Attributes:
        publisher: of the lane's results.
        number: of the next publication.
        seconds: from when an order is judged until its rows are visible, as publications took it lately.
        newest_seconds: likewise, of the newest one.
    """

    def __init__(
        self,
        name: str,
        context: LaneContext,
        views: Sequence[RegisteredDeadline],
        logs: Mapping[str, LogReader],
    ) -> None:
        self._name = name
        self._context = context
        self._views = {each.number: each for each in views}
        self._logs = logs
        kinds = [
            kind
            for each in views
            for kind in (view_kind(each.number, each.definition.name), misses_kind(each.definition.name))
        ]
        self.publisher = Publisher(
            context.layout,
            name,
            kinds,
            owner=name,
            failpoints="order_",
            passing=(_STANDS,),
            grace_seconds=context.settings.replaced_seconds,
        )
        self.number = 0
        # believed before the first time
        self.seconds = self.newest_seconds = 0.05

    def resume(self) -> Resumed:
        """Where what is published ends.

        Raises:
            CheckpointError: what was said there cannot be read, or the logs are others.
        """
        newest = newest_reach(read_published(self._context.layout, self._name).batches)
        self.number = 0 if newest is None else newest[0] + 1
        published = {} if newest is None else newest[1]
        figures = None if newest is None else self.publisher.published(newest[0])
        stands: dict[str, Any] = {} if figures is None else dict(figures.figures[_STANDS])
        reach: dict[str, Reach] = {}
        left: dict[str, int] = {}
        for stream, log in self._logs.items():
            if stream in published:
                refuse_another_log(self._name, stream, log, published[stream])
            mark = log.mark(self._name)
            if mark is None:
                mark = log.join(self._name)
            said = log.readers()[self._name]
            stands |= said.get(_STANDS, {})
            reach[stream], left[stream] = Reach(said.get(_FOLLOWED, mark)), mark
        return Resumed(reach, left, {int(view): self._read(view, each) for view, each in stands.items()})

    def publish(
        self,
        judged: Judged,
        began: float,
        reach: Mapping[str, Reach],
        stands: Mapping[int, ViewStands],
        marks: Mapping[StoredDocument, Mapping[str, Any]],
    ) -> dict[str, dict[str, int]]:
        """Makes outcomes and what was released visible.

        Args:
            judged: what became of instances.
            began: when that was judged, by the performance counter.
            reach: how far the logs were followed.
            stands: how views stand, by their numbers.
            marks: what the logs are told with it.

        Returns:
            By view with outcomes, how many of each, and `rows`, see `late_counts`.
        """
        number = self.number
        store = self.publisher.begin(number)
        by_view: defaultdict[int, list[Outcome]] = defaultdict(list)
        for each in judged.outcomes:
            by_view[each.instance.view].append(each)
        late: defaultdict[str, list[LateOutcome]] = defaultdict(list)
        for settled in judged.late:
            late[settled.view].append(settled)
        files: list[MadeResults] = []
        # a view that is gone may be owed answers, which are given up
        counts = {name: late_counts((), own) for name, own in late.items()}
        told: list[dict[str, Any]] = []
        for view, registered in self._views.items():
            name, own = registered.definition.name, by_view[view]
            if not own and not late[name]:
                continue
            made = [file for number_of, file in judged.released if number_of == view]
            made_late = [file for each in late[name] for file in each.files]
            misses = written_misses(name, own, late[name])
            for partition, written in enumerate((made, misses, made_late)):
                files.append(MadeResults(view, partition, store.put(view, partition, written)))
            counts[name] = {**counts_of(own), "rows": sum(file.rows for file in (*made, *made_late))}
            if registered.view.late or late[name]:
                counts[name] |= late_counts(own if registered.view.late else (), late[name])
            told += [{**told_outcome(each), "view": name} for each in own]
        figures = {
            "batch": number,
            "until": {stream: asdict(each) for stream, each in reach.items()},
            "views": counts,
            "outcomes": told,
            "late": [told_late(each) for each in judged.late],
            _STANDS: _told(stands),
        }
        failpoint("order_judged", number)
        if judged.late:
            failpoint("late_judged", number)
        self.publisher.publish(number, files, figures, puts=marks)
        self._context.published.tell()
        self._tell_of_late({self._views[view].definition.name: own for view, own in by_view.items()})
        failpoint("order_published", number)
        if judged.late:
            failpoint("late_published", number)
        self.newest_seconds = time.perf_counter() - began
        self.seconds += _FADING * (self.newest_seconds - self.seconds)
        self.number += 1
        for folder in judged.staging:
            remove_folder(folder)
        self._tell_given_up(judged.late)
        return counts

    def mark(
        self, stream: str, until: int, followed: int, stands: Mapping[int, ViewStands]
    ) -> dict[StoredDocument, dict[str, Any]]:
        """The mark that says which entries of a log are needed no more: whoever goes on reads the others again.

        Args:
            stream: the log's.
            until: the last such entry.
            followed: the last one that is not to be followed again; those behind `until` are needed for late answers alone.
            stands: how the views on it stand, by their numbers.
        """
        said = {_STANDS: _told(stands), _FOLLOWED: followed}
        return self._logs[stream].mark_document(self._name, until, **said)

    def compact(self) -> None:
        """Merges published files where there are many; see Publisher."""
        every = self._context.settings.compact_every_batches
        self.publisher.compact_if_due(self.number - 1, every, self._context.events)

    def _tell_of_late(self, outcomes: Mapping[str, Sequence[Outcome]]) -> None:
        """Tells of windows that were taken to be in time, and became visible behind their deadline."""
        now = time.time()
        for view, own in outcomes.items():
            late = [now - each.instance.deadline for each in own if each.outcome == RELEASED]
            late = [seconds for seconds in late if seconds > 0]
            if late:
                self._context.events.record(
                    "released_late",
                    lane=self._name,
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
            self._context.events.record(
                "late_abandoned", lane=self._name, view=view, reason=reason, windows=spans
            )

    def _read(self, view: str, document: Any) -> ViewStands:
        try:
            return _VIEW_STANDS.value(document)
        except ValueError as error:
            raise CheckpointError(
                f"{self._name}: cannot read the state of view number {view}: {error}; {REMEDY}"
            ) from error


def _told(stands: Mapping[int, ViewStands]) -> dict[str, Any]:
    return {str(view): _VIEW_STANDS.document(each) for view, each in stands.items()}
