"""Pane partials of an ingest task: each window operator's tuples by pane and keys, split by shard.

Tuples are held until they are worth a group-by, partials until they are worth a merge; at the end of the
task the rows of each shard become Arrow IPC streams.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.routing.routers import HashRouter
from penstock.operators.windows.arrival_steps import Steps
from penstock.operators.windows.event_times import EventTimes, Rows
from penstock.operators.windows.held_partials import Held, HeldBySets, HeldSessions
from penstock.operators.windows.pane_plan import PanePlan, PaneProgram
from penstock.operators.windows.satisfied import Satisfied
from penstock.operators.windows.shard import Envelope
from penstock.plan.times import BEFORE_ALL, EARLIEST

#: rows of an envelope
_ENVELOPE_ROWS = 1 << 18


class PaneStage:
    """Computes the partials of one task at a time.

    Args:
        program: the window operators.
    """

    def __init__(self, program: PaneProgram) -> None:
        self.program = program
        self.begin()

    def begin(self, too_late_before: int = BEFORE_ALL, *, has_steps: bool = False) -> None:
        """Starts a new task.

        Args:
            too_late_before: tuples with an earlier event time, microseconds, are in no window any more.
            has_steps: whether its tuples have arrival steps.
        """
        self._too_late_before = too_late_before
        self._held = [_held(plan, has_steps=has_steps) for plan in self.program.operators]
        #: tuples each of the program's `members` lost to an expression that raised
        self.raised = np.zeros(len(self.program.members), np.int64)
        #: tuples aggregated by their set of conditions, and partials by set
        self.set_tuples = self.set_partials = 0

    def add(
        self, batch: pa.RecordBatch, times: EventTimes, satisfied: Satisfied, steps: Steps | None = None
    ) -> npt.NDArray[np.bool_] | None:
        """Takes in a batch of tuples.

        Args:
            batch: at least the program's columns.
            times: of its event time column.
            satisfied: the conditions that its rows satisfy.
            steps: the tuples' arrival steps, where the task's have such.

        Returns:
            Where a tuple is in no window because it is too late; None: nowhere.
        """
        in_time = self._in_time(times)
        too_late = None if in_time is None else np.zeros(batch.num_rows, np.bool_)
        member = 0
        for held in self._held:
            first, member = member, member + max(1, len(held.plan.selections))
            for rows in held.select(satisfied):
                kept = self._kept(held, rows, batch, times, self.raised[first:member])
                good = in_time
                if held.plan.gap is not None and times.has_early:
                    good = times.values >= EARLIEST
                elif held.plan.is_running:
                    good = None
                if good is not None and too_late is not None:
                    too_late[_those(kept, ~good)] = True
                    kept = _those(kept, good)
                held.add(batch, times.values, kept, steps)
        return too_late if too_late is not None and too_late.any() else None

    def _kept(
        self,
        held: Held,
        rows: Rows | None,
        batch: pa.RecordBatch,
        times: EventTimes,
        raised: npt.NDArray[np.int64],
    ) -> Rows | None:
        """Those of some rows of which no expression raised; in windows and sessions, with usable event times in the program's span."""
        for name in held.plan.raising:
            own = batch.column(name).to_numpy(zero_copy_only=False)
            if own.any():
                raised += held.count(rows, own)
                rows = _those(rows, ~own)
        if held.plan.is_running and held.plan.gap is None:
            return rows
        if times.usable is not None:
            rows = _those(rows, times.usable)
        if self.program.span is not None:
            first, last = self.program.span
            rows = _those(rows, (times.values >= first) & (times.values <= last))
        return rows

    def _in_time(self, times: EventTimes) -> npt.NDArray[np.bool_] | None:
        """Where a tuple is not too late; None: everywhere."""
        if not times.has_early and (times.oldest is None or times.oldest >= self._too_late_before):
            return None
        return times.values >= self._too_late_before

    def envelopes(self) -> list[tuple[int, Envelope]]:
        """The task's partials: (shard, envelope) pairs."""
        found = []
        for held in self._held:
            tables = held.tables()
            self.set_tuples += held.set_tuples
            self.set_partials += held.set_partials
            for kind, table in tables.items():
                for shard, own in enumerate(_split(table, held.keys, self.program.shards)):
                    found += [
                        (shard, Envelope(held.plan.id, kind, _stream(own.slice(start, _ENVELOPE_ROWS))))
                        for start in range(0, own.num_rows, _ENVELOPE_ROWS)
                    ]
        return found


def _held(plan: PanePlan, *, has_steps: bool) -> Held:
    """What holds the tuples of an operator."""
    if plan.gap is not None:
        return HeldSessions(plan, plan.gap)
    return (HeldBySets if len(plan.selections) > 1 else Held)(plan, has_steps=has_steps)


def _those(rows: Rows | None, good: npt.NDArray[np.bool_]) -> Rows:
    return np.flatnonzero(good) if rows is None else rows[good[rows]]


def _split(table: pa.Table, keys: Sequence[str], shards: int) -> list[pa.Table]:
    """The rows of each shard; without keys all are the first one's."""
    router = HashRouter(tuple(keys), shards)
    if router.parts == 1:
        return [table]
    shard = router.deal(table)
    return [table.take(pa.array(np.flatnonzero(shard == number))) for number in range(router.parts)]


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())
