"""Late answers: windows that were shed or missed are worked out after all, on processors that nothing in time needs.

What comes late changes no account; the policy is told what it took. A late order gives way as soon as an order in time is without a
processor; what it had done is done again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf

from penstock.control.events import LateAnswered
from penstock.control.policies.deadlines.debts import Debts, OwedWindow
from penstock.spark.lanes.cuts import Reach
from penstock.spark.lanes.deadlines.following import FollowedView
from penstock.spark.lanes.deadlines.ledger import OWING, Instance, LateOutcome
from penstock.spark.lanes.deadlines.orders import DONE, OVER
from penstock.spark.lanes.deadlines.publishing import Judged
from penstock.spark.lanes.deadlines.running import EndedOrder, RunningOrder, RunningOrders
from penstock.spark.lanes.deadlines.working import ViewOrders, give_way
from penstock.spark.recovery.causes import Cause
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.store_paths import remove_folder

#: a window whose order fails by what can pass by itself is tried so often, after waits of 1, 2, 4 .. seconds
_TRIES = 5


@dataclass(frozen=True, slots=True)
class _Working:
    view: int
    window: OwedWindow


class LateOrders:
    """Works out what is owed; the lane's thread owns it.

    Args:
        running: runs late orders; the most at once.
        orders: give them what they need.
        views: by number.
        most: windows of a view that are owed at the most.
        owed: by number of a view, what an earlier run has left.
    """

    def __init__(
        self,
        running: RunningOrders,
        orders: ViewOrders,
        views: Mapping[int, FollowedView],
        most: int,
        owed: Mapping[int, Iterable[OwedWindow]],
    ) -> None:
        self._running = running
        self._orders = orders
        self._views = views
        self._most = most
        #: what is told with the next publication
        self._news = Judged()
        #: numbers of views and windows: what is owed until then, though it is worked out
        self._settled: list[tuple[int, OwedWindow]] = []
        self._debts = Debts(most, owed)
        #: in the order they were begun
        self._working: dict[RunningOrder, _Working] = {}
        #: of views and windows, how often an order has failed by what can pass by itself
        self._tried: Counter[tuple[int, OwedWindow]] = Counter()
        #: no order is begun before, by the monotonic clock
        self._begins = 0.0

    @property
    def next_end(self) -> float | None:
        """When the first order is to be cancelled, seconds since the epoch; None where none runs."""
        return self._running.next_end

    @property
    def count(self) -> int:
        """How many windows are owed."""
        return len(self._debts)

    def owed(self, view: int) -> tuple[OwedWindow, ...]:
        """What is owed of a view."""
        return self._debts.of(view)

    def oldest(self, views: Iterable[FollowedView]) -> int | None:
        """From when on tuples of some views are needed, microseconds; None: none are."""
        starts = (each.start for view in views for each in self.owed(view.registered.number))
        return min(starts, default=None)

    @property
    def has_news(self) -> bool:
        """Whether something has become of an owed window since the last publication."""
        return bool(self._news.late)

    def forget(self, view: str, windows: Iterable[OwedWindow]) -> None:
        """Gives up what is owed of a view that is gone."""
        self._news.late += [LateOutcome(view, each, "the view was dropped") for each in windows]

    def settle(self, judged: Judged) -> None:
        """Adds to a publication what has become of owed windows, which are so no more; what is lost by it is owed from now on."""
        for number, window in self._settled:
            self._debts.settle(number, window)
        for each in judged.outcomes:
            instance = each.instance
            view = self._views[instance.view]
            if each.outcome not in OWING or not view.registered.view.late:
                continue
            lost = OwedWindow(instance.start, instance.end, instance.arrived)
            reason = (
                f"more than {self._most} windows of the view waited for a late answer (setting late_windows)"
            )
            for oldest in self._debts.owe(instance.view, lost):
                self._news.late.append(LateOutcome(view.name, oldest, reason))
                del self._tried[instance.view, oldest]
        judged.late += self._news.late
        judged.staging += self._news.staging
        self._news, self._settled = Judged(), []

    def begin(self, idle: int, reach: Mapping[str, Reach], publication: int) -> None:
        """Begins orders, as many as there are processors for.

        Args:
            idle: processors without an order in time.
            reach: how far each log is followed: the tuples up to there are in the answers.
            publication: number of the next one.
        """
        if time.monotonic() < self._begins:
            return
        while self._running.count < idle and self._running.idle and (taken := self._debts.take()):
            number, window = taken
            view = self._views[number]
            entry = reach[view.registered.stream].entry
            instance = Instance(
                number,
                window.start,
                window.end,
                entry,
                window.created,
                window.created,
                window.created + view.query.deadline,
                view.passed(window.end, entry),
            )
            failpoint("late_started", publication)
            task = self._orders.late_task(view, instance)
            order = RunningOrder(instance, {}, inf, task)
            self._working[order] = _Working(number, window)
            self._running.start([order])

    def give_way(self, idle: int) -> None:
        """Ends orders for which there is no processor any more, those first that were begun last.

        Args:
            idle: processors without an order in time.
        """
        surplus = max(0, self._running.count - idle)
        for order in list(reversed(self._working))[:surplus]:
            if order.until == inf:
                # what does not hear it is cancelled a little later
                order.until = time.time()
                give_way(order.task)

    def hear(self, cause: Callable[[BaseException], Cause]) -> list[LateAnswered]:
        """Takes in what has become of orders; the windows of those that gave way are owed still.

        Args:
            cause: why a job failed, where that is the matter of its window; raises what is not.

        Returns:
            What those took that were worked out.
        """
        answered = []
        for each in self._running.ended():
            outcome, working = self._came_to(each, cause), self._working[each.order]
            if outcome is None:
                self._debts.put_back(working.view, working.window)
                remove_folder(each.order.task.staging)
            else:
                self._news.late.append(outcome)
                self._news.staging.append(each.order.task.staging)
                self._settled.append((working.view, working.window))
                del self._tried[working.view, working.window]
            report = None if each.worked is None else each.worked.report
            if report is not None and report.work is not None:
                name, beside = self._views[working.view].name, each.seconds - report.seconds
                took = LateAnswered(name, 0, each.seconds, report.adding_seconds, report.work, beside)
                answered.append(took)
            del self._working[each.order]
        return answered

    def _came_to(self, ended: EndedOrder, cause: Callable[[BaseException], Cause]) -> LateOutcome | None:
        """What an order came to; None: its window is owed still."""
        working, worked = self._working[ended.order], ended.worked
        name, seconds = self._views[working.view].name, ended.seconds
        if ended.error is not None:
            failed = cause(ended.error)
            if not failed.is_transient:
                return LateOutcome(name, working.window, failed.told, seconds=seconds)
            if self._is_tried_again(working):
                return None
            return LateOutcome(name, working.window, f"{failed.told}; tried {_TRIES} times", seconds=seconds)
        if worked is None or worked.report.outcome == OVER:
            return None
        if worked.report.outcome != DONE:
            return LateOutcome(name, working.window, worked.report.error, seconds=seconds)
        entry = ended.order.instance.entry
        return LateOutcome(name, working.window, None, entry, seconds, worked.files)

    def _is_tried_again(self, working: _Working) -> bool:
        """Whether a window whose order has failed is tried again; no order is begun for a while then."""
        key = working.view, working.window
        self._tried[key] += 1
        if self._tried[key] == _TRIES:
            return False
        self._begins = time.monotonic() + 2.0 ** (self._tried[key] - 1)
        return True
