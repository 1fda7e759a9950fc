"""An order of the deadline lane: one window of one view, worked out by one task that reads the mapped tuples.

An order is stateless, and the next one of its view may land in another worker. What that is worked out from, the states of
the user's classes, goes to the driver in the report and from there with the next order, so that it is no longer lived than
the session. Partials of built-in aggregates remain in the worker (`kept_partials.py`): another one makes them of the log's tuples.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TypeVar

from pyspark import cloudpickle

from penstock.errors import AggregateFailedError
from penstock.operators.deadlines.instances import CalledAggregate, Carried, Extent, WorkedOut
from penstock.operators.deadlines.order import (
    OrderPlan,
    merge_from_panes,
    work_out,
    work_out_merged,
    work_out_sampled,
)
from penstock.operators.deadlines.pane_partials import MergedWindow, since
from penstock.operators.deadlines.run_tuples import sampled_tuples
from penstock.operators.deadlines.time_limit import TimeIsOver, unless_asked, within
from penstock.operators.windows.answers import Answer
from penstock.plan.deadlines import WindowWork
from penstock.plan.windows import Aggregate, WindowPlan
from penstock.spark.lanes.deadlines.kept_partials import KEPT
from penstock.spark.lanes.deadlines.read_tuples import ReadTuples, slices_of
from penstock.spark.log.run_files import FoundRuns
from penstock.spark.publication.kinds import view_kind
from penstock.spark.results.window_staging import ResultStage, StagedResults
from penstock.spark.sessions.priority import give_way
from penstock.spark.storage.store_paths import StorePath
from penstock.sql.windows.bind import BoundWindow

Result = TypeVar("Result")

#: outcomes of an order
DONE, OVER, FAILED = "done", "over", "failed"
#: states beyond it are not carried: from 1 MB on Spark sends a task by a file that stays in the driver's folder
STATE_BYTES = 1 << 19


def results_view(view: BoundWindow, calls: Sequence[CalledAggregate]) -> BoundWindow:
    """A view with the user's aggregates that it calls among those of its plan: so its rows are staged, and made by Spark."""
    if not calls:
        return view
    aggregates = tuple(Aggregate(each.aggregate.name, None, each.aggregate.type) for each in calls)
    return replace(view, plan=replace(view.plan, aggregates=aggregates))


@dataclass(frozen=True, slots=True)
class Marks:
    """What is told of a window with its rows: attributes as of `Answer`."""

    revision: int = 0
    final: bool = True
    slack: int = 0
    coverage: float | None = None
    promised: bool = False


@dataclass(frozen=True, slots=True)
class SharedPanes:
    """Views whose partials are kept together: they differ in nothing but their names and aggregates.

    Attributes:
        name: tells these partials from all others that a worker keeps.
        plan: as orders merge it, with the aggregates of all of them.
    """

    name: str
    plan: WindowPlan


@dataclass(frozen=True, slots=True)
class OrderReport:
    """What an order came to.

    Attributes:
        outcome: DONE, or OVER: its deadline passed, or it gave way, or FAILED: the user's code did.
        seconds: what it took in the worker; of one that is over a lower bound of what it would have taken.
        work: what it was worked out from; None unless it is done.
        adding_seconds, removing_seconds: parts of `seconds`, see `WorkedOut`.
        results: what was staged: one file, or none where there are no rows or it is not done.
        carried: states for the next order, as bytes; None where there are none.
        is_kept: the next order can be worked out from partials that this worker keeps.
        uncarried: why this instance did not use the states it was given, or has none for the next; "" otherwise.
        error: the user's, with aggregate, place and cause; "" unless it failed.
        sampled: tuples in the sample that it was worked out from, and those of the window; None: it is exact.
        tasks: so many worked out a share of it each; 1: it was not divided.
    """

    outcome: str
    seconds: float
    work: WindowWork | None = None
    adding_seconds: float = 0.0
    removing_seconds: float = 0.0
    results: Sequence[StagedResults] = ()
    carried: bytes | None = None
    is_kept: bool = False
    uncarried: str = ""
    error: str = ""
    sampled: tuple[int, int] | None = None
    tasks: int = 1


