"""What waits, what runs and what is owed, from one start of the deadline lane to its end or failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from penstock.control.actions import GiveUpInstance, StartOrder
from penstock.control.events import (
    InstanceCreated,
    OrderAbandoned,
    OrderEnded,
    OrderFailed,
    ProcessorsIdle,
)
from penstock.spark.lanes.cuts import Reach
from penstock.spark.lanes.deadlines.deciding import Decisions
from penstock.spark.lanes.deadlines.failures import FailedWindows
from penstock.spark.lanes.deadlines.following import FollowedView, ViewStands
from penstock.spark.lanes.deadlines.late import LateOrders
from penstock.spark.lanes.deadlines.ledger import (
    ANSWERED,
    APPROXIMATED,
    FAILED,
    MISSED,
    RELEASED,
    SHED,
    Instance,
    Outcome,
)
from penstock.spark.lanes.deadlines.orders import FAILED as USER_FAILED
from penstock.spark.lanes.deadlines.orders import OVER
from penstock.spark.lanes.deadlines.publications import Publications
from penstock.spark.lanes.deadlines.publishing import Judged, Settled
from penstock.spark.lanes.deadlines.running import EndedOrder, RunningOrder, RunningOrders
from penstock.spark.lanes.deadlines.working import ViewOrders
from penstock.spark.log.run_files import FoundRuns
from penstock.spark.log.stream_log import LogReader
from penstock.spark.recovery.causes import Cause
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.failpoints import failpoint

#: the longest time between two looks at the logs and at the clock, seconds
_LOOK_SECONDS = 0.1
#: windows that are given up wait for the next answers no longer than that since the last ones, seconds
_HELD_SECONDS = 0.5
#: entries of a log that are followed at once
_MOST_ENTRIES = 64
#: an order whose result will be late, but is carried on from, is abandoned after so many deadlines
_LATE_DEADLINES = 10
#: orders of a lot are predicted to take no longer together: a job takes a third of it whatever it does
_TOGETHER_SECONDS = 0.25


class Schedule:
    """Follows the logs, begins orders and settles what became of instances; the lane's thread owns it.

    Args:
        lane: the lane's name.
        events: the run's.
        readers: of the logs, by stream.
        reach: how far each log is followed.
        views: by number.
        decisions: the policy's.
        orders: give orders what they need.
        running: runs them.
        late: works out what is owed.
        publications: publish what is settled.
        cause: why a job failed, where that is the matter of its window; raises what is not.
    """

    def __init__(
        self,
        lane: str,
        events: EventLog,
        readers: Mapping[str, LogReader],
        reach: Mapping[str, Reach],
        views: Mapping[int, FollowedView],
        decisions: Decisions,
        orders: ViewOrders,
        running: RunningOrders,
        late: LateOrders,
        publications: Publications,
        cause: Callable[[BaseException], Cause],
    ) -> None:
        self._lane = lane
        self._events = events
        self._readers = readers
        self._reach = dict(reach)
        self._views = views
        self._numbers = {each.name: number for number, each in views.items()}
        self._decisions = decisions
        self._orders = orders
        self._running = running
        self._late = late
        self._publications = publications
        self._cause = cause
        self._failures = FailedWindows(lane, events)
        #: entries that were followed since it was last said which are needed
        self._unmarked = 0
        #: windows that are given up, and not published
        self._given_up: list[Outcome] = []
        #: when something was published last, by the performance counter
        self._published = 0.0
        #: numbers of the views whose states could not be carried, which is told once
        self._uncarried: set[int] = set()

    def step(self) -> bool:
        """Takes in what is new, and settles what can be; whether it is to be called again at once."""
        self._publications.check()
        is_behind = self._follow()
        began = time.perf_counter()
        judged = self._judged(self._running.ended())
        self._given_up += self._begin_orders()
        self._late.give_way(self._running.idle)
        for answered in self._late.hear(self._cause):
            self._decisions.handle(answered)
        # what is late anyway is not published in the way of what is not
        has_news = self._late.has_news and not self._is_open
        # what is given up goes with the next answers, and not in their way
        waits = self._running.count and began < self._published + _HELD_SECONDS
        is_due = bool(self._given_up) and not waits
        if judged.outcomes or is_due or has_news or self._unmarked >= _MOST_ENTRIES:
            judged.outcomes += self._given_up
            self._given_up = []
            if judged.outcomes or has_news:
                self._late.settle(judged)
            self._publications.put(self._settled(judged, began))
            self._published = began
            return True
        if not is_behind:
            self._late.begin(self._running.idle, self._reach, self._publications.number)
        return is_behind

    def is_done(self, *, is_to_end: bool) -> bool:
        """Whether nothing waits, runs or is to be published.

        Args:
            is_to_end: what is owed is answered before.
        """
        is_idle = self._running.count == 0 and self._publications.is_idle
        return is_idle and not self._is_open and not (is_to_end and self._late.count)

    def pause(self) -> float:
        """Seconds until something may be due."""
        now = time.time()
        ends = [each.deadline for view in self._views.values() for each in view.open.values()]
        ends += [each for each in (self._running.next_end, self._late.next_end) if each is not None]
        return min([_LOOK_SECONDS, *(each - now for each in ends if each > now)])

    @property
    def _is_open(self) -> bool:
        return any(each.open for each in self._views.values())

    def _follow(self) -> bool:
        """Takes in what is new in the logs; whether there may be more."""
        is_behind = False
        for stream, log in self._readers.items():
            before = self._reach[stream].entry
            until = log.ahead(f"reader {self._lane} of stream {stream}", before, _MOST_ENTRIES)
            if until == before:
                continue
            views = [each for each in self._views.values() if each.registered.stream == stream]
            entries = log.between(before, until)
            # in this order: what is in no segment by now was in none as it was read
            in_segments = log.segment_end(log.log.segments.last)
            for entry in entries:
                for view in views:
                    for instance, span in view.take_in(entry, in_segments):
                        at = instance.end, instance.arrived, span, instance.noticed
                        self._decisions.handle(InstanceCreated(view.name, 0, *at))
                self._reach[stream] = Reach.at(entry)
                self._unmarked += 1
            is_behind = True
        return is_behind

    def _begin_orders(self) -> list[Outcome]:
        """Begins orders, and gives instances up."""
        self._decisions.pass_time()
        outcomes: list[Outcome] = []
        lots: dict[int, list[tuple[RunningOrder, StartOrder]]] = {}
        found: dict[Hashable, FoundRuns] = {}
        #: by view, what it is worked out from in the lot
        before: dict[int, Instance] = {}
        for action in self._decisions.handle(ProcessorsIdle(self._running.idle, _TOGETHER_SECONDS)):
            view = self._views[self._numbers[action.stream]]
            instance = view.open[action.number]
            if isinstance(action, GiveUpInstance):
                del view.open[action.number]
                told = SHED if action.shed else MISSED
                outcomes.append(Outcome(instance, told, action.figures, None, action.reason))
                continue
            late = self._decisions.now + _LATE_DEADLINES * view.query.deadline
            until = instance.deadline if action.firm else late
            task = self._orders.task(view, instance, action, until, found, before.get(instance.view))
            if not action.sample:
                before[instance.view] = instance
            order = RunningOrder(instance, action.figures, until, task)
            lots.setdefault(action.lot, []).append((order, action))
        idle = self._running.idle - len(lots)
        for begun in lots.values():
            failpoint("order_started", self._publications.number)
            if len(begun) == 1:
                ((order, action),) = begun
                order.task = self._orders.divided(order.task, action, 1 + idle)
                idle -= order.task.shares - 1
            orders = [order for order, _ in begun]
            self._running.start(orders, orders[0].task.shares)
        return outcomes

    def _judged(self, ended: Sequence[EndedOrder]) -> Judged:
        """What became of the instances of orders, and what is published of them."""
        judged = Judged()
        ahead = self._publications.seconds(len(ended)) if ended else 0.0
        for each in ended:
            view, instance = self._views[each.order.instance.view], each.order.instance
            # visible is what has been published
            self._decisions.pass_time(ahead)
            if each.worked is not None:
                judged.staging.append(each.worked.staging)
            told, reason = self._came_to(view, each)
            if told in ANSWERED and each.worked is not None:
                judged.released += [(instance.view, file) for file in each.worked.files]
            del view.open[instance.end]
            judged.outcomes.append(Outcome(instance, told, each.order.decided, each.seconds, reason))
        return judged

    def _came_to(self, view: FollowedView, ended: EndedOrder) -> tuple[str, str | None]:
        """What became of the instance of an order, and why it is not released; the policy is told."""
        instance, worked, decisions = ended.order.instance, ended.worked, self._decisions
        error = None if ended.error is None else self._cause(ended.error).told
        if worked is not None and worked.report.outcome == USER_FAILED:
            error = worked.report.error
        if error is not None:
            decisions.handle(OrderFailed(view.name, 0, instance.end, error))
            self._failures.failed(view.name, error)
            return FAILED, error
        self._failures.worked(view.name)
        if worked is None or worked.report.outcome == OVER:
            decisions.handle(OrderAbandoned(view.name, 0, instance.end, ended.seconds))
            return MISSED, "its deadline passed while Penstock computed it"
        report = worked.report
        is_carried = report.sampled is None and self._orders.carry(view, instance, report)
        if report.uncarried and instance.view not in self._uncarried:
            self._uncarried.add(instance.view)
            self._events.record(
                "states_not_carried", lane=self._lane, view=view.name, reason=report.uncarried
            )
        if report.tasks > 1:
            self._events.record(
                "order_divided",
                lane=self._lane,
                view=view.name,
                tasks=report.tasks,
                seconds=round(ended.seconds, 4),
            )
        # with what it waited for the lane, and what its publication will take
        waited = max(0.0, decisions.now - ended.ended) / ended.together
        whole, beside = ended.seconds + waited, ended.seconds - report.seconds + waited
        parts = report.adding_seconds, report.removing_seconds
        decisions.handle(
            OrderEnded(
                view.name, 0, instance.end, whole, *parts, report.work, is_carried, beside, ended.together
            )
        )
        if decisions.now > instance.deadline:
            return MISSED, f"it was finished {decisions.now - instance.deadline:.3f} s after its deadline"
        if report.sampled is not None:
            drawn, held = report.sampled
            return (
                APPROXIMATED,
                f"not all exact answers would be in time; {drawn:,} of {held:,} tuples sampled",
            )
        return RELEASED, None

    def _settled(self, judged: Judged, began: float) -> Settled:
        """What is published now: outcomes, how views stand with them, and which entries are needed no more."""
        stands = self._stands()
        left: dict[str, tuple[int, int]] = {}
        for stream, reach in self._reach.items():
            views = [each for each in self._views.values() if each.registered.stream == stream]
            needed = min((each.first_needed(reach.entry) for each in views), default=reach.entry + 1)
            oldest = self._late.oldest(views)
            first = needed if oldest is None else min(needed, views[0].first_holding(oldest, reach.entry))
            left[stream] = first - 1, needed - 1
            for each in views:
                each.kept_after = first - 1
        self._unmarked = 0
        standing = {each.name: self._standing(each) for each in self._views.values()}
        return Settled(judged, began, dict(self._reach), stands, left, standing)

    def _stands(self) -> dict[int, ViewStands]:
        policy = self._decisions.policy
        return {
            number: replace(stands, memory=policy.memory(view.name), owed=self._late.owed(number))
            for number, view in self._views.items()
            if (stands := view.stands) is not None
        }

    def _standing(self, view: FollowedView) -> dict[str, Any]:
        found = asdict(self._decisions.policy.standing(view.name))
        del found["outcomes"]
        found["processors"] = self._running.most
        if view.slack is not None:
            slack = view.slack
            found |= {"slack": slack.slack, "promised": slack.promised, **slack.figures}
        return found
