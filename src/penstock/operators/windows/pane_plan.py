"""What the ingest computes for the window operators of a stream, as plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.rankings import RankedParts
from penstock.plan.windows import ALL_TIME, GroupingSet


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
        pane: length of a pane, microseconds; that of `ALL_TIME` of running views: their one pane holds every tuple.
        offset: start of one of them.
        gap: of running views by sessions: how long after its newest tuple a session ends, microseconds.
        sets: the grouping sets; none: all keys together are the one way to group.
        set_key: the name of the grouping ID in the partials, a key behind the others; "" without grouping sets.
    """

    id: int
    selections: tuple[int | None, ...]
    keys: tuple[PaneColumn, ...]
    arguments: tuple[PaneColumn, ...]
    raising: tuple[str, ...]
    parts: RankedParts | Parts
    pane: int
    offset: int
    gap: int | None = None
    sets: tuple[GroupingSet, ...] = ()
    set_key: str = ""

    @property
    def is_running(self) -> bool:
        """Whether its views are running views."""
        return self.pane == ALL_TIME.pane


@dataclass(frozen=True)
class PaneProgram:
    """The window operators of one plan version of a stream.

    Attributes:
        time: the event time column, a timestamp in microseconds; None: the stream has none, and all operators are running views'.
        operators: what is computed.
        shards: number of shards.
        span: the first and the last event time of the tuples that are wanted in windows, microseconds; None: all.
    """

    time: str | None
    operators: tuple[PanePlan, ...]
    shards: int
    span: tuple[int, int] | None = None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of a batch that are needed, each once."""
        every = [] if self.time is None else [self.time]
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
        time = None if self.time is None else names.get(self.time, self.time)
        return replace(self, time=time, operators=tuple(operators))

    @property
    def wants_every_tuple(self) -> bool:
        """Whether an operator has no condition."""
        return any(not plan.selections for plan in self.operators)

    @cached_property
    def members(self) -> tuple[int | None, ...]:
        """The condition of each operator, of one with several each of them in a row."""
        return tuple(each for plan in self.operators for each in plan.selections or (None,))