@dataclass(frozen=True, slots=True)
class OrderTask:
    """An order: `CellJobs.run(run_tasks, [[task]])`, or several behind each other.

    Attributes:
        number: names the files of the view, as the operator of a window view does.
        view: the view, over the columns of its demand.
        calls: the user's aggregates in place of its own, see `OrderPlan`.
        extent: of the instance.
        runs: where the tuples lie, sorted by event time: those of the instance and, where it is given states, of theirs.
        staging: the folder its rows are staged in.
        deadline: when it is abandoned, seconds since the epoch by the worker's clock, so that waiting for a core counts; None: never.
        marks: what is told with its rows.
        carried: what the last done order of the view reported, where that is to be worked out from.
        state_bytes: states that take more are not carried; 0: none are.
        gives_way: of an order without a deadline: it is abandoned when this file is there; None: never.
        panes: the partials that its view keeps in workers; None: none are kept.
        sample: it is worked out from a sample of so many tuples; 0: from all.
        follows: it is worked out from what the order of its view before it in the lot reports, in place of `carried`.
        shares: tasks that its tuples are divided among, see `shares.py`; 1: it is not divided.
    """

    number: int
    view: BoundWindow
    calls: tuple[CalledAggregate, ...]
    extent: Extent
    runs: FoundRuns
    staging: StorePath
    deadline: float | None
    marks: Marks = Marks()
    carried: bytes | None = None
    state_bytes: int = STATE_BYTES
    gives_way: str | None = None
    panes: SharedPanes | None = None
    sample: int = 0
    follows: bool = False
    shares: int = 1

    @property
    def rows_view(self) -> BoundWindow:
        """The view, with the aggregates that its rows have."""
        return results_view(self.view, self.calls)

    def work(self, read: ReadTuples) -> tuple[OrderReport, Answer | None]:
        """Works the window out within its time: the report, which lacks what is staged, and the rows if it is done.

        Args:
            read: reads its tuples.

        Raises:
            CheckpointError: tuples are gone, or a file is damaged.
        """
        return self.in_time(lambda began: self._work(read, began))

    def in_time(
        self, work: Callable[[float], tuple[OrderReport, Result]]
    ) -> tuple[OrderReport, Result | None]:
        """Does what the order asks for within its time.

        Args:
            work: is given when it began, by the performance counter.

        Returns:
            What the work returns; if the order is over or has failed the report of that, and None.
        """
        began = time.perf_counter()
        try:
            if self.deadline is not None:
                return within(self.deadline - time.time(), lambda: work(began))
            if self.gives_way is None:
                return work(began)
            return unless_asked(Path(self.gives_way).exists, lambda: work(began))
        except TimeIsOver:
            return OrderReport(OVER, time.perf_counter() - began), None
        except AggregateFailedError as error:
            return OrderReport(FAILED, time.perf_counter() - began, error=str(error)), None

    def _work(self, read: ReadTuples, began: float) -> tuple[OrderReport, Answer]:
        plan = OrderPlan(self.view.plan, self.calls)
        if self.sample:
            return self._work_sampled(plan, began)
        carried, unused = _loaded(self.carried)
        extents = [self.extent] if carried is None else [self.extent, carried.extent]
        merged = None if self.panes is None else self._merged(self.panes, read)
        if merged is not None:
            found = work_out_merged(plan, merged)
        else:
            found = work_out(plan, self.extent, read.of(self.runs, plan.columns, extents), carried)
        states, lost = _stored(found.carried, self.state_bytes)
        report = OrderReport(
            DONE,
            time.perf_counter() - began,
            found.work,
            found.adding_seconds,
            found.removing_seconds,
            carried=states,
            is_kept=self.panes is not None and KEPT.of(self.panes.name) is not None,
            uncarried="; ".join(each for each in (unused, lost) if each),
        )
        return report, self.answer(found)

    def _work_sampled(self, plan: OrderPlan, began: float) -> tuple[OrderReport, Answer]:
        runs = slices_of(self.runs)
        with self.runs.named():
            sample, population = sampled_tuples(runs, plan.columns, self.extent, self.sample)
        found = work_out_sampled(plan, sample, population)
        report = OrderReport(
            DONE,
            time.perf_counter() - began,
            found.work,
            found.adding_seconds,
            found.removing_seconds,
            sampled=(len(sample.times), population),
        )
        return report, self.answer(found)

    def _merged(self, panes: SharedPanes, read: ReadTuples) -> MergedWindow | None:
        """The window from partials that this worker keeps, or from what an order of the lot has merged; None where they do not serve it."""
        window = panes.name, self.extent, self.runs.after
        if window in read.merged:
            # its new tuples have been added
            return replace(read.merged[window], adding_seconds=0.0)
        kept, after = KEPT.of(panes.name), self.runs.after
        if KEPT.is_too_large(panes.name) or (kept is not None and not kept.serves(self.extent, after)):
            return None
        plan, known = OrderPlan(panes.plan), -1 if kept is None else kept.until
        tuples = read.of(self.runs, plan.columns, [since(self.extent)], known)
        found, partials = merge_from_panes(plan, self.extent, tuples, after, kept)
        KEPT.put(panes.name, partials)
        read.merged[window] = found
        return found

    def answer(self, found: WorkedOut) -> Answer:
        """The rows of the window."""
        marks, extent = self.marks, self.extent
        return Answer(
            self.view.plan.name,
            extent.start,
            extent.end,
            marks.revision,
            marks.final,
            marks.slack,
            marks.coverage,
            marks.promised,
            found.rows,
            found.rows.slice(0, 0),
        )


