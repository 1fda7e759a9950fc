"""One job of Spark for lanes whose cuts begin at the same moment.

A job takes a while whatever it does, and lanes over the same streams are woken by the same entries. As databases commit together what is
ready together (group commit; DeWitt et al., "Implementation techniques for main memory database systems", 1984), the first lane to ask
waits shortly for those that have said that they are about to, and runs one job for all of them.

Nothing on disk knows of it: cuts, files and marks are each lane's own. What raises for one lane fails that lane alone: it runs a job of
its own, and finds out for itself what fails. So does each lane where the job as a whole does not succeed, or is cancelled because the
lane that runs it stops.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.spark.recovery.messages import first_line

_log = logging.getLogger(__name__)

#: runs a function for each of some numbers, and gives what it returned
Runner = Callable[[Callable[[int], Any], int], list[Any]]
#: a lane is waited for so long since it said that it is about to ask
_WAIT_SECONDS = 0.1


@dataclass(slots=True)
class _Gathering:
    """Jobs that are run together.

    Attributes:
        asked: of each lane what is run, and for which cells.
        reports: what came of it, by cell and lane, see `_attempt`; None: nothing.
        done: whether that is known.
    """

    asked: list[tuple[Callable[[Any], Any], Sequence[Any]]] = field(default_factory=list)
    reports: list[list[tuple[Any, bool]]] | None = None
    done: threading.Event = field(default_factory=threading.Event)


class SharedJobs:
    """Brings jobs of lanes together; each lane's thread calls it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: lanes that are about to ask, and until when they are waited for
        self._expected: dict[str, float] = {}
        self._gathering: _Gathering | None = None

    def expect(self, lane: str) -> None:
        """A lane says that it is about to ask."""
        with self._changed:
            self._expected[lane] = time.monotonic() + _WAIT_SECONDS

    def release(self, lane: str) -> None:
        """It does not ask, or has."""
        with self._changed:
            self._expected.pop(lane, None)
            self._changed.notify_all()

    def run(
        self, lane: str, function: Callable[[Any], Any], cells: Sequence[Any], runner: Runner
    ) -> list[Any] | None:
        """Runs a function for some cells, together with what other lanes ask for now.

        Args:
            lane: who asks.
            function: what is run in a worker.
            cells: what it is given; each in the same task as those at their place of other lanes.
            runner: runs a job in this thread.

        Returns:
            What it returned, in the order of the cells; None where the lane is alone, or its part of what was run
            together has failed.
        """
        with self._changed:
            self._expected.pop(lane, None)
            self._changed.notify_all()
            gathering, place = self._gathering, 0
            if gathering is None:
                gathering = self._gathering = _Gathering([(function, cells)])
                self._await_others()
                self._gathering = None
            else:
                place = len(gathering.asked)
                gathering.asked.append((function, cells))
        if place:
            gathering.done.wait()
        else:
            _run(gathering, runner)
        if gathering.reports is None:
            return None
        own = [each[place] for each in gathering.reports[: len(cells)]]
        return [report for report, _ in own] if all(succeeded for _, succeeded in own) else None

    def _await_others(self) -> None:
        """Waits for those that are about to ask; the lock is free meanwhile."""
        while self._expected:
            left = max(self._expected.values()) - time.monotonic()
            if left <= 0 or not self._changed.wait(left):
                return


def _run(gathering: _Gathering, runner: Runner) -> None:
    """Runs one job for several lanes: in a task what is at one place in each."""
    asked = gathering.asked
    try:
        if len(asked) > 1:
            tasks = max(len(cells) for _, cells in asked)
            gathering.reports = runner(
                lambda number: [_attempt(function, cells[number : number + 1]) for function, cells in asked],
                tasks,
            )
    except Exception as error:
        _log.info("a job for %d views failed; each now runs its own: %s", len(asked), first_line(error))
    finally:
        gathering.done.set()


def _attempt(function: Callable[[Any], Any], cell: Sequence[Any]) -> tuple[Any, bool]:
    """What a function returns for a cell, if there is one, and whether it returned at all: what it raises would end the tasks of others."""
    try:
        return (function(cell[0]) if cell else None), True
    except Exception:
        return None, False
