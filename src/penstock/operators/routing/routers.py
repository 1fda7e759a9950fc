"""Routers: how the rows of a log are dealt out to the cells of those who read them.

A router deals each row to one *part*; a part lies in one or more cells, and all rows of a part in the same ones. So a
row that several cells need is written once: its part's bytes are what each of them reads.

- `HashRouter`: a part is a cell. The windows' shards are dealt out like this.
- `GridRouter`: the cells of a join are the points of a grid with a dimension a join key (HyperCube; Afrati and Ullman,
  "Optimizing joins in a map-reduce environment"). An input that has the keys of some dimensions is dealt out along
  those, and lies in every cell along the others: rows that agree on all dimensions they share meet.

**Equal keys meet whatever the types of their columns.** The hash is of the value, so all integer types agree with each
other; other types do not (1 and 1.0, a decimal of another scale). Two inputs must therefore bring the keys of a dimension
in one type, the one in which Spark compares them; a dimension names it and refuses any other. Floating-point keys have
one zero and one NaN, as in Spark's joins and groups.

**NULL.** As a key of `HashRouter` it is a value like any other: a group. In a dimension of a grid it matches nothing, so
any place along it would do: it lies in the first slice, where an outer join finds it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import TypeMismatchError
from penstock.operators.hashing import canonical_columns, key_hashes

Parts = npt.NDArray[np.int64]

#: tells the hashes of a grid's dimensions apart: equal keys of two dimensions would crowd its diagonal
_ODD = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


class Router(Protocol):
    """Deals rows out."""

    @property
    def cells(self) -> int:
        """Number of cells, numbered from 0."""

    @property
    def parts(self) -> int:
        """Number of parts, numbered from 0."""

    def deal(self, table: pa.Table) -> Parts:
        """The part of each row.

        Raises:
            TypeMismatchError: a key has another type than the router is for.
        """

    def cells_of(self, part: int) -> tuple[int, ...]:
        """The cells a part lies in, ascending."""

    def document(self) -> dict[str, Any]:
        """The router as JSON; `router_of` reads it."""


@dataclass(frozen=True, slots=True)
class HashRouter:
    """A cell by the hash of some keys; without keys all rows are the first cell's.

    Attributes:
        keys: the columns.
        cells: number of cells.
    """

    keys: tuple[str, ...]
    cells: int

    @property
    def parts(self) -> int:
        """Number of parts: one a cell that rows may be dealt to."""
        return self.cells if self.keys else 1

    def deal(self, table: pa.Table) -> Parts:
        """The cell of each row."""
        if self.parts == 1:
            return np.zeros(table.num_rows, np.int64)
        return (hashes_of(table, self.keys) % np.uint64(self.cells)).astype(np.int64)

    def cells_of(self, part: int) -> tuple[int, ...]:
        """The cell itself."""
        return (part,)

    def document(self) -> dict[str, Any]:
        """The router as JSON."""
        return {"kind": "hash", "keys": list(self.keys), "cells": self.cells}


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension of a grid: one join key, of one or more columns.

    Attributes:
        name: for those who look at it.
        types: names of the Arrow types of the key's columns, those in which Spark compares them.
        share: into how many slices its keys are dealt.
    """

    name: str
    types: tuple[str, ...]
    share: int

    def slices(self, table: pa.Table, columns: Sequence[str], number: int) -> Parts:
        """The slice of each row.

        Args:
            table: the rows.
            columns: those of the key.
            number: of the dimension in its grid.

        Raises:
            TypeMismatchError: a column has another type than the key.
        """
        found = tuple(str(table.schema.field(column).type) for column in columns)
        if found != self.types:
            raise TypeMismatchError(
                f"key {self.name}: columns {', '.join(columns)} are {', '.join(found)}, but the inputs of the join are dealt "
                f"out by {', '.join(self.types)}; convert them to those types first"
            )
        if self.share == 1:
            return np.zeros(table.num_rows, np.int64)
        seeded = (hashes_of(table, columns) ^ np.uint64(_ODD * (number + 1) & _WORD)) * np.uint64(_ODD)
        slices = ((seeded >> np.uint64(32)) % np.uint64(self.share)).astype(np.int64)
        missing = [table.column(column) for column in columns if table.column(column).null_count]
        for column in missing:
            slices[column.is_null().to_numpy()] = 0
        return slices


