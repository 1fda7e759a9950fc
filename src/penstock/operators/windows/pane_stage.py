"""Pane partials of an ingest task: each window operator's tuples by pane and keys, split by shard.

Tuples are held until they are worth a group-by, partials until they are worth a merge; at the end of the
task the rows of each shard become Arrow IPC streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.hashing import canonical_columns
from penstock.operators.routing.routers import HashRouter
from penstock.operators.windows.aggregates import Parts, lift_values, merge_values
from penstock.operators.windows.arrival_steps import STEP, Steps
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import PARTIALS, VALUES, Envelope
from penstock.plan.times import BEFORE_ALL, EARLIEST, LATEST

Rows = npt.NDArray[np.int64]

#: tuples that are grouped at a time
_HELD_ROWS = 1 << 20
_HELD_BYTES = 64 << 20
#: partials are merged when they are twice as many as after the last time, and at least so many
_LOOSE_ROWS = 1 << 20
#: rows of an envelope
_ENVELOPE_ROWS = 1 << 18
#: a wall clock without time zone is at most this far ahead of UTC, in microseconds
_FARTHEST_ZONE = 14 * 3_600_000_000
#: stands for NULL
_NULL = -(2**63)
#: stands for all times before EARLIEST: too late for any window
_TOO_EARLY = BEFORE_ALL - 1
#: about so many event times give a batch's median
_SAMPLE = 512


@dataclass(frozen=True, slots=True)
class PaneColumn:
    """A key or an argument.

    Attributes:
        column: its name in the batches.
        name: its name in the partials; the same for as long as the operator lives.
        type: its type there.
    """

    column: str
    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class PanePlan:
    """What the map stage computes for one window operator.

    Attributes:
        id: the operator.
        selection: number of the condition among the program's, None if every tuple is selected.
        keys: the grouping keys, in order.
        arguments: the columns of `parts`.
        raising: boolean columns that are true where an expression of the operator raised.
        parts: what is kept of each pane and group.
        pane: length of a pane, microseconds.
        offset: start of one of them.
    """

    id: int
    selection: int | None
    keys: tuple[PaneColumn, ...]
    arguments: tuple[PaneColumn, ...]
    raising: tuple[str, ...]
    parts: Parts
    pane: int
    offset: int


@dataclass(frozen=True)
class PaneProgram:
    """The window operators of one plan version of a stream.

    Attributes:
        time: the event time column, a timestamp in microseconds.
        operators: what is computed.
        selections: number of distinct conditions.
        shards: number of shards.
        span: the first and the last event time of the tuples that are wanted, microseconds; None: all.
    """

    time: str
    operators: tuple[PanePlan, ...]
    selections: int
    shards: int
    span: tuple[int, int] | None = None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of a batch that are needed, each once."""
        every = [self.time]
        for plan in self.operators:
            every += [*(each.column for each in (*plan.keys, *plan.arguments)), *plan.raising]
        return tuple(dict.fromkeys(every))

    def renamed(self, names: Mapping[str, str]) -> PaneProgram:
        """The program over batches in which some columns have other names."""

        def column(each: PaneColumn) -> PaneColumn:
            return replace(each, column=names.get(each.column, each.column))

        operators = (
            replace(
                plan,
                keys=tuple(map(column, plan.keys)),
                arguments=tuple(map(column, plan.arguments)),
                raising=tuple(names.get(name, name) for name in plan.raising),
            )
            for plan in self.operators
        )
        return replace(self, time=names.get(self.time, self.time), operators=tuple(operators))

    @property
    def wants_every_tuple(self) -> bool:
        """Whether an operator has no condition."""
        return any(plan.selection is None for plan in self.operators)


