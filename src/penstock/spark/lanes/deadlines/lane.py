"""The deadline lane: window instances of all views with a deadline, worked out in time or given up.

What is in the logs says which windows are created, and when; the clock says what becomes of them. Each is worked out by an order, a small
stateless Spark job, chosen by the policy across all views. What orders have released and what became of the other instances is
published together, so that a crash leaves each instance with one outcome or with none: of those with none, the ones that are overdue are
accounted at the next start, and the others are tried.

Source: Wu, Gu, Lyu, Yu; the policy is `control/policies/deadlines`.
"""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.control.actions import (
    AdjustPrediction,
    GiveUpInstance,
    RaiseOverload,
    ReportViolation,
    StartOrder,
)
from penstock.control.events import (
    DeadlineBound,
    Event,
    InstanceCreated,
    OrderAbandoned,
    OrderEnded,
    OrderFailed,
    ProcessorsIdle,
)
from penstock.control.policies.deadlines.choices import chosen_policy
from penstock.errors import CheckpointError
from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.lanes.cuts import Reach, newest_reach, refuse_another_log
from penstock.spark.lanes.deadlines.explaining import explain_deadline
from penstock.spark.lanes.deadlines.following import FollowedView, ViewStands
from penstock.spark.lanes.deadlines.ledger import (
    FAILED,
    MISSED,
    RELEASED,
    SHED,
    Outcome,
    counts_of,
    staged_misses,
    told_outcome,
)
from penstock.spark.lanes.deadlines.orders import FAILED as USER_FAILED
from penstock.spark.lanes.deadlines.orders import OVER
from penstock.spark.lanes.deadlines.register import DEADLINE_LANE, DeadlineViews
from penstock.spark.lanes.deadlines.running import EndedOrder, RunningOrders
from penstock.spark.lanes.deadlines.working import ViewOrders
from penstock.spark.lanes.lane import Lane, LaneContext
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.kinds import misses_kind, view_kind
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.publish import Publisher
from penstock.spark.recovery.causes import cause_of
from penstock.spark.recovery.supervisor import refuse_ended
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.results.window_rows import MadeResults
from penstock.spark.storage.deadlines import DEADLINES_NAME
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.files import make_folder

#: the longest time between two looks at the logs and at the clock, seconds
_LOOK_SECONDS = 0.1
#: entries of a log that are followed at once
_MOST_ENTRIES = 64
#: an order whose result will be late, but is carried on from, is abandoned after so many deadlines
_LATE_DEADLINES = 10
#: what the last publication took counts for, in the time the next one is taken to take
_FADING = 0.5
#: of a publication: how far each view has come
_VIEWS = "stands"
#: of a reader's mark: likewise, and the last publication whose rows were handed to sinks
_STANDS, _PUBLISHED = "stands", "published"
#: the user is told of a view when so many windows have failed one after the other
_FAILURES = 3