@dataclass(frozen=True)
class Grid:
    """The cells of a join: the points of a grid, the first dimension's coordinate the most significant.

    Attributes:
        dimensions: the join keys.
    """

    dimensions: tuple[Dimension, ...]

    @cached_property
    def shares(self) -> tuple[int, ...]:
        """Number of slices by dimension."""
        return tuple(dimension.share for dimension in self.dimensions)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return prod(self.shares)

    def point(self, cell: int) -> tuple[int, ...]:
        """The coordinates of a cell."""
        return tuple(int(each) for each in np.unravel_index(cell, self.shares)) if self.shares else ()

    def cell(self, point: Sequence[int]) -> int:
        """The cell at some coordinates."""
        return int(np.ravel_multi_index(tuple(point), self.shares)) if self.shares else 0

    def is_responsible(self, cell: int, inputs: Collection[GridRouter]) -> bool:
        """Whether what rows of some inputs make together is this cell's to say.

        Such rows meet in every cell along the dimensions that none of the inputs has; the first of those says it.
        """
        point = self.point(cell)
        return all(
            any(each.keys[number] for each in inputs) or not point[number] for number in range(len(point))
        )


@dataclass(frozen=True)
class GridRouter:
    """Deals an input of a join out to the cells of a grid.

    Ordinary parts are the points along the dimensions the input has. A hot key that is to be spread over several cells
    becomes a part of its own behind those, with the cells it is spread over (or, on the other inputs, copied to).

    Attributes:
        grid: the join's.
        keys: for each dimension the columns of the input that are its key; empty where the input has none.
    """

    grid: Grid
    keys: tuple[tuple[str, ...], ...]

    @cached_property
    def _own(self) -> tuple[int, ...]:
        """Numbers of the dimensions that the input has."""
        return tuple(number for number, columns in enumerate(self.keys) if columns)

    @cached_property
    def _shares(self) -> tuple[int, ...]:
        return tuple(self.grid.shares[number] for number in self._own)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.grid.cells

    @property
    def parts(self) -> int:
        """Number of parts."""
        return prod(self._shares)

    def deal(self, table: pa.Table) -> Parts:
        """The part of each row."""
        parts = np.zeros(table.num_rows, np.int64)
        for number in self._own:
            dimension = self.grid.dimensions[number]
            parts = parts * dimension.share + dimension.slices(table, self.keys[number], number)
        return parts

    def cells_of(self, part: int) -> tuple[int, ...]:
        """The cells that agree with a part on the input's dimensions."""
        fixed = (
            dict(zip(self._own, np.unravel_index(part, self._shares), strict=True)) if self._shares else {}
        )
        along = (
            [int(fixed[number])] if number in fixed else range(share)
            for number, share in enumerate(self.grid.shares)
        )
        return tuple(self.grid.cell(point) for point in product(*along))

    def document(self) -> dict[str, Any]:
        """The router as JSON."""
        dimensions = [[each.name, list(each.types), each.share] for each in self.grid.dimensions]
        return {"kind": "grid", "dimensions": dimensions, "keys": [list(columns) for columns in self.keys]}


def router_of(document: Mapping[str, Any]) -> Router:
    """A router from its JSON.

    Raises:
        ValueError: it is no router of a kind known here.
    """
    match document:
        case {"kind": "hash", "keys": [*keys], "cells": int(cells)}:
            return HashRouter(tuple(keys), cells)
        case {"kind": "grid", "dimensions": [*dimensions], "keys": [*keys]}:
            grid = Grid(tuple(Dimension(name, tuple(types), share) for name, types, share in dimensions))
            return GridRouter(grid, tuple(map(tuple, keys)))
    raise ValueError(f"no router: {document}")


def hashes_of(table: pa.Table, columns: Sequence[str]) -> npt.NDArray[np.uint64]:
    """`key_hashes` of columns that need not be canonical."""
    return key_hashes(canonical_columns(table.select(list(columns)), columns), columns)
