"""An order that is divided: tasks lift a share of its tuples each, and one merges what they have lifted.

Shares lie in the order's staging folder in between, in the form in which state is stored.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.operators.deadlines.order import OrderPlan, lift_share, merge_shares, work_out_merged
from penstock.operators.deadlines.pane_partials import since
from penstock.operators.deadlines.run_tuples import Share, tuples_of
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.content import Content
from penstock.plan.deadlines import WindowWork
from penstock.spark.lanes.cells import CellJobs
from penstock.spark.lanes.deadlines.kept_partials import KEPT
from penstock.spark.lanes.deadlines.orders import DONE, OrderReport, OrderTask, staged
from penstock.spark.lanes.deadlines.read_tuples import slices_of
from penstock.spark.sessions.priority import give_way
from penstock.spark.storage.store_paths import StorePath, remove_folder

#: tuples of a share, at least: one processor lifts so many in the time of a further job and more
LEAST_TUPLES = 4_000_000


@dataclass(frozen=True, slots=True)
class ShareTask:
    """One share of an order.

    Attributes:
        task: the order.
        share: which part of the tuples.
    """

    task: OrderTask
    share: Share

    @property
    def file(self) -> StorePath:
        """What it is lifted to."""
        return self.task.staging / f"share-{self.share.number}"


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What makes an order of its shares.

    Attributes:
        task: the order.
        files: what the shares are lifted to.
        tuples: how many they are of.
    """

    task: OrderTask
    files: tuple[StorePath, ...]
    tuples: int


def work_divided(jobs: CellJobs, task: OrderTask) -> OrderReport:
    """Works an order out by as many tasks as it has shares, and one more; any thread may.

    Its seconds are those of the clock, less the job that any order takes. Whatever a job raises, the order's folder goes.

    Raises:
        TaskRaisedError: a task raised.
    """
    began = time.perf_counter()
    try:
        if isinstance(task.staging, Path):
            # tasks make no folder: one that dies after it has gone leaves nothing
            task.staging.mkdir(parents=True, exist_ok=True)
        shares = [ShareTask(task, Share(number, task.shares)) for number in range(task.shares)]
        reports = jobs.run(lift, shares)
        seconds = time.perf_counter() - began
        for each in reports:
            if each.outcome != DONE:
                return replace(each, seconds=seconds, tasks=task.shares)
        tuples = sum(each.work.new for each in reports if each.work is not None)
        (merged,) = jobs.run(merge, [MergeTask(task, tuple(each.file for each in shares), tuples)])
    except BaseException:
        remove_folder(task.staging)
        raise
    adding = max(each.adding_seconds for each in reports) + merged.adding_seconds
    return replace(merged, seconds=seconds + merged.seconds, adding_seconds=adding, tasks=task.shares)


def lift(given: ShareTask) -> OrderReport:
    """Lifts a share to its file, within the time of the order.

    Raises:
        CheckpointError: tuples are gone, or a file is damaged.
    """
    give_way()
    task = given.task

    def work(began: float) -> tuple[OrderReport, None]:
        plan, by_pane = _plan(task), task.panes is not None
        slices = slices_of(task.runs)
        with task.runs.named():
            extent = since(task.extent) if by_pane else task.extent
            tuples = tuples_of(slices, plan.columns, [extent], given.share)
        ready = time.perf_counter()
        content, new = lift_share(plan, task.extent, tuples, by_pane=by_pane)
        adding = time.perf_counter() - ready
        given.file.write_bytes(content.stored())
        work = WindowWork(new, 0, carried=False)
        return OrderReport(DONE, time.perf_counter() - began, work, adding), None

    return task.in_time(work)[0]


def merge(given: MergeTask) -> OrderReport:
    """Merges the shares of an order, within its time, and stages its rows."""
    give_way()
    task = given.task

    def work(began: float) -> tuple[OrderReport, Answer]:
        pieces = [Content.loaded(file.read_bytes()) for file in given.files]
        after = None if task.panes is None else task.runs.after
        merged, kept = merge_shares(_plan(task), task.extent, pieces, given.tuples, after)
        if task.panes is not None and kept is not None:
            KEPT.put(task.panes.name, kept)
        found = work_out_merged(OrderPlan(task.view.plan), merged)
        report = OrderReport(
            DONE,
            time.perf_counter() - began,
            found.work,
            found.adding_seconds,
            is_kept=task.panes is not None and KEPT.of(task.panes.name) is not None,
        )
        return report, task.answer(found)

    (report,) = staged([task], [task.in_time(work)])
    return report


def _plan(task: OrderTask) -> OrderPlan:
    """The view, with the aggregates of all that keep partials together."""
    return OrderPlan(task.view.plan if task.panes is None else task.panes.plan)


def shares_for(tuples: int, processors: int) -> int:
    """How many shares an order of so many tuples has on so many processors."""
    return max(1, min(processors, tuples // LEAST_TUPLES))
