"""Tuples of an ingest task that readers of the log have asked for: those that satisfy a condition, some columns of each.

They are held until they are worth a run; what is held at the end of the task is one, however small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.runs.run import RunPlan
from penstock.operators.windows.pane_plan import PaneColumn
from penstock.operators.windows.satisfied import Satisfied

#: tuples that become a run before their task ends
_HELD_ROWS = 1 << 20
_HELD_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class TuplePlan:
    """What the map stage keeps of a stream's tuples for one demand.

    Attributes:
        id: the demand.
        selection: number of the condition among the program's, None if every tuple is selected.
        columns: what is kept of a tuple.
        raising: boolean columns that are true where an expression raised without which a tuple is not kept.
        run: how the kept columns are laid out.
        or_null: boolean columns that are true where another expression raised; its column is NULL there.
    """

    id: int
    selection: int | None
    columns: tuple[PaneColumn, ...]
    raising: tuple[str, ...]
    run: RunPlan
    or_null: tuple[str, ...] = ()


@dataclass(frozen=True)
class TupleProgram:
    """The demands of one plan version of a stream.

    Attributes:
        plans: what is kept.
    """

    plans: tuple[TuplePlan, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of a batch that are needed, each once."""
        every: list[str] = []
        for plan in self.plans:
            every += [*(each.column for each in plan.columns), *plan.raising, *plan.or_null]
        return tuple(dict.fromkeys(every))

    @property
    def wants_every_tuple(self) -> bool:
        """Whether a demand has no condition."""
        return any(plan.selection is None for plan in self.plans)


class TupleStage:
    """Gathers the tuples of one task at a time.

    Args:
        program: the demands.
    """

    def __init__(self, program: TupleProgram) -> None:
        self.program = program
        self.begin()

    def begin(self) -> None:
        """Starts a new task."""
        self._held: list[list[pa.RecordBatch]] = [[] for _ in self.program.plans]
        self._rows = [0] * len(self._held)
        self._bytes = [0] * len(self._held)
        #: tuples of each demand for which an expression raised, int64[demands]
        self.raised = np.zeros(len(self._held), np.int64)

    def add(
        self, batch: pa.RecordBatch, satisfied: Satisfied, kept: npt.NDArray[np.bool_] | None = None
    ) -> None:
        """Takes in a batch of tuples.

        Args:
            batch: at least the program's columns.
            satisfied: the conditions that its rows satisfy.
            kept: bool[rows], which may be kept at all: an event time too far ahead is no time to be looked for by. Plans whose runs
                are untimed keep all the same. None: all.
        """
        for number, plan in enumerate(self.program.plans):
            rows = None if plan.selection is None else satisfied.rows_of(plan.selection)
            if kept is not None and not plan.run.is_untimed:
                rows = np.flatnonzero(kept) if rows is None else rows[kept[rows]]
            for name in plan.raising:
                raised = batch.column(name).to_numpy(zero_copy_only=False)
                if raised.any():
                    whole = np.flatnonzero(~raised) if rows is None else rows[~raised[rows]]
                    self.raised[number] += (batch.num_rows if rows is None else len(rows)) - len(whole)
                    rows = whole
            self.raised[number] += _raised(batch, plan.or_null, rows)
            if rows is None or len(rows):
                self._hold(number, _taken(batch, plan.columns, rows))

    def runs(self, *, all_held: bool) -> Iterator[tuple[TuplePlan, pa.Table]]:
        """Hands out tuples that are to become a run each.

        Args:
            all_held: whether those that are too few for now are handed out too.
        """
        for number, plan in enumerate(self.program.plans):
            is_full = self._rows[number] >= _HELD_ROWS or self._bytes[number] >= _HELD_BYTES
            if self._rows[number] and (is_full or all_held):
                held = self._held[number]
                self._held[number], self._rows[number], self._bytes[number] = [], 0, 0
                yield plan, pa.Table.from_batches(held)

    def _hold(self, number: int, tuples: pa.RecordBatch) -> None:
        if tuples.num_rows:
            self._held[number].append(tuples)
            self._rows[number] += tuples.num_rows
            self._bytes[number] += tuples.nbytes


def _raised(batch: pa.RecordBatch, names: Sequence[str], rows: npt.NDArray[np.int64] | None) -> int:
    """For how many rows one of some columns is true."""
    if not names:
        return 0
    raised = np.logical_or.reduce([batch.column(name).to_numpy(zero_copy_only=False) for name in names])
    return int(np.count_nonzero(raised if rows is None else raised[rows]))


def _taken(
    batch: pa.RecordBatch, columns: Sequence[PaneColumn], rows: npt.NDArray[np.int64] | None
) -> pa.RecordBatch:
    places = None if rows is None or len(rows) == batch.num_rows else pa.array(rows)
    arrays = []
    for each in columns:
        values = batch.column(each.column)
        if places is not None:
            values = values.take(places)
        arrays.append(values if values.type == each.type else values.cast(each.type))
    schema = pa.schema([(each.name, each.type) for each in columns])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
