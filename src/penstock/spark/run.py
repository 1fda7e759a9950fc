"""A running engine, as its user sees it."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, cast

from pyspark.sql import DataFrame

from penstock.monitor.figures import counted
from penstock.spark.execution import Execution
from penstock.spark.results import read as results
from penstock.spark.run_status import run_status
from penstock.status import RunStatus, State


def leave(error: BaseException | None, stop: Callable[[], None]) -> None:
    """Stop a run at the end of a `with` block. An exception of the block's body wins over one of `stop`, and notes it."""
    try:
        stop()
    except Exception as failed:
        if error is None:
            raise
        error.add_note(f"Stopping the run failed too: {failed}")


class Run:
    """A running engine; `Engine.start` creates it. Leaving a `with` block stops it.

    Example:
        >>> engine = Engine(spark).stream("ticks", spark.readStream.format("rate").load())
        >>> with engine.view("odd", "SELECT value FROM ticks WHERE value % 2 = 1").start(folder) as run:
        ...     run.state, run.active, list(run.status().views)
        ('running', True, ['odd'])
        >>> run.state, run.active
        ('stopped', False)
    """

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    def __repr__(self) -> str:
        status = self.status()
        rows = sum(view.rows for view in status.views.values())
        streams = ", ".join(status.streams)
        counts = f"{counted(len(status.views), 'view')}, {counted(rows, 'row')}"
        return f"<Run {self.state}: streams {streams or 'none'}; {counts} in {self.output}>"

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(error, self.stop)

    @property
    def output(self) -> str:
        """Return the path of the results folder."""
        return str(self._execution.layout.output)

    @property
    def state(self) -> State:
        """Return what the run is doing: 'running', 'ended', 'stopped', 'failed' or 'refused'."""
        return cast(State, self._execution.status_file.book.state)

    @property
    def active(self) -> bool:
        """Return whether any stream or lane still runs."""
        return self._execution.active

    def status(self) -> RunStatus:
        """Take a snapshot: the state and counts of each stream, view and lane."""
        return run_status(self._execution)

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Return the newest events of this run, oldest first. `events.jsonl` in the results folder has all of them.

        Args:
            kind: the kind wanted; None: every kind.
        """
        return [event for event in self._execution.events.recent if kind in (None, event["kind"])]

    def explain(self) -> str:
        """Describe what runs where and why: a paragraph for each stream, join view, and window view that others read."""
        return self._execution.explain()

    def matches(self, stream: str, all_definitions: bool = False) -> DataFrame:
        """Return the published matches of a stream: the columns of each tuple, and `queries`, the views it satisfies.

        Args:
            stream: the stream's name.
            all_definitions: whether `queries` also names views that the tuple satisfied by an earlier definition.
                `__penstock_definitions` then has the number of each definition.

        Raises:
            UnknownNameError: no stream has this name.
        """
        return results.matches(self._execution.spark, self._execution.layout, stream, all_definitions)

    def results(
        self,
        view: str,
        definition: int | None = None,
        all_definitions: bool = False,
        final_only: bool = False,
    ) -> DataFrame:
        """Return the rows of a view; of a window view the newest revision of each.

        Args:
            view: the view's name.
            definition: the number of one of its definitions, from 1 on; None: the current one.
            all_definitions: whether to return the rows of all definitions of a selection; the last column, `definition`, has the number.
            final_only: whether to return only the final rows of a window view. A tuple later than the horizon corrects final rows
                too; the last column, `corrected_after_final`, marks these.

        Raises:
            UnknownNameError: no view, or no definition of it, has this name or number.
            InputError: `all_definitions` of a view that is not a selection, or `final_only` of a view without windows.
        """
        run = self._execution
        return results.results(run.spark, run.layout, view, definition, all_definitions, final_only)

    def changes(self, view: str, definition: int | None = None) -> DataFrame:
        """Return every revision of every row of a window view, with `revision`, `coverage`, `slack`, `is_final` and `op`.

        Of a view that LEFT JOINs a stream: the rows published and those withdrawn later, with `op`; a `delete` has the values of its `insert`.

        Args:
            view: the view's name.
            definition: as of `results`.

        Raises:
            UnknownNameError: no view, or no definition of it, has this name or number.
        """
        return results.changes(self._execution.spark, self._execution.layout, view, definition)

    def misses(self, view: str) -> DataFrame:
        """Return the windows of a view that were not released before their deadline, with `outcome` and `reason`.

        Args:
            view: the view's name.

        Raises:
            UnknownNameError: no view has this name, or the view has no deadline.
        """
        return results.misses(self._execution.spark, self._execution.layout, view)

    def stop(self) -> None:
        """Stop every stream and lane. A start with the same folders continues from here. May be called again.

        Raises:
            Exception: what kept one of them from stopping. All others are stopped. The run keeps its checkpoint until another call
                succeeds or the process ends.
        """
        self._execution.stop()

    def await_termination(self, timeout_seconds: float | None = None) -> bool:
        """Wait until every stream has ended, which a bounded trigger or a finite source brings about, or one has failed.

        Args:
            timeout_seconds: the longest wait; None: no limit.

        Returns:
            False if the time ran out first.

        Raises:
            StreamFailedError: a stream failed, or a lane could not answer what was available.
            FencedError: another run has taken over the checkpoint; this one has stopped.
        """
        return self._execution.await_termination(timeout_seconds)
