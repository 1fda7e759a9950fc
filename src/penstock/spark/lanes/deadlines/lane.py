"""The deadline lane: window instances of all views with a deadline, worked out in time or given up.

What is in the logs says which windows are created, and when; the clock says what becomes of them. Each is worked out by an order, a small
stateless Spark job, chosen by the policy across all views. What orders have released and what became of the other instances is
published together, so that a crash leaves each instance with one outcome or with none: of those with none, the ones that are overdue are
accounted at the next start, and the others are tried.

Source: Wu, Gu, Lyu, Yu; the policy is `control/policies/deadlines`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
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
from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.lanes.cuts import Reach
from penstock.spark.lanes.deadlines.explaining import explain_deadline
from penstock.spark.lanes.deadlines.failures import FailedWindows, window_cause
from penstock.spark.lanes.deadlines.following import FollowedView, ViewStands
from penstock.spark.lanes.deadlines.late import LateOrders
from penstock.spark.lanes.deadlines.ledger import FAILED, MISSED, RELEASED, SHED, Outcome
from penstock.spark.lanes.deadlines.orders import FAILED as USER_FAILED
from penstock.spark.lanes.deadlines.orders import OVER
from penstock.spark.lanes.deadlines.publishing import Judged, OutcomePublication, Resumed
from penstock.spark.lanes.deadlines.register import DEADLINE_LANE, DeadlineViews
from penstock.spark.lanes.deadlines.running import EndedOrder, RunningOrders
from penstock.spark.lanes.deadlines.working import ViewOrders
from penstock.spark.lanes.lane import Lane, LaneContext
from penstock.spark.log.stream_log import LogReader
from penstock.spark.recovery.causes import Cause
from penstock.spark.recovery.supervisor import refuse_ended
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.results.bound_views import stored_views
from penstock.spark.storage.deadlines import DEADLINES_NAME
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.formats import LANE
from penstock.spark.storage.ledger_documents import StoredDocument, commit
from penstock.spark.storage.store_paths import remove_folder

#: the longest time between two looks at the logs and at the clock, seconds
_LOOK_SECONDS = 0.1
#: entries of a log that are followed at once
_MOST_ENTRIES = 64
#: an order whose result will be late, but is carried on from, is abandoned after so many deadlines
_LATE_DEADLINES = 10
#: a clock that goes back by more than this was set
_SET_BACK_SECONDS = 1.0


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
        self._orders = ViewOrders(
            context, {each.number: (each, self._bound[each.number]) for each in self.registered}
        )
        self._publication = OutcomePublication(self.name, context, self.registered, self._logs)
        self.publisher = self._publication.publisher
        self._names = {each.definition.name: each.number for each in self.registered}
        self._cores = context.spark.sparkContext.defaultParallelism
        #: what may be cancelled, replaced as a whole
        self._jobs: tuple[RunningOrders, ...] = ()
        #: when what the policy is told has happened, seconds since the epoch
        self._now = time.time()
        #: the machine's clock as it was last believed
        self._heard = self._now
        #: entries that were followed since it was last said which are needed
        self._unmarked = 0
        #: numbers of the views whose states could not be carried, which is told once
        self._uncarried: set[int] = set()
        self._failures = FailedWindows(self.name, context.events)
        #: replaced as a whole by the lane's thread
        self._told: Mapping[str, Any] = {}
        LANE.put(context.layout.lanes[self.name], {})

    @property
    def reader(self) -> str:
        """The lane's name."""
        return self.name

    @property
    def views(self) -> Sequence[str]:
        """All views with a deadline."""
        return list(self._names)

    def recount(self, status: StatusFile) -> None:
        """What became of instances."""
        status.begin_lane(self.name)

    def status(self) -> dict[str, Any]:
        """How each view stands, by the lane's name."""
        return {"lanes": {self.name: {"active": self.active, **self._told}}}

    def explain(self) -> list[str]:
        """What each view computes, by when, and what it may lose."""
        policy = f"{self.name}: views with a deadline, policy {self.context.settings.deadline_policy}"
        views = (explain_deadline(each.definition.name, each.stream, each.view) for each in self.registered)
        return [policy, *(f"    {each}" for each in views)]

    def _halt(self) -> None:
        self.context.appended.tell()
        for running in self._jobs:
            running.cancel()

    def _attempt(self) -> None:
        resumed = self._begin()
        running, beside = (
            RunningOrders(self.context.spark, self.name, most, self.context.appended.tell)
            for most in (self._cores, max(1, self._cores - 1))
        )
        self._jobs = running, beside
        self._late = self._owing(beside, resumed)
        try:
            while not self._stopping.is_set():
                seen = self.context.appended.count
                is_over = self._is_to_end or not self._is_fed
                is_behind = self._follow()
                began = time.perf_counter()
                judged = self._judged(running.ended())
                judged.outcomes += self._schedule(running)
                self._late.give_way(running.idle)
                self._late.hear(self._cause)
                is_open = any(each.open for each in self._views.values())
                # what is late anyway is not published in the way of what is not
                if judged.outcomes or (self._late.has_news and not is_open):
                    self._publish(judged, began)
                elif self._unmarked >= _MOST_ENTRIES:
                    commit(self._marks(self._stands()))
                elif not is_behind:
                    self._late.begin(running.idle, self._reach, self._publication.number)
                    if (
                        is_over
                        and running.idle == self._cores
                        and not is_open
                        and not (self._is_to_end and self._late.count)
                    ):
                        return
                    self.context.appended.wait(seen, self._pause())
        finally:
            for each in self._jobs:
                each.close()
            self._jobs = ()

    def _pause(self) -> float:
        now = time.time()
        ends = [each.deadline for view in self._views.values() for each in view.open.values()]
        ends += [each.next_end for each in self._jobs if each.next_end is not None]
        later = [each - now for each in ends if each > now]
        return min([_LOOK_SECONDS, *later])

    def _begin(self) -> Resumed:
        """Goes on where what is published ends."""
        for folder in self.context.layout.staging(DEADLINES_NAME, 0):
            remove_folder(folder.parent)
        resumed = self._publication.resume()
        self._reach = resumed.reach
        self._policy = chosen_policy(self.context.settings.deadline_policy, lambda: self._now)
        self._views: dict[int, FollowedView] = {}
        for each in self.registered:
            stands = resumed.stands.get(each.number)
            demand = self._plans[each.stream].demand(each.demand)
            self._views[each.number] = FollowedView(
                each,
                self._bound[each.number].plan,
                self._logs[each.stream],
                demand,
                _first_batch(self._plans[each.stream], demand),
                stands,
                resumed.left[each.stream],
                self.context.settings,
            )
            name = each.definition.name
            self._handle(DeadlineBound(name, 0, each.query))
            if stands is not None and stands.memory is not None:
                self._policy.recall(name, stands.memory)
        return resumed

    def _owing(self, beside: RunningOrders, resumed: Resumed) -> LateOrders:
        """What is owed since earlier runs, that of views that are gone aside, which is given up."""
        owed = {number: stands.owed for number, stands in resumed.stands.items()}
        own = {number: windows for number, windows in owed.items() if number in self._views}
        late = LateOrders(beside, self._orders, self._views, self.context.settings.late_windows, own)
        for number in owed.keys() - own.keys():
            if owed[number]:
                (name,) = stored_views(self.context.layout, DEADLINES_NAME, number)
                late.forget(name, owed[number])
        return late

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

    def _pass_time(self, ahead: float) -> None:
        """Tells the policy's clock what time it is, or will be in so many seconds: it goes back where the machine's was set back alone."""
        now = time.time()
        if now > self._heard or now < self._heard - _SET_BACK_SECONDS:
            self._heard = now
        self._now = self._heard + ahead

    def _schedule(self, running: RunningOrders) -> list[Outcome]:
        """Begins orders, and gives instances up."""
        self._pass_time(0.0)
        outcomes: list[Outcome] = []
        for action in self._handle(ProcessorsIdle(running.idle)):
            view = self._views[self._names[action.stream]]
            instance = view.open[action.number]
            if isinstance(action, GiveUpInstance):
                del view.open[action.number]
                told = SHED if action.shed else MISSED
                outcomes.append(Outcome(instance, told, action.figures, None, action.reason))
                continue
            until = instance.deadline if action.firm else self._now + _LATE_DEADLINES * view.query.deadline
            failpoint("order_started", self._publication.number)
            running.start(instance, action.figures, until, self._orders.work(view, instance, action, until))
        return outcomes

    def _judged(self, ended: Sequence[EndedOrder]) -> Judged:
        """What became of the instances of orders, and what is published of them."""
        judged = Judged()
        for each in ended:
            view, instance = self._views[each.order.instance.view], each.order.instance
            # visible is what has been published
            self._pass_time(self._publication.seconds)
            seconds = each.ended - each.order.began
            if each.worked is not None:
                judged.staging.append(each.worked.staging)
            told, reason = self._came_to(view, each, seconds)
            if told == RELEASED and each.worked is not None:
                judged.released += [(instance.view, file) for file in each.worked.files]
            del view.open[instance.end]
            judged.outcomes.append(Outcome(instance, told, each.order.decided, seconds, reason))
        return judged

    def _came_to(self, view: FollowedView, ended: EndedOrder, seconds: float) -> tuple[str, str | None]:
        """What became of the instance of an order, and why it is not released; the policy is told."""
        instance, worked = ended.order.instance, ended.worked
        error = None if ended.error is None else self._cause(ended.error).told
        if worked is not None and worked.report.outcome == USER_FAILED:
            error = worked.report.error
        if error is not None:
            self._handle(OrderFailed(view.name, 0, instance.end, error))
            self._failures.failed(view.name, error)
            return FAILED, error
        self._failures.worked(view.name)
        if worked is None or worked.report.outcome == OVER:
            self._handle(OrderAbandoned(view.name, 0, instance.end, seconds))
            return MISSED, "its deadline passed while Penstock computed it"
        report = worked.report
        is_carried = self._orders.carry(view, instance, report)
        if report.uncarried and instance.view not in self._uncarried:
            self._uncarried.add(instance.view)
            self.context.events.record(
                "states_not_carried", lane=self.name, view=view.name, reason=report.uncarried
            )
        # with what it waited for the lane, and what its publication will take
        whole = max(seconds, self._now - ended.order.began)
        parts = report.adding_seconds, report.removing_seconds
        self._handle(OrderEnded(view.name, 0, instance.end, whole, *parts, report.work, is_carried))
        if self._now > instance.deadline:
            return MISSED, f"it was finished {self._now - instance.deadline:.3f} s after its deadline"
        return RELEASED, None

    def _cause(self, error: BaseException) -> Cause:
        """Why a job failed, where that is the matter of its window; raises what is not."""
        refuse_ended(self.context.spark)
        if self._stopping.is_set():
            raise error
        return window_cause(error)

    def _publish(self, judged: Judged, began: float) -> None:
        """Makes outcomes and what was released visible.

        Args:
            judged: what became of instances.
            began: when that was judged, by the performance counter.
        """
        publication, number = self._publication, self._publication.number
        self._late.settle(judged)
        stands = self._stands()
        marks = self._marks(stands)
        counts = publication.publish(judged, began, self._reach, stands, marks)
        self._tell(number, counts)
        self.retries.succeeded()
        failpoint("order_marked", number)
        publication.compact()

    def _stands(self) -> dict[int, ViewStands]:
        return {
            number: replace(stands, memory=self._policy.memory(view.name), owed=self._late.owed(number))
            for number, view in self._views.items()
            if (stands := view.stands) is not None
        }

    def _marks(self, stands: Mapping[int, ViewStands]) -> dict[StoredDocument, dict[str, Any]]:
        """The marks: which entries are needed no more, and how views stand. Whoever goes on reads the others again.

        Args:
            stands: how views stand, by their numbers.
        """
        marks: dict[StoredDocument, dict[str, Any]] = {}
        for stream, reach in self._reach.items():
            views = [each for each in self._views.values() if each.registered.stream == stream]
            needed = min((each.first_needed(reach.entry) for each in views), default=reach.entry + 1)
            oldest = self._late.oldest(views)
            left = needed if oldest is None else min(needed, views[0].first_holding(oldest, reach.entry))
            own = {each.registered.number for each in views}
            told = {number: each for number, each in stands.items() if number in own}
            marks |= self._publication.mark(stream, left - 1, needed - 1, told)
            for each in views:
                each.kept_after = left - 1
        self._unmarked = 0
        return marks

    def _tell(self, number: int, counts: Mapping[str, Mapping[str, int]]) -> None:
        streams = {stream: reach.entry for stream, reach in self._reach.items()}
        standing = {name: self._standing(name) for name in self._names}
        self._told = {"cut": number, "streams": streams, "standing": standing}
        self.context.events.record(
            "cut",
            lane=self.name,
            cut=number,
            streams=streams,
            figures={
                "views": counts,
                "standing": {name: each for name, each in standing.items() if name in counts},
            },
            publish_seconds=round(self._publication.newest_seconds, 4),
        )

    def _standing(self, view: str) -> dict[str, Any]:
        found = asdict(self._policy.standing(view))
        del found["outcomes"]
        slack = self._views[self._names[view]].slack
        if slack is not None:
            found |= {"slack": slack.slack, "promised": slack.promised, **slack.figures}
        return found


def _first_batch(plans: Any, demand: int) -> Callable[[], int | None]:
    return lambda: plans.begun(demand)
