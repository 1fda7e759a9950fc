"""Stateless jobs over cells, in a pool of their own, so that they need not wait for the tasks of other queries."""

from __future__ import annotations

import logging
import traceback
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession

from penstock.spark.lanes.shared_jobs import SharedJobs
from penstock.spark.recovery.messages import first_line
from penstock.spark.sessions.numbered_tasks import run_numbered
from penstock.spark.sessions.priority import ApartContext

_log = logging.getLogger(__name__)

Cell = TypeVar("Cell")
Report = TypeVar("Report")


class TaskRaisedError(RuntimeError):
    """A function raised in a worker; the message holds the trace of that."""


@dataclass(frozen=True, slots=True)
class _Raised:
    trace: str


def _caught(function: Callable[[int], Any], number: int, tries: int) -> Any:
    """What a function returns, or raises in the last of its tries: Spark ends the job of a task that fails, and now and then a worker of
    another job with it ("Python worker exited unexpectedly")."""
    try:
        return function(number)
    except Exception:
        context = TaskContext.get()
        if context is not None and context.attemptNumber() + 1 < tries:
            raise
        return _Raised(traceback.format_exc())


class CellJobs:
    """Runs the jobs of one lane; each thread has its jobs in the lane's pool, and any may cancel them.

    Args:
        spark: the session; with `spark.scheduler.mode` FAIR the lane's tasks take their share of the cores beside a
            busy ingest, otherwise they wait for the tasks before them.
        name: the lane's, for the pool and the jobs' description.
        shared: with whom it may share jobs; None: with none.
        niceness: of the workers, which are others than those of the ingest if it is not 0; see `give_way`.
        most_tasks: of a job whose workers are others; None: one a cell.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        shared: SharedJobs | None = None,
        niceness: int = 0,
        most_tasks: int | None = None,
    ) -> None:
        self._spark = spark
        self._name = name
        self._shared = shared
        self._niceness = niceness
        self._most_tasks = most_tasks
        #: whether the last one was light, and succeeded; before the first one it is taken to
        self._was_light = True
        self._group = f"penstock-{name}-{uuid.uuid4().hex}"

    def expect(self) -> None:
        """Says that a job is about to be run: others that share jobs wait for it, if it is likely to be a light one."""
        if self._shared is not None and self._was_light:
            self._shared.expect(self._name)

    def release(self) -> None:
        """Says that none will be."""
        if self._shared is not None:
            self._shared.release(self._name)

    def run(
        self, function: Callable[[Cell], Report], cells: Sequence[Cell], *, is_light: bool = False
    ) -> list[Report]:
        """Runs one job, a task a cell unless there are more than `most_tasks`.

        Args:
            function: runs in a worker; it and what it returns can be pickled.
            cells: what it is given.
            is_light: it takes little more than any job: it may be run together with others, and wait for them; after a
                heavy one, or one that failed, it is run alone nevertheless.

        Returns:
            What it returned, in the order of the cells.

        Raises:
            TaskRaisedError: it raised.
        """
        if not cells:
            return []
        may_share, self._was_light = self._was_light and is_light, False
        found = None
        if self._shared is not None and may_share:
            found = self._shared.run(self._name, function, cells, self._numbered)
        else:
            self.release()
        if found is None:
            found = self._numbered(lambda number: function(cells[number]), len(cells))
        self._was_light = is_light
        return found

    def _numbered(self, function: Callable[[int], Report], tasks: int) -> list[Report]:
        context = self.own()
        # Spark does not repeat tasks in one process; to read all settings takes longer than a task
        is_local = str(context.master).startswith("local")
        tries = 1 if is_local else int(self._spark.conf.get("spark.task.maxFailures", "4") or 4)
        found = run_numbered(context, lambda number: _caught(function, number, tries), tasks)
        for each in found:
            if isinstance(each, _Raised):
                raise TaskRaisedError(f"a task raised\n{each.trace}")
        return found

    def own(self) -> SparkContext:
        """Gives the jobs that the calling thread begins from now on the lane's pool and description."""
        context = self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", self._name)
        context.setJobGroup(self._group, f"penstock {self._name}", True)
        if not self._niceness:
            return context
        return cast("SparkContext", ApartContext(context, self._niceness, self._most_tasks))

    def session(self) -> SparkSession:
        """Return a copy of the session, whose context is the lane's; the calling thread's jobs are, as `own` says."""
        return SparkSession(self.own(), self._spark._jsparkSession.cloneSession())

    def cancel(self) -> None:
        """Cancels what runs; that the session has ended before is no fault."""
        try:
            self._spark.sparkContext.cancelJobGroup(self._group)
        except Exception as error:
            _log.info("nothing to cancel, the Spark session has ended: %s", first_line(error))
