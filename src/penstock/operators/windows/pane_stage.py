"""Pane partials of an ingest task: each window operator's tuples by pane and keys, split by shard.

Tuples are held until they are worth a group-by, partials until they are worth a merge; at the end of the
task the rows of each shard become Arrow IPC streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.hashing import canonical_columns
from penstock.operators.routing.routers import HashRouter
from penstock.operators.text.known_sets import KnownSets
from penstock.operators.windows.aggregates import SELECTION, Parts, lift_values, merge_values
from penstock.operators.windows.arrival_steps import STEP, Steps
from penstock.operators.windows.event_times import EventTimes, Rows
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.satisfied import Part, Satisfied
from penstock.operators.windows.shard import PARTIALS, VALUES, Envelope
from penstock.operators.windows.spreading import SET, spread, spread_values
from penstock.plan.times import BEFORE_ALL

#: tuples that are grouped at a time
_HELD_ROWS = 1 << 20
_HELD_BYTES = 64 << 20
#: partials are merged when they are twice as many as after the last time, and at least so many
_LOOSE_ROWS = 1 << 20
#: sets of conditions are forgotten, and their partials spread, when they take so much
_SETS_BYTES = 32 << 20
#: tables of what was spread that are held before they are merged
_MOST_SPREAD = 8
#: in the place of a set's number: nobody has asked for it
_UNNUMBERED = np.uint32(2**32 - 1)
#: rows of an envelope
_ENVELOPE_ROWS = 1 << 18


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
        selections: numbers of conditions among the program's, None where it is needed no more; empty: every tuple is selected.
            Tuples of several are told apart by SELECTION, their place here.
        keys: the grouping keys, in order.
        arguments: the columns of `parts`.
        raising: boolean columns that are true where an expression of the operator raised.
        parts: what is kept of each pane and group.
        pane: length of a pane, microseconds.
        offset: start of one of them.
    """

    id: int
    selections: tuple[int | None, ...]
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
        return any(not plan.selections for plan in self.operators)

    @cached_property
    def members(self) -> tuple[int | None, ...]:
        """The condition of each operator, of one with several each of them in a row."""
        return tuple(each for plan in self.operators for each in plan.selections or (None,))


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
        held = (_HeldBySets if len(plan.selections) > 1 else _Held for plan in self.program.operators)
        self._held = [
            make(plan, has_steps=has_steps) for make, plan in zip(held, self.program.operators, strict=True)
        ]
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
                if in_time is not None and too_late is not None:
                    too_late[_those(kept, ~in_time)] = True
                    kept = _those(kept, in_time)
                held.add(batch, times.values, kept, steps)
        return too_late if too_late is not None and too_late.any() else None

    def _kept(
        self,
        held: _Held,
        rows: Rows | None,
        batch: pa.RecordBatch,
        times: EventTimes,
        raised: npt.NDArray[np.int64],
    ) -> Rows | None:
        """Those of some rows of which no expression raised, with usable event times in the program's span."""
        for name in held.plan.raising:
            own = batch.column(name).to_numpy(zero_copy_only=False)
            if own.any():
                raised += held.count(rows, own)
                rows = _those(rows, ~own)
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
        self.set_tuples = self.set_partials = 0

    def select(self, satisfied: Satisfied) -> Iterator[Rows | None]:
        """The rows of a batch that satisfy the condition, ascending; None: all. They are to be added before the next are asked for."""
        if not self.plan.selections:
            yield None
            return
        (condition,) = self.plan.selections
        rows = satisfied.rows_of(condition)
        if len(rows):
            yield rows

    def count(self, rows: Rows | None, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """int64[selections]: how many of the rows that were selected last are chosen."""
        return np.array([np.count_nonzero(chosen if rows is None else chosen[rows])])

    def add(self, batch: pa.RecordBatch, times: Rows, rows: Rows | None, steps: Steps | None) -> None:
        """Takes in rows of the batch whose rows were selected last; None: all."""
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
        table = self._labelled(pa.table(columns), rows)
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

    def _labelled(self, tuples: pa.Table, rows: Rows | None) -> pa.Table:  # noqa: ARG002
        return tuples

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


class _HeldBySets(_Held):
    """The like of an operator with several conditions: by the set of those that a tuple satisfies, until the task ends."""

    def __init__(self, plan: PanePlan, *, has_steps: bool) -> None:
        super().__init__(plan, has_steps=has_steps)
        self._groups = self._grouping
        self._grouping = [SET, *self._groups]
        self._selections = np.array([-1 if each is None else each for each in plan.selections], np.int32)
        self._sets = KnownSets()
        #: for each family of classes what `_signatures` gives
        self._families: dict[object, npt.NDArray[np.uint32]] = {}
        self._numbers = np.zeros(0, np.uint32)
        self._spread: dict[str, list[pa.Table]] = {}

    def select(self, satisfied: Satisfied) -> Iterator[Rows | None]:
        """The rows of a batch that satisfy some of the conditions, ascending, those of each part once."""
        self._places = satisfied.places(self._selections)
        for part in satisfied.parts:
            if self._sets.nbytes > _SETS_BYTES:
                self._spread_all()
            self._part, self._numbers = part, part.of_rows(self._signatures(part))
            rows = np.flatnonzero(self._numbers)
            if len(rows):
                yield rows

    def _signatures(self, part: Part) -> npt.NDArray[np.uint32]:
        """uint32[classes]: the number of the set of each class with rows and 1, 0 where it satisfies nothing."""
        found = np.full(len(part.offsets) - 1, _UNNUMBERED, np.uint32)
        known = self._families.get(part.family, found[:0])
        found[: len(known)] = known
        fresh = part.occurring() & (found == _UNNUMBERED)
        if fresh.any():
            found[fresh] = 0
            classes, selections = part.pairs(fresh, self._places)
            self._sets.number(selections, classes, found)
        if part.family is not None:
            self._families[part.family] = found
        return found

    def count(self, rows: Rows | None, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """int64[selections]: how many of the rows that were selected last are chosen."""
        part = self._part
        classes, selections = part.pairs(part.occurring(), self._places)
        own = np.flatnonzero(chosen) if rows is None else rows[chosen[rows]]
        of_classes = own if part.classes is None else part.classes[own]
        times = np.bincount(of_classes, minlength=len(part.offsets) - 1)[classes]
        return np.bincount(selections, times, len(self.plan.selections)).astype(np.int64)

    def tables(self) -> dict[str, pa.Table]:
        """All partials by kind of envelope; nothing where no tuple came."""
        self._spread_all()
        return {kind: self._merged(kind, tables) for kind, tables in self._spread.items()}

    def _merged(self, kind: str, tables: Sequence[pa.Table]) -> pa.Table:
        """What was spread at different times as one table."""
        groups = [SELECTION, *self._groups]
        table = pa.concat_tables(tables)
        if len(tables) == 1:
            return table
        return self.plan.parts.merge(table, groups) if kind == PARTIALS else merge_values(table, groups)

    def _labelled(self, tuples: pa.Table, rows: Rows | None) -> pa.Table:
        self.set_tuples += tuples.num_rows
        return tuples.append_column(SET, pa.array(self._numbers[rows].astype(np.int32) - 1))

    def _spread_all(self) -> None:
        """Spreads what is held over the conditions, and forgets the sets."""
        for kind, table in super().tables().items():
            if kind == PARTIALS:
                self.set_partials += table.num_rows
                own = spread(self.plan.parts, table, self._sets, self._groups)
            else:
                own = spread_values(table, self._sets, self._groups)
            tables = self._spread.setdefault(kind, [])
            tables.append(own)
            if len(tables) > _MOST_SPREAD:
                self._spread[kind] = [self._merged(kind, tables)]
        self._partials, self._settled = [], 0
        self._values = {name: [] for name in self._values}
        self._sets, self._families = KnownSets(), {}


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
