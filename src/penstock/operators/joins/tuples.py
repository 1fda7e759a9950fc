"""The tuples of an input that a cut's cell joins: parts of sorted runs as they lie, and which of their rows are meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.gather import SLOT_SHIFT, Addresses, Ids
from penstock.operators.joins.columns import Column
from penstock.operators.routing.routers import GridRouter
from penstock.operators.runs.run import Part, Run
from penstock.plan.joins import JoinPlan, Method, ProbeOrder

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RunSlice:
    """Tuples of some entries of a log in a sorted run, which may hold those of others.

    Attributes:
        run: the run.
        after, until: the entries behind one and up to another; a run of one entry is meant as a whole.
    """

    run: Run
    after: int
    until: int

    @property
    def is_whole(self) -> bool:
        """Whether all tuples of the run are meant."""
        return self.run.entries is None or (
            self.after < self.run.entries[0] and self.run.entries[1] <= self.until
        )

    @property
    def is_empty(self) -> bool:
        """Whether none can be."""
        return self.run.entries is not None and not (
            max(self.after + 1, self.run.entries[0]) <= min(self.until, self.run.entries[1])
        )

    def rows(self) -> int:
        """How many tuples are meant."""
        if self.is_whole:
            return self.run.rows
        meant = (part.rows_of(self.after, self.until) for part in map(self.run.part, self.run.parts) if part)
        return sum(int(np.count_nonzero(each)) for each in meant if each is not None)


@dataclass(frozen=True, slots=True, eq=False)
class InputRuns:
    """The tuples of an input, sorted by one key.

    Attributes:
        new: those of the cut's entries; none for a static table.
        old: those of the entries before them that may still find partners; all of a static table.
    """

    new: tuple[RunSlice, ...]
    old: tuple[RunSlice, ...]


@dataclass(frozen=True, slots=True)
class Stripe:
    """Which of a cell's new tuples one of several tasks joins: every so many-th of each slot, with all that the cell holds.

    Attributes:
        number: of the stripe, from 0.
        of: how many stripes there are.
    """

    number: int = 0
    of: int = 1

    def of_slot(self, slot: Slot) -> Ids:
        """Those of the rows that are meant and not loose, by id; slots begin with different stripes, however few rows they have."""
        return slot.ids()[(self.number - slot.number) % self.of :: self.of]


#: all of them
WHOLE = Stripe()


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A part among those at hand, and which of its rows are meant.

    Attributes:
        number: of the slot.
        part: the part.
        after, until: the entries that are meant, counted as in `Part.entries`; None: all rows are.
        is_new: whether they are of the cut's entries.
    """

    number: int
    part: Part
    limits: tuple[int, int] | None
    is_new: bool

    def rows(self) -> Ints:
        """The rows that are meant and not loose."""
        return self.meant(np.arange(len(self.part.times)))

    def meant(self, rows: Ints) -> Ints:
        """Those of some rows that are meant."""
        if self.limits is None:
            return rows
        assert self.part.entries is not None, "otherwise all of its rows are of one entry"
        entries = self.part.entries[rows]
        return rows[(entries > self.limits[0]) & (entries <= self.limits[1])]

    def ids(self) -> Ids:
        """Ids of the rows that are meant and not loose, in the part's order."""
        return self.rows() + (self.number << SLOT_SHIFT)


