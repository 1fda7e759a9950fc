"""The value beside the largest: of each group the tuple whose `by` is largest or least, with its argument.

Order is Spark's: NaN above all numbers, -0.0 equal to 0.0, text by its bytes; tuples whose `by` is NULL are left out. Of several tuples with
the same `by`, the one with the largest argument is kept, NULL the least, so that partials merge in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.spreading import take_extremes
from penstock.operators.windows.flattening import flattened
from penstock.operators.windows.sorting import Longs, nulls_first, ordered, sortable
from penstock.plan.windows import PICKING, Aggregate

_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Pick:
    """What `max_by` and `min_by` keep of a group.

    Attributes:
        function: "max_by" or "min_by".
        argument: the column whose value is the result.
        by: the column that decides.
    """

    function: str
    argument: str
    by: str

    @classmethod
    def of(cls, aggregate: Aggregate) -> Pick:
        """What an aggregate of `PICKING` is computed from."""
        assert aggregate.function in PICKING, f"{aggregate.function} has one argument"
        assert aggregate.argument is not None, "it is parsed with two arguments"
        assert aggregate.by is not None, "it is parsed with two arguments"
        return cls(aggregate.function, aggregate.argument, aggregate.by)

    @property
    def column(self) -> str:
        """Name of the column of arguments."""
        return f"{self.function}:{self._name}"

    @property
    def by_column(self) -> str:
        """Name of the column of the largest or least `by`, floating point as `ordered` integers; NULL where a group has none."""
        return f"{self.function} by:{self._name}"

    @property
    def _name(self) -> str:
        # names of columns may have colons
        return f"{len(self.by)}:{self.by}:{self.argument}"

    def lift(self, tuples: pa.Table, codes: Longs, groups: int) -> dict[str, pa.ChunkedArray]:
        """The columns of each group; of types without an order ArrowNotImplementedError.

        Args:
            tuples: with both columns.
            codes: int64[tuples], the group of each.
            groups: how many there are.
        """
        rows = np.arange(tuples.num_rows)
        return self._kept(ordered(tuples.column(self.by)), tuples.column(self.argument), rows, codes, groups)

    def merge(self, partials: pa.Table, rows: Longs, cells: Longs, count: int) -> dict[str, pa.ChunkedArray]:
        """The columns of each cell.

        Args:
            partials: with the columns.
            rows, cells: int64[pairs], rows of the partials and the cell that each belongs to.
            count: of the cells.
        """
        by, argument = partials.column(self.by_column), partials.column(self.column)
        return self._kept(by, argument, rows, cells, count)

    def ranks(self, partials: pa.Table) -> npt.NDArray[np.float64]:
        """float64[rows]: the larger one is kept of two rows of a group; NaN where `by` is NULL."""
        by = partials.column(self.by_column)
        order = np.lexsort([*_ascending(partials.column(self.column))[::-1], self._preferred(by)])
        ranks = np.empty(len(order))
        ranks[order] = np.arange(len(order))
        return np.where(by.is_valid().to_numpy(), ranks, np.nan)

    def _preferred(self, by: pa.ChunkedArray) -> Longs:
        """Numbers of which the largest one is kept; those of NULL are any."""
        numbers = sortable(by)
        return numbers if self.function == "max_by" else ~numbers

    def _kept(
        self, by: pa.ChunkedArray, argument: pa.ChunkedArray, rows: Longs, cells: Longs, count: int
    ) -> dict[str, pa.ChunkedArray]:
        if pa.types.is_nested(by.type):
            raise pa.ArrowNotImplementedError(f"no order of {by.type}")
        numbers, is_there = self._preferred(by), by.is_valid().to_numpy()
        largest = np.full(count, -_LARGEST - 1)
        take_extremes(numbers, is_there, rows, cells, False, largest)
        is_kept = is_there[rows] & (numbers[rows] == largest[cells])
        rows, cells = rows[is_kept], cells[is_kept]
        found = np.full(count, -1)
        found[cells] = rows
        is_tied = np.bincount(cells, minlength=count)[cells] > 1
        if is_tied.any():
            rows, cells = rows[is_tied], cells[is_tied]
            keys = _ascending(argument.take(pa.array(rows)))
            order = np.lexsort([*keys[::-1], cells])
            # of several rows of a cell the last one that is written is kept
            found[cells[order]] = rows[order]
        taken = pa.array(found, mask=found < 0)
        return {self.by_column: by.take(taken), self.column: argument.take(taken)}


def _ascending(argument: pa.ChunkedArray) -> list[Longs]:
    """What orders arguments, the first key first: NULL the least, -0.0 before 0.0."""
    keys: list[Longs] = [argument.is_valid().to_numpy().astype(np.int64)]
    columns = flattened(pa.table({"": argument})).columns
    for column in columns:
        keys += nulls_first(column)
    for column in columns:
        if pa.types.is_floating(column.type):
            # equal in Spark's order, but not the same answer
            numbers = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy()
            keys.append((~np.signbit(numbers)).astype(np.int64))
    return keys