def run_tasks(tasks: Sequence[OrderTask]) -> list[OrderReport]:
    """Works orders out one after the other, each within its own time, and stages their rows together.

    What is staged of an order has its place among them for an operator: a view may have several.

    Raises:
        CheckpointError: as of `OrderTask.work`.
    """
    give_way()
    worked: list[tuple[OrderReport, Answer | None]] = []
    carried: dict[int, bytes | None] = {}
    read = ReadTuples()
    for task in tasks:
        given = replace(task, carried=carried.get(task.number)) if task.follows else task
        worked.append(given.work(read))
        carried[task.number] = worked[-1][0].carried
    return staged(tasks, worked)


def staged(
    tasks: Sequence[OrderTask], worked: Sequence[tuple[OrderReport, Answer | None]]
) -> list[OrderReport]:
    """Stages the rows of orders together.

    Args:
        tasks: the orders, at least one.
        worked: what each came to.

    Returns:
        The reports, with what was staged.
    """
    views = [task.rows_view for task in tasks]
    stage = ResultStage(
        None, tasks[0].staging / uuid.uuid4().hex, 0, lambda place: {views[place].plan.name: views[place]}
    )
    for place, (_, answer) in enumerate(worked):
        if answer is not None:
            stage.add(place, answer)
    began = time.perf_counter()
    found: defaultdict[int, list[StagedResults]] = defaultdict(list)
    for each in stage.close():
        kind, file = view_kind(tasks[each.operator].number, each.view), each.file
        found[each.operator].append(replace(each, file=file and replace(file, kind=kind)))
    reports = [report for report, _ in worked]
    done = sum(each.outcome == DONE for each in reports)
    share = (time.perf_counter() - began) / max(1, done)
    return [
        replace(report, results=found[place], seconds=report.seconds + share)
        if report.outcome == DONE
        else report
        for place, report in enumerate(reports)
    ]


class _TooLargeError(Exception):
    """What is written takes more bytes than allowed."""


class _Bounded(BytesIO):
    """Bytes in memory, so many at most."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        if self.tell() + len(data) > self._most:
            raise _TooLargeError
        return super().write(data)


def _stored(carried: Carried | None, most: int) -> tuple[bytes | None, str]:
    """States as bytes, or why they are not carried."""
    if carried is None or not most:
        return None, ""
    file = _Bounded(most)
    try:
        cloudpickle.dump(carried, file)  # type: ignore[no-untyped-call]
    except _TooLargeError:
        return None, f"the aggregate states take more than {most:,} bytes"
    except Exception as error:
        return None, f"the aggregate states cannot be pickled: {_named(error)}"
    return file.getvalue(), ""


def _loaded(stored: bytes | None) -> tuple[Carried | None, str]:
    """States of bytes, or why they are not used: reading them runs the user's code."""
    if stored is None:
        return None, ""
    try:
        carried: Carried = pickle.loads(stored)
    except Exception as error:
        return None, f"the aggregate states cannot be unpickled: {_named(error)}"
    return carried, ""


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