class CellTuples:
    """The tuples of an input in a cell, sorted by one key.

    Args:
        runs: the runs.
        key: number of the key they are sorted by; None: by event time alone.
        cell: number of the cell.
    """

    def __init__(self, runs: InputRuns, key: int | None, cell: int) -> None:
        self.key = key
        self.slots: list[Slot] = []
        self._columns: dict[str, Column] = {}
        for is_new, slices in ((True, runs.new), (False, runs.old)):
            self._add(slices, cell, is_new)

    def _add(self, slices: Iterable[RunSlice], cell: int, is_new: bool) -> None:
        for each in slices:
            if each.is_empty:
                continue
            for part in each.run.cell(cell):
                limits = (
                    None if each.is_whole else (each.after - part.first_entry, each.until - part.first_entry)
                )
                self.slots.append(Slot(len(self.slots), part, limits, is_new))

    @property
    def new(self) -> list[Slot]:
        """Slots of the cut's entries."""
        return [slot for slot in self.slots if slot.is_new]

    @property
    def old(self) -> list[Slot]:
        """Slots of the entries before them."""
        return [slot for slot in self.slots if not slot.is_new]

    def column(self, name: str) -> Column:
        """A column of the tuples, by ids.

        Raises:
            ValueError: the runs do not have it, or have it in different types.
        """
        if name not in self._columns:
            absent = [
                slot.part.tuples.schema.names
                for slot in self.slots
                if name not in slot.part.tuples.schema.names
            ]
            if absent:
                raise ValueError(f"a run has no column {name}; it has {', '.join(absent[0])}")
            self._columns[name] = Column([slot.part.tuples.column(name) for slot in self.slots])
        return self._columns[name]

    @cached_property
    def times(self) -> Column:
        """Event times of rows that are not loose, int64 microseconds."""
        return Column([_plain(slot.part.times) for slot in self.slots])

    @cached_property
    def numbers(self) -> Column:
        """What rows that are not loose are sorted by, a number each."""
        return Column([_plain(slot.part.keys) for slot in self.slots])

    @cached_property
    def entries(self) -> tuple[Addresses, Ints, Ints]:
        """Of each slot where the entries of its rows lie, and which are meant (see `kernels.partners.list_rows`)."""
        addresses = np.zeros(len(self.slots), np.uint64)
        after, until = np.zeros(len(self.slots), np.int64), np.zeros(len(self.slots), np.int64)
        for slot in self.slots:
            if slot.limits is not None:
                assert slot.part.entries is not None, "otherwise all of its rows are of one entry"
                addresses[slot.number] = slot.part.entries.ctypes.data
                after[slot.number], until[slot.number] = slot.limits
        return addresses, after, until


def span_of(slots: Iterable[Slot]) -> tuple[int, int] | None:
    """Event times that rows of some slots lie between, microseconds, both inclusive; None where no row has one."""
    spans = [
        (each.part.summary.oldest, each.part.summary.newest)
        for each in slots
        if each.part.summary.oldest is not None and each.part.summary.newest is not None
    ]
    return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None


class CellInputs:
    """The tuples of all inputs of a join in a cell, opened as they are asked for.

    Args:
        plan: the join.
        cell: number of the cell.
        inputs: of each input its tuples by the key they are sorted by (None: by event time alone); all of these hold the
            same tuples, dealt out by routers of one grid.
    """

    def __init__(self, plan: JoinPlan, cell: int, inputs: Sequence[Mapping[int | None, InputRuns]]) -> None:
        self._plan, self._cell, self._inputs = plan, cell, inputs
        self._opened: dict[tuple[int, int | None], CellTuples] = {}

    def open(self, number: int, key: int | None) -> CellTuples:
        """The tuples of an input sorted by a key, or otherwise if there is no such order."""
        orders = self._inputs[number]
        key = key if key in orders else next(iter(orders))
        if (number, key) not in self._opened:
            self._opened[number, key] = CellTuples(orders[key], key, self._cell)
        return self._opened[number, key]

    def opened(self, order: ProbeOrder) -> dict[int, CellTuples]:
        """By input its tuples, in the sort order that a probe order reads."""
        found = {order.first: self.open(order.first, order.steps[0].key)}
        for step in order.steps:
            key = None if step.method is Method.NESTED and None in self._inputs[step.input] else step.key
            found[step.input] = self.open(step.input, key)
        return found

    def is_responsible(self, numbers: Iterable[int]) -> bool:
        """Whether rows that some inputs make together are this cell's to tell; False where one of them has no runs.

        Raises:
            ValueError: runs are not dealt out along a grid.
        """
        routers = []
        for number in numbers:
            runs = next((each for each in self._inputs[number].values() if each.new or each.old), None)
            if runs is None:
                return False
            router = (*runs.new, *runs.old)[0].run.plan.router
            if not isinstance(router, GridRouter):
                raise ValueError(f"join {self._plan.name}: runs are dealt out by {router}, not along a grid")
            routers.append(router)
        return routers[0].grid.is_responsible(self._cell, routers)


def _plain(numbers: npt.NDArray[Any]) -> pa.Array:
    """An array of numbers, as it lies."""
    kind = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])
