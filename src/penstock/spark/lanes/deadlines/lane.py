"""The deadline lane: window instances of all views with a deadline, worked out in time or given up.

What is in the logs says which windows are created, and when; the clock says what becomes of them. Each is worked out by an order, a small
stateless Spark job, chosen by the policy across all views. What orders have released and what became of the other instances is
published together, so that a crash leaves each instance with one outcome or with none: of those with none, the ones that are overdue are
accounted at the next start, and the others are tried.

Source: Wu, Gu, Lyu, Yu; the policy is `control/policies/deadlines`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from penstock.control.events import DeadlineBound
from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.lanes.deadlines.deciding import Decisions
from penstock.spark.lanes.deadlines.explaining import explain_deadline
from penstock.spark.lanes.deadlines.failures import window_cause
from penstock.spark.lanes.deadlines.following import DemandTuples, FollowedView
from penstock.spark.lanes.deadlines.late import LateOrders
from penstock.spark.lanes.deadlines.publications import Publications
from penstock.spark.lanes.deadlines.publishing import (
    OutcomePublication,
    Resumed,
    Settled,
    marks_of,
    outcome_publisher,
    resumed_from,
)
from penstock.spark.lanes.deadlines.register import DEADLINE_LANE, DeadlineViews
from penstock.spark.lanes.deadlines.running import RunningOrders
from penstock.spark.lanes.deadlines.scheduling import Schedule
from penstock.spark.lanes.deadlines.working import ViewOrders
from penstock.spark.lanes.lane import Lane, LaneContext
from penstock.spark.log.followed import FollowedLog
from penstock.spark.log.stream_log import LogReader
from penstock.spark.recovery.causes import Cause
from penstock.spark.recovery.supervisor import refuse_ended
from penstock.spark.results.bound_views import stored_views
from penstock.spark.results.having import is_plain
from penstock.spark.sessions.slots import OrderSlots, order_slots, task_slots
from penstock.spark.storage.deadlines import DEADLINES_NAME, RegisteredDeadline
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.ledger_documents import commit
from penstock.spark.storage.store_paths import remove_folder
from penstock.sql.windows.bind import BoundWindow


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
        self._registered = {each.number: each for each in views.views}
        self._bound = {each.number: views.bound(each) for each in views.views}
        self._names = {each.definition.name: each.number for each in views.views}
        self._plans = {each.ingest.stream: each.ingest.plans for each in streams}
        self._slots = OrderSlots(context.spark)
        self.publisher = outcome_publisher(self.name, context, views.views)
        #: what may be cancelled, replaced as a whole
        self._jobs: tuple[RunningOrders, ...] = ()

    @property
    def views(self) -> Sequence[str]:
        """All views with a deadline."""
        return list(self._names)

    def explain(self) -> list[str]:
        """What each view computes, by when, and what it may lose."""
        policy = (
            f"{self.name}: views with a deadline, policy {self.context.settings.deadline_policy}; "
            f"orders take at most {order_slots(self.context.spark)} of {task_slots(self.context.spark)} task slots"
        )
        views = (
            explain_deadline(each.definition.name, each.stream, each.view)
            for each in self._registered.values()
        )
        return [policy, *(f"    {each}" for each in views)]

    def _halt(self) -> None:
        self.context.appended.tell()
        for running in self._jobs:
            running.cancel()

    def _attempt(self) -> None:
        with ExitStack() as held:
            schedule, publications = self._scheduled(held)
            while not self._stopping.is_set():
                seen = self.context.appended.count
                is_over = self._is_to_end or not self._is_fed
                if schedule.step():
                    continue
                if is_over and schedule.is_done(is_to_end=self._is_to_end):
                    break
                self.context.appended.wait(seen, schedule.pause())
        publications.check()

    def _scheduled(self, held: ExitStack) -> tuple[Schedule, Publications]:
        """Goes on where what is published ends; what is begun ends with `held`."""
        context = self.context
        for folder in context.layout.staging(DEADLINES_NAME, 0):
            remove_folder(folder.parent)
        newest = self._newest_published()
        number = 0 if newest is None else newest[0] + 1
        published = self.publisher.published(number - 1) if number else None
        resumed = resumed_from(self.name, self.readers, published)
        decisions = Decisions(context.settings.deadline_policy, self.name, context.events)
        # of this thread alone
        logs = {stream: FollowedLog(each.log) for stream, each in self.readers.items()}
        views = self._followed(logs, resumed, decisions)
        orders = ViewOrders(
            context, {number: (each, self._bound[number]) for number, each in self._registered.items()}
        )
        publication = OutcomePublication(self.name, self.publisher, self._registered, context.events, number)
        publications = Publications(
            publication, lambda settled: self._publish(publication, settled), context.appended.tell
        )
        held.callback(publications.close)
        running, beside = (
            RunningOrders(context.spark, self.name, most, orders.work, context.appended.tell)
            for most in (self._slots.now, lambda: max(1, self._slots.now() - 1))
        )
        self._jobs = running, beside
        held.callback(self._close_jobs)
        running.warm()
        late = self._owing(beside, orders, views, resumed)
        schedule = Schedule(
            self.name,
            context.events,
            logs,
            resumed.reach,
            views,
            decisions,
            orders,
            running,
            late,
            publications,
            self._cause,
        )
        return schedule, publications

    def _close_jobs(self) -> None:
        for each in self._jobs:
            each.close()
        self._jobs = ()

    def _followed(
        self, logs: Mapping[str, LogReader], resumed: Resumed, decisions: Decisions
    ) -> dict[int, FollowedView]:
        """The views as they stood; the policy knows them."""
        views: dict[int, FollowedView] = {}
        tuples: dict[tuple[str, int], DemandTuples] = {}
        for number, each in self._registered.items():
            stands = resumed.stands.get(number)
            demand = self._plans[each.stream].demand(each.demand)
            views[number] = FollowedView(
                each,
                self._bound[number].plan,
                logs[each.stream],
                tuples.setdefault((each.stream, demand), DemandTuples(logs[each.stream], demand)),
                _first_batch(self._plans[each.stream], demand),
                stands,
                resumed.left[each.stream],
                self.context.settings,
            )
            name = each.definition.name
            decisions.handle(DeadlineBound(name, 0, each.query, _kin(each, self._bound[number])))
            if stands is not None and stands.memory is not None:
                decisions.policy.recall(name, stands.memory)
        return views

    def _owing(
        self,
        beside: RunningOrders,
        orders: ViewOrders,
        views: Mapping[int, FollowedView],
        resumed: Resumed,
    ) -> LateOrders:
        """What is owed since earlier runs, that of views that are gone aside, which is given up."""
        owed = {number: stands.owed for number, stands in resumed.stands.items()}
        own = {number: windows for number, windows in owed.items() if number in views}
        late = LateOrders(beside, orders, views, self.context.settings.late_windows, own)
        for number in owed.keys() - own.keys():
            if owed[number]:
                (name,) = stored_views(self.context.layout, DEADLINES_NAME, number)
                late.forget(name, owed[number])
        return late

    def _cause(self, error: BaseException) -> Cause:
        """Why a job failed, where that is the matter of its window; raises what is not."""
        refuse_ended(self.context.spark)
        if self._stopping.is_set():
            raise error
        return window_cause(error)

    def _publish(self, publication: OutcomePublication, settled: Settled) -> None:
        """Makes what is settled visible, and says which entries are needed no more."""
        number, streams = publication.number, {view: each.stream for view, each in self._registered.items()}

        marks = marks_of(self.name, self.readers, streams, settled)
        if not settled.judged.has_news:
            commit(marks)
            return
        counts = publication.publish(settled, marks)
        self.context.published.tell()
        self._tell(number, settled, counts, publication.newest_seconds)
        self.retries.succeeded()
        failpoint("order_marked", number)
        self._compact(number)

    def _tell(
        self, number: int, settled: Settled, counts: Mapping[str, Mapping[str, int]], seconds: float
    ) -> None:
        streams = {stream: reach.entry for stream, reach in settled.reach.items()}
        self._told = {"cut": number, "streams": streams, "standing": settled.standing}
        self.context.events.record(
            "cut",
            lane=self.name,
            cut=number,
            streams=streams,
            figures={
                "views": counts,
                "standing": {name: each for name, each in settled.standing.items() if name in counts},
            },
            publish_seconds=round(seconds, 4),
        )


def _kin(registered: RegisteredDeadline, bound: BoundWindow) -> str:
    """What the orders of a view compute: those of views with the same are likely to cost the same for each tuple."""
    if registered.view.calls:
        return ", ".join(sorted(call.name.upper() for call in registered.view.calls))
    return "built-in aggregates" if is_plain(bound) else "built-in aggregates, rows made by Spark"


def _first_batch(plans: Any, demand: int) -> Callable[[], int | None]:
    return lambda: plans.begun(demand)
