"""What an order of a view is given, and what is kept of it for the next one."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.control.actions import StartOrder
from penstock.operators.deadlines.divisible import are_divisible
from penstock.operators.deadlines.instances import CalledAggregate, Extent
from penstock.operators.windows.aggregates import Parts
from penstock.spark.lanes.cells import CellJobs
from penstock.spark.lanes.deadlines.following import FollowedView
from penstock.spark.lanes.deadlines.ledger import Instance
from penstock.spark.lanes.deadlines.orders import (
    Marks,
    OrderReport,
    OrderTask,
    SharedPanes,
    run_tasks,
)
from penstock.spark.lanes.deadlines.running import Worked
from penstock.spark.lanes.deadlines.shares import shares_for, work_divided
from penstock.spark.lanes.lane import LaneContext
from penstock.spark.log.run_files import FoundRuns
from penstock.spark.results.window_rows import make_results
from penstock.spark.storage.deadlines import DEADLINES_NAME, RegisteredDeadline
from penstock.sql.windows.bind import BoundWindow

#: in the folder of an order
_GIVES_WAY = "gives-way"


def give_way(task: OrderTask) -> None:
    """Abandons a late order; its worker looks for that time and again. One whose results are in an object store goes on."""
    if task.gives_way is not None:
        path = Path(task.gives_way)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


class ViewOrders:
    """Gives orders what they need; the lane's thread owns it.

    Args:
        context: the run's.
        views: by number, a view and how it is bound to the columns of its tuples.
    """

    def __init__(
        self, context: LaneContext, views: Mapping[int, tuple[RegisteredDeadline, BoundWindow]]
    ) -> None:
        self._context = context
        self._views = views
        self._calls = {
            number: tuple(
                CalledAggregate(context.aggregates[call.name.upper()], call.arguments)
                for call in registered.view.calls
            )
            for number, (registered, _) in views.items()
        }
        self._panes = shared_panes(views)
        #: by view, whether its aggregates are exact however its tuples are divided; asked for once it has many
        self._divisible: dict[int, bool] = {}
        #: numbers of the views whose partials the last order could not keep
        self._unkept: set[int] = set()
        #: by view, the states of the last processed instance
        self._carried: dict[int, bytes] = {}

    def task(
        self,
        view: FollowedView,
        instance: Instance,
        action: StartOrder,
        until: float,
        found: dict[Hashable, FoundRuns],
        before: Instance | None = None,
    ) -> OrderTask:
        """What works an instance out.

        Args:
            view: the instance's.
            instance: which.
            action: what the policy said.
            until: its time is over then, seconds since the epoch.
            found: as of `FollowedView.runs`.
            before: the view's instance before it in the lot; None: there is none.
        """
        if action.sample:
            return self._task(
                instance, view.runs(instance, found), until, 0, state_bytes=0, sample=action.sample
            )
        carried, base, follows = None, None, False
        if action.work.carried and self._calls[instance.view]:
            carried, base, follows = self._carried.get(instance.view), before or view.base, before is not None
        runs = view.runs(instance, found, base)
        panes = self._panes.get(instance.view)
        return self._task(instance, runs, until, 0, carried=carried, panes=panes, follows=follows)

    def divided(self, task: OrderTask, action: StartOrder, processors: int) -> OrderTask:
        """An order that is alone in its lot, divided among processors where that is right and worth it.

        Args:
            task: the order.
            action: what the policy said.
            processors: it may take so many.
        """
        windows = task.view.plan.windows
        reads_all = not action.work.carried or windows.slide >= windows.size
        shares = shares_for(action.work.new, processors) if reads_all and not action.sample else 1
        if shares == 1 or task.calls or not self._is_divisible(task):
            return task
        # partials that are too large to be kept are not made by pane
        panes = None if task.number in self._unkept else task.panes
        return replace(task, shares=shares, panes=panes)

    def _is_divisible(self, task: OrderTask) -> bool:
        if task.number not in self._divisible:
            some = replace(task.runs, files=task.runs.files[:1]).open()
            aggregates = task.view.plan.aggregates
            self._divisible[task.number] = bool(some) and are_divisible(aggregates, some[0].run.schema)
        return self._divisible[task.number]

    def late_task(self, view: FollowedView, instance: Instance) -> OrderTask:
        """What works a lost window out: from nothing, and without a trace in what the next order is worked out from.

        Args:
            view: the window's.
            instance: the window, with the tuples that have come by now.
        """
        task = self._task(instance, view.runs(instance, {}), None, 1, state_bytes=0)
        # a worker looks for it time and again: not in an object store
        gives_way = str(task.staging / _GIVES_WAY) if isinstance(task.staging, Path) else None
        return replace(task, gives_way=gives_way)

    def _task(
        self, instance: Instance, runs: FoundRuns, deadline: float | None, revision: int, **more: Any
    ) -> OrderTask:
        shared, _ = self._context.layout.staging(DEADLINES_NAME, instance.view)
        staging = shared / uuid.uuid4().hex
        return OrderTask(
            instance.view,
            self._views[instance.view][1],
            self._calls[instance.view],
            Extent(instance.start, instance.end, instance.entry + 1),
            runs,
            staging,
            deadline,
            # tuples that come later are not in its rows
            Marks(
                revision,
                final=False,
                slack=instance.slack,
                coverage=instance.coverage,
                promised=instance.coverage is not None,
            ),
            **more,
        )

    def work(self, jobs: CellJobs, tasks: Sequence[OrderTask]) -> list[Worked]:
        """Works tasks out one after the other, by one job, or one that is divided by two; any thread may."""
        if len(tasks) == 1 and tasks[0].shares > 1:
            reports = [work_divided(jobs, tasks[0])]
        else:
            (reports,) = jobs.run(run_tasks, [tasks])
        # a job of the same thread, so of the same group
        made = make_results(
            self._context.spark,
            [each for report in reports for each in report.results if each.raw],
            lambda each: tasks[each.operator].rows_view,
            None,
        )
        # places among the tasks are their operators
        left = {each.job: each.left for each in made}
        worked = []
        for place, (task, report) in enumerate(zip(tasks, reports, strict=True)):
            own = [file for each in report.results if not each.raw for file in each.left]
            worked.append(Worked(report, task.staging, (*own, *left.get(place, ()))))
        return worked

    def carry(self, view: FollowedView, instance: Instance, report: OrderReport) -> bool:
        """Keeps the states of an order that is done for the next one; whether there are any, or none are needed."""
        if report.is_kept:
            self._unkept.discard(instance.view)
        else:
            self._unkept.add(instance.view)
        if report.carried is None:
            self._carried.pop(instance.view, None)
            view.base = None
            return report.is_kept or not view.query.incremental
        self._carried[instance.view] = report.carried
        view.base = instance
        return True


def shared_panes(
    views: Mapping[int, tuple[RegisteredDeadline, BoundWindow]],
) -> dict[int, SharedPanes]:
    """The partials that views keep, by their numbers: views whose windows are due together, and hold the same tuples, keep them together.

    Aggregates that keep values or sketches are as large as the data lets them be: they are shared by views with the same ones alone.
    """
    kinds: dict[Hashable, list[int]] = {}
    for number, (each, bound) in views.items():
        view, plan, demand = each.view, bound.plan, each.demand
        parts = Parts.of(plan.aggregates)
        if view.calls:
            continue
        tuples = each.stream, each.entry, demand.condition, demand.columns, demand.time
        alone = plan.aggregates if parts.values or parts.sketches else ()
        # those that wait for late tuples learn for how long, each by itself
        due = view.query.deadline, number if view.waits else None
        kinds.setdefault((tuples, plan.windows, plan.keys, alone, due), []).append(number)
    found: dict[int, SharedPanes] = {}
    # those that workers keep are of this start of the lane alone
    lane = uuid.uuid4().hex
    for own in kinds.values():
        plan = views[own[0]][1].plan
        aggregates = dict.fromkeys(every for number in own for every in views[number][1].plan.aggregates)
        shared = SharedPanes(f"{lane}.{own[0]}", replace(plan, aggregates=tuple(aggregates)))
        found |= dict.fromkeys(own, shared)
    return found