@dataclass(slots=True)
class _Judged:
    """What became of instances, before it is published.

    Attributes:
        outcomes: of each.
        released: the files of those that are released.
        staging: the folders of orders, which go afterwards.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    released: list[MadeResults] = field(default_factory=list)
    staging: list[Path] = field(default_factory=list)


class DeadlineLane(Lane):
    """Answers all views with a deadline.

    Args:
        views: the run's.
        context: the run's.
        streams: the keepers of the logs of their streams, which have been asked for their tuples.
    """

    part = "deadlines"

    def __init__(self, views: DeadlineViews, context: LaneContext, streams: Sequence[LogKeeper]) -> None:
        super().__init__(DEADLINE_LANE, context, streams)
        self.registered = views.views
        self._bound = {each.number: views.bound(each) for each in self.registered}
        self._logs = {each.stream: LogReader(context.layout.log(each.stream)) for each in streams}
        self._plans = {each.ingest.stream: each.ingest.plans for each in streams}
        kinds = [
            kind
            for each in self.registered
            for kind in (view_kind(each.number, each.definition.name), misses_kind(each.definition.name))
        ]
        self.publisher = Publisher(context.layout, self.name, kinds, owner=self.name, failpoints="order_")
        self._orders = ViewOrders(
            context, {each.number: (each, self._bound[each.number]) for each in self.registered}
        )
        self._names = {each.definition.name: each.number for each in self.registered}
        self._cores = context.spark.sparkContext.defaultParallelism
        self._running: RunningOrders | None = None
        #: when what the policy is told has happened, seconds since the epoch
        self._now = time.time()
        #: from when an order is judged until its rows are visible; believed before the first time
        self._publish_seconds = 0.05
        #: entries that were followed since it was last said which are needed
        self._unmarked = 0
        #: numbers of the views whose states could not be carried, which is told once
        self._uncarried: set[int] = set()
        #: replaced as a whole by the lane's thread
        self._told: Mapping[str, Any] = {}
        # what `started` looks for
        make_folder(context.layout.cuts(self.name))

    @property
    def reader(self) -> str:
        """The lane's name."""
        return self.name

    def recount(self, status: StatusFile) -> None:
        """What became of instances."""
        status.begin_lane(self.name)

    def status(self) -> dict[str, Any]:
        """How each view stands, by the lane's name."""
        return {"lanes": {self.name: {"active": self.active, **self._told}}}

    def explain(self) -> list[str]:
        """What each view computes, by when, and what it may lose."""
        policy = f"{self.name}: views with a deadline, policy {self.context.settings.deadline_policy}"
        views = (explain_deadline(each.definition.name, each.stream, each.query) for each in self.registered)
        return [policy, *(f"    {each}" for each in views)]

    def _details(self) -> dict[str, Any]:
        return {"lane": DEADLINE_LANE}

    def _halt(self) -> None:
        self.context.appended.tell()
        running = self._running
        if running is not None:
            running.cancel()

    def _attempt(self) -> None:
        self._begin()
        self._running = running = RunningOrders(
            self.context.spark, self.name, self._cores, self.context.appended.tell
        )
        try:
            while not self._stopping.is_set():
                seen = self.context.appended.count
                is_over = self._is_to_end or not self._is_fed
                is_behind = self._follow()
                began = time.perf_counter()
                judged = self._judged(running.ended())
                judged.outcomes += self._schedule(running)
                if judged.outcomes:
                    self._publish(judged, began)
                elif self._unmarked >= _MOST_ENTRIES:
                    self._mark()
                elif not is_behind:
                    if (
                        is_over
                        and running.idle == self._cores
                        and not any(each.open for each in self._views.values())
                    ):
                        return
                    self.context.appended.wait(seen, self._pause(running))
        finally:
            running.close()
            self._running = None

    def _pause(self, running: RunningOrders) -> float:
        now = time.time()
        ends = [each.deadline for view in self._views.values() for each in view.open.values()]
        if running.next_end is not None:
            ends.append(running.next_end)
        later = [each - now for each in ends if each > now]
        return min([_LOOK_SECONDS, *later])

    def _begin(self) -> None:
        """Goes on where what is published ends."""
        shutil.rmtree(self.context.layout.staging(DEADLINES_NAME, 0).parent, ignore_errors=True)
        newest = newest_reach(read_published(self.context.layout, self.name).batches)
        self._number = 0 if newest is None else newest[0] + 1
        published = {} if newest is None else newest[1]
        stands = self._published_stands(newest)
        self._reach: dict[str, Reach] = {}
        handed_over = -1 if newest is None else newest[0]
        for stream, log in self._logs.items():
            if stream in published:
                refuse_another_log(self.name, stream, log, published[stream])
            mark = log.mark(self.name)
            if mark is None:
                mark = log.join(self.name)
            said = log.readers()[self.name]
            if said.get(_PUBLISHED, -1) == self._number - 1:
                stands |= said.get(_STANDS, {})
            else:
                handed_over = min(handed_over, said.get(_PUBLISHED, handed_over))
            self._reach[stream] = Reach(mark)
        self._hand_over_again(handed_over)
        self._policy = chosen_policy(self.context.settings.deadline_policy, lambda: self._now)
        self._views: dict[int, FollowedView] = {}
        for each in self.registered:
            known = stands.get(str(each.number))
            bound = self._bound[each.number]
            demand = self._plans[each.stream].demand(each.demand)
            self._views[each.number] = FollowedView(
                each,
                bound.plan.windows,
                self._logs[each.stream],
                demand,
                _first_batch(self._plans[each.stream], demand),
                None
                if known is None
                else ViewStands(known["settled"], known["floor"], tuple(known["beforehand"])),
                self._reach[each.stream].entry,
            )
            self._handle(DeadlineBound(each.definition.name, 0, each.query))

    def _published_stands(self, newest: tuple[int, Any] | None) -> dict[str, Any]:
        """How far each view has come with the newest publication, by its number."""
        figures = None if newest is None else self.publisher.published(newest[0])
        return {} if figures is None else dict(figures.figures[_VIEWS])

    def _hand_over_again(self, last: int) -> None:
        """Hands the newest publication to the sinks, where that is not known to have been done.

        Args:
            last: the number of the last one that is.
        """
        known = self.publisher.published(self._number - 1) if last < self._number - 1 else None
        if known is not None and known.files is not None:
            self._hand_over(self._number - 1, known.files)

    def _follow(self) -> bool:
        """Takes in what is new in the logs; whether there may be more."""
        is_behind = False
        for stream, log in self._logs.items():
            before = self._reach[stream].entry
            until = log.ahead(f"reader {self.name} of stream {stream}", before, _MOST_ENTRIES)
            for entry in log.between(before, until):
                for view in self._views.values():
                    if view.registered.stream != stream:
                        continue
                    for instance, span in view.take_in(entry):
                        self._handle(InstanceCreated(view.name, 0, instance.end, instance.created, span))
                self._reach[stream] = Reach.at(entry)
                self._unmarked += 1
            is_behind |= until > before
        return is_behind

    def _handle(self, event: Event) -> list[StartOrder | GiveUpInstance]:
        """Tells the policy; what it says of its own accord is told."""
        actions = self._policy.handle(event)
        found: list[StartOrder | GiveUpInstance] = []
        for each in actions:
            if isinstance(each, StartOrder | GiveUpInstance):
                found.append(each)
            else:
                self.context.events.record(
                    {
                        ReportViolation: "losses_exceeded",
                        AdjustPrediction: "prediction_adjusted",
                        RaiseOverload: "overloaded",
                    }[type(each)],
                    lane=self.name,
                    view=each.stream,
                    reason=each.reason,
                    figures=dict(each.figures),
                )
        return found

    def _schedule(self, running: RunningOrders) -> list[Outcome]:
        """Begins orders, and gives instances up."""
        self._now = max(self._now, time.time())
        outcomes: list[Outcome] = []
        for action in self._handle(ProcessorsIdle(running.idle)):
            view = self._views[self._names[action.stream]]
            instance = view.open[action.number]
            predicted = _number(action.figures.get("predicted_seconds"))
            if isinstance(action, GiveUpInstance):
                del view.open[action.number]
                outcomes.append(
                    Outcome(instance, SHED if action.shed else MISSED, predicted, None, action.reason)
                )
                continue
            until = instance.deadline if action.firm else self._now + _LATE_DEADLINES * view.query.deadline
            failpoint("order_started", self._number)
            running.start(instance, action, until, self._orders.work(view, instance, action, until))
        return outcomes

    def _judged(self, ended: Sequence[EndedOrder]) -> _Judged:
        """What became of the instances of orders, and what is published of them."""
        judged = _Judged()
        for each in ended:
            view, instance = self._views[each.order.instance.view], each.order.instance
            # visible is what has been published
            self._now = max(self._now, time.time() + self._publish_seconds)
            seconds = each.ended - each.order.began
            if each.worked is not None:
                judged.staging.append(each.worked.staging)
            told, reason = self._came_to(view, each, seconds)
            if told == RELEASED and each.worked is not None:
                judged.released.append(MadeResults(instance.view, 0, each.worked.files))
            del view.open[instance.end]
            predicted = _number(each.order.action.figures.get("predicted_seconds"))
            judged.outcomes.append(Outcome(instance, told, predicted, seconds, reason))
        return judged

    def _came_to(self, view: FollowedView, ended: EndedOrder, seconds: float) -> tuple[str, str | None]:
        """What became of the instance of an order, and why it is not released; the policy is told."""
        instance, worked = ended.order.instance, ended.worked
        error = None if ended.error is None else self._told_error(ended.error)
        if worked is not None and worked.report.outcome == USER_FAILED:
            error = worked.report.error
        if error is not None:
            self._handle(OrderFailed(view.name, 0, instance.end, error))
            view.failures += 1
            if view.failures == _FAILURES:
                self.context.events.record("windows_failing", lane=self.name, view=view.name, error=error)
            return FAILED, error
        view.failures = 0
        if worked is None or worked.report.outcome == OVER:
            self._handle(OrderAbandoned(view.name, 0, instance.end, seconds))
            return MISSED, "its deadline passed while it was worked on"
        report = worked.report
        is_carried = self._orders.carry(view, instance, report)
        if report.uncarried and instance.view not in self._uncarried:
            self._uncarried.add(instance.view)
            self.context.events.record(
                "states_not_carried", lane=self.name, view=view.name, reason=report.uncarried
            )
        whole = seconds + self._publish_seconds
        parts = report.adding_seconds, report.removing_seconds
        self._handle(OrderEnded(view.name, 0, instance.end, whole, *parts, report.work, is_carried))
        if self._now > instance.deadline:
            return MISSED, f"it was worked out {self._now - instance.deadline:.3f} s after its deadline"
        return RELEASED, None

    def _told_error(self, error: BaseException) -> str:
        """What a job raised, where that is the matter of its window alone: a worker that the user's code has ended."""
        refuse_ended(self.context.spark)
        if self._stopping.is_set() or isinstance(error, CheckpointError | OSError):
            raise error
        return cause_of(error).told

    def _publish(self, judged: _Judged, began: float) -> None:
        """Makes outcomes and what was released visible.

        Args:
            judged: what became of instances.
            began: when that was judged, by the performance counter.
        """
        number, staging = self._number, self.context.layout.staging(self.name, self._number)
        by_view: defaultdict[int, list[Outcome]] = defaultdict(list)
        for each in judged.outcomes:
            by_view[each.instance.view].append(each)
        files = list(judged.released)
        counts: dict[str, dict[str, int]] = {}
        told: list[dict[str, Any]] = []
        for view, own in by_view.items():
            name = self._views[view].name
            files += staged_misses(name, view, own, staging)
            rows = sum(file.rows for each in judged.released if each.job == view for file in each.files)
            counts[name] = {**counts_of(own), "rows": rows}
            told += [{"view": name, **told_outcome(each, self._policy.standing(name))} for each in own]
        figures = {
            "batch": number,
            "until": {stream: asdict(reach) for stream, reach in self._reach.items()},
            "views": counts,
            "outcomes": told,
            _VIEWS: dict(self._stands()),
        }
        failpoint("order_judged", number)
        published = self.publisher.publish(number, files, figures)
        failpoint("order_published", number)
        seconds = time.perf_counter() - began
        self._publish_seconds += _FADING * (seconds - self._publish_seconds)
        self._number += 1
        self.retries.succeeded()
        self._tell(number, counts, seconds)
        for folder in judged.staging:
            shutil.rmtree(folder, ignore_errors=True)
        self._hand_over(number, published)
        self._mark()
        failpoint("order_marked", number)
        self.publisher.compact_if_due(
            number, self.context.settings.compact_every_batches, self.context.events
        )

    def _hand_over(self, number: int, files: Sequence[Mapping[str, Any]]) -> None:
        """Hands what was released to the sinks of its views."""
        for sink in self.context.sinks():
            changes = self._orders.rows(sink.view, number, files)
            if changes is not None:
                sink.take(changes, number)

    def _stands(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, view in self._views.items():
            if (stands := view.stands) is not None:
                yield str(number), asdict(stands)

    def _mark(self) -> None:
        """Says which entries are needed no more: whoever goes on reads the others again."""
        stands = dict(self._stands())
        for stream, log in self._logs.items():
            until = self._reach[stream].entry
            views = [each for each in self._views.values() if each.registered.stream == stream]
            needed = min((each.first_needed(until) for each in views), default=until + 1)
            own = {str(each.registered.number) for each in views}
            told = {name: each for name, each in stands.items() if name in own}
            log.put_mark(self.name, needed - 1, **{_STANDS: told, _PUBLISHED: self._number - 1})
            for each in views:
                each.kept_after = needed - 1
        self._unmarked = 0

    def _tell(self, number: int, counts: Mapping[str, Mapping[str, int]], seconds: float) -> None:
        streams = {stream: reach.entry for stream, reach in self._reach.items()}
        self._told = {"cut": number, "streams": streams, "standing": dict(self._standings())}
        self.context.events.record(
            "cut",
            lane=self.name,
            cut=number,
            streams=streams,
            figures={"views": counts, "standing": dict(self._standings())},
            publish_seconds=round(seconds, 4),
        )

    def _standings(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for name in self._names:
            standing = self._policy.standing(name)
            found = asdict(standing)
            del found["outcomes"]
            yield name, found


def _first_batch(plans: Any, demand: int) -> Callable[[], int | None]:
    return lambda: plans.begun(demand)


def _number(value: object) -> float | None:
    return value if isinstance(value, float) else None