@dataclass(frozen=True, slots=True, eq=False)
class EventTimes:
    """The event times of a batch.

    Attributes:
        values: int64, microseconds since the epoch; anything where it is NULL, a time before BEFORE_ALL where it is
            before EARLIEST.
        usable: where it is neither NULL nor beyond what is kept ahead, nor after LATEST; None: everywhere.
        nulls: number of those that are NULL.
        ahead: number of those that are too far ahead to be believed, and kept all the same.
        future: number of those that are beyond what is kept.
        oldest, newest: of those that are believed, None where there is none.
        furthest: the largest of the usable ones, None where there is none.
        believed: where it is believed; None: everywhere.
        has_early: whether some are before EARLIEST: those are usable and too late for any window, but not believed.
    """

    values: Rows
    usable: npt.NDArray[np.bool_] | None
    nulls: int
    ahead: int
    future: int
    oldest: int | None
    newest: int | None
    furthest: int | None
    believed: npt.NDArray[np.bool_] | None = None
    has_early: bool = False

    def oldest_since(self, moment: int) -> int | None:
        """The oldest usable one not before a moment, None where there is none."""
        if self.oldest is None or self.oldest >= moment:
            return self.oldest
        good = self.values if self.usable is None else self.values[self.usable]
        recent = good[good >= moment]
        return int(recent.min()) if len(recent) else None

    @property
    def not_future(self) -> npt.NDArray[np.bool_] | None:
        """Where it is not beyond what is kept ahead, or NULL; None: everywhere."""
        if self.usable is None or not self.future:
            return None
        kept: npt.NDArray[np.bool_] = self.usable | (self.values == _NULL)
        return kept

    @property
    def middle(self) -> tuple[int, int] | None:
        """How many are not NULL and their median, by a sample; None where there are none."""
        count = len(self.values) - self.nulls
        if not count:
            return None
        good = self.values[self.values != _NULL] if self.nulls else self.values
        sample = good[:: max(1, len(good) // _SAMPLE)]
        return count, int(np.partition(sample, len(sample) // 2)[len(sample) // 2])


def event_times(column: pa.Array, limit: int, kept_ahead: int = 0) -> EventTimes:
    """Reads an event time column.

    Args:
        column: timestamps in microseconds.
        limit: the largest one to be believed, microseconds in UTC.
        kept_ahead: how far beyond it tuples are kept, microseconds.
    """
    if column.type.tz is None:
        limit += _FARTHEST_ZONE
    limit, last = min(limit, LATEST), min(limit + kept_ahead, LATEST)
    numbers = column.cast(pa.int64())
    nulls = numbers.null_count
    values = pc.fill_null(numbers, _NULL).to_numpy() if nulls else numbers.to_numpy()
    if not len(values):
        return EventTimes(values, None, 0, 0, 0, None, None, None)
    oldest, newest = int(values.min()), int(values.max())
    if not nulls and oldest >= EARLIEST and newest <= limit:
        return EventTimes(values, None, 0, 0, 0, oldest, newest, newest)
    is_there = numbers.is_valid().to_numpy(zero_copy_only=False) if nulls else np.True_
    usable = (values <= last) & is_there
    is_early = (values < EARLIEST) & is_there
    is_known = usable & ~is_early
    is_believed = is_known & (values <= limit)
    known, believed = values[is_known], values[is_believed]
    return EventTimes(
        np.where(is_early, _TOO_EARLY, values),
        usable,
        nulls,
        ahead=len(known) - len(believed),
        future=len(values) - nulls - int(np.count_nonzero(usable)),
        oldest=int(believed.min()) if len(believed) else None,
        newest=int(believed.max()) if len(believed) else None,
        furthest=int(known.max()) if len(known) else None,
        believed=is_believed,
        has_early=bool(is_early.any()),
    )


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
        self._held = [_Held(plan, has_steps=has_steps) for plan in self.program.operators]
        #: tuples each operator lost to an expression that raised
        self.raised = np.zeros(len(self.program.operators), np.int64)

    def add(
        self, batch: pa.RecordBatch, times: EventTimes, selected: Sequence[Rows], steps: Steps | None = None
    ) -> npt.NDArray[np.bool_] | None:
        """Takes in a batch of tuples.

        Args:
            batch: at least the program's columns.
            times: of its event time column.
            selected: for each condition the rows that satisfy it, ascending; empty where
                none of the batch's rows satisfies any.
            steps: the tuples' arrival steps, where the task's have such.

        Returns:
            Where a tuple is in no window because it is too late; None: nowhere.
        """
        in_time = self._in_time(times)
        too_late = None if in_time is None else np.zeros(batch.num_rows, np.bool_)
        nothing = np.zeros(0, np.int64)
        for number, held in enumerate(self._held):
            condition = held.plan.selection
            rows = None if condition is None else (selected[condition] if selected else nothing)
            if rows is not None and not len(rows):
                continue
            for name in held.plan.raising:
                raised = batch.column(name).to_numpy(zero_copy_only=False)
                if raised.any():
                    kept = _those(rows, ~raised)
                    self.raised[number] += (batch.num_rows if rows is None else len(rows)) - len(kept)
                    rows = kept
            if times.usable is not None:
                rows = _those(rows, times.usable)
            if in_time is not None and too_late is not None:
                too_late[_those(rows, ~in_time)] = True
                rows = _those(rows, in_time)
            if self.program.span is not None:
                first, last = self.program.span
                rows = _those(rows, (times.values >= first) & (times.values <= last))
            held.add(batch, times.values, rows, steps)
        return too_late if too_late is not None and too_late.any() else None

    def _in_time(self, times: EventTimes) -> npt.NDArray[np.bool_] | None:
        """Where a tuple is not too late; None: everywhere."""
        if not times.has_early and (times.oldest is None or times.oldest >= self._too_late_before):
            return None
        return times.values >= self._too_late_before

    def envelopes(self) -> list[tuple[int, Envelope]]:
        """The task's partials: (shard, envelope) pairs."""
        found = []
        for held in self._held:
            for kind, table in held.tables().items():
                for shard, own in enumerate(_split(table, held.keys, self.program.shards)):
                    found += [
                        (shard, Envelope(held.plan.id, kind, _stream(own.slice(start, _ENVELOPE_ROWS))))
                        for start in range(0, own.num_rows, _ENVELOPE_ROWS)
                    ]
        return found


class _Held:
    """One operator's tuples and partials."""

    def __init__(self, plan: PanePlan, *, has_steps: bool) -> None:
        self.plan = plan
        self._has_steps = has_steps
        self.keys = [key.name for key in plan.keys]
        self._columns = {each.name: each for each in (*plan.keys, *plan.arguments)}
        self._grouping = [PANE, *self.keys, *([STEP] if has_steps else [])]
        self._exact = {*self.keys, *plan.parts.values}
        self._tuples: list[pa.Table] = []
        self._rows = self._bytes = 0
        self._partials: list[pa.Table] = []
        self._values: dict[str, list[pa.Table]] = {name: [] for name in plan.parts.values}
        self._loose = 0
        self._settled = 0

    def add(self, batch: pa.RecordBatch, times: Rows, rows: Rows | None, steps: Steps | None) -> None:
        plan = self.plan
        own = times if rows is None else times[rows]
        if not len(own):
            return
        panes = (own - plan.offset) // plan.pane * plan.pane + plan.offset
        columns = {PANE: pa.array(panes)}
        if self._has_steps:
            assert steps is not None, "all tuples of a task have steps, or none"
            columns[STEP] = pa.array(steps if rows is None else steps[rows])
        places = None if rows is None else pa.array(rows)
        for name, each in self._columns.items():
            values = batch.column(each.column)
            if values.type != each.type:
                values = values.cast(each.type)
            columns[name] = values if places is None else values.take(places)
        table = pa.table(columns)
        self._tuples.append(table)
        self._rows += len(own)
        self._bytes += table.nbytes
        if self._rows >= _HELD_ROWS or self._bytes >= _HELD_BYTES:
            self._lift()

    def tables(self) -> dict[str, pa.Table]:
        """All partials by kind of envelope; nothing where no tuple came."""
        self._lift()
        if not self._partials:
            return {}
        self._merge()
        return {PARTIALS: self._partials[0]} | {
            VALUES + name: tables[0] for name, tables in self._values.items()
        }

    def _lift(self) -> None:
        if not self._tuples:
            return
        tuples = canonical_columns(pa.concat_tables(self._tuples), self._exact)
        self._tuples, self._rows, self._bytes = [], 0, 0
        lifted = self.plan.parts.lift(tuples, self._grouping)
        self._partials.append(lifted)
        self._loose += lifted.num_rows
        for name, tables in self._values.items():
            tables.append(lift_values(tuples, self._grouping, name))
            self._loose += tables[-1].num_rows
        if self._loose > max(_LOOSE_ROWS, self._settled):
            self._merge()

    def _merge(self) -> None:
        if len(self._partials) > 1:
            merged = self.plan.parts.merge(pa.concat_tables(self._partials), self._grouping)
            self._partials = [merged]
            for name, tables in self._values.items():
                self._values[name] = [merge_values(pa.concat_tables(tables), self._grouping)]
        self._settled = self._partials[0].num_rows + sum(each[0].num_rows for each in self._values.values())
        self._loose = 0


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
