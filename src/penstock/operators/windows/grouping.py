"""Groups of rows: numbers for equal keys, and what is added up or compared within a group.

Numbers of small range and long runs are numbered without hashing: keys of merged panes are mostly such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.spreading import add_limbs, add_up, take_extremes

Longs = npt.NDArray[np.int64]

#: functions of the bits of whole numbers
BITWISE = {"bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor}

_LARGEST = 2**63 - 1
#: a table of so many places a row, and some, is faster than a hash table
_PLACES_A_ROW, _FEW_PLACES = 8, 1 << 10
#: runs of so many rows on average are worth being numbered once each
_ROWS_A_RUN = 4


def group_codes(table: pa.Table, keys: Sequence[str]) -> Longs:
    """A number for each row, equal where the keys are; 0, 1, ... in order of first occurrence."""
    codes, combinations = np.zeros(table.num_rows, np.int64), 1
    for name in keys:
        part, different = _numbered(table.column(name))
        if combinations * different > _LARGEST:
            codes = _first_seen(codes, combinations)
            combinations = int(codes.max(initial=0)) + 1
        codes, combinations = codes * different + part, combinations * different
    return _first_seen(codes, combinations)


def shared_codes(tables: Sequence[pa.Table], keys: Sequence[str]) -> list[Longs]:
    """`group_codes` of several tables, the same number for the same group in all."""
    if not keys:
        return [np.zeros(table.num_rows, np.int64) for table in tables]
    codes = group_codes(pa.concat_tables([table.select(list(keys)) for table in tables]), keys)
    return np.split(codes, np.cumsum([table.num_rows for table in tables])[:-1])


def first_rows(codes: Longs) -> Longs:
    """The first row of each group, by the numbers of `group_codes`."""
    so_far = np.maximum.accumulate(codes)
    return np.flatnonzero(np.append(True, so_far[1:] > so_far[:-1])[: len(codes)])


class Pairs(Protocol):
    """Rows and the cells that each belongs to; each cell has some row.

    Attributes:
        count: of the cells.
        listed: int64[pairs] each, the rows and their cells, in the order in which a cell's rows are merged.
    """

    @property
    def count(self) -> int: ...
    @property
    def listed(self) -> tuple[Longs, Longs]: ...

    def add(self, values: npt.NDArray[Any], sums: npt.NDArray[Any]) -> None:
        """Adds the value of each row to the sum of its cell, in order."""


@dataclass(frozen=True, slots=True, eq=False)
class ListedPairs:
    """`Pairs` that are listed."""

    listed: tuple[Longs, Longs]
    count: int

    def add(self, values: npt.NDArray[Any], sums: npt.NDArray[Any]) -> None:
        """Adds the value of each row to the sum of its cell, in order."""
        add_up(values, *self.listed, sums)


def added(column: pa.ChunkedArray, pairs: Pairs, nothing: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Sums by cell; NULL where there is nothing to be added.

    Args:
        column: float64, int64 or decimals.
        pairs: which row is added to which cell.
        nothing: bool[cells]; None: each cell has something.
    """
    kind = column.type
    if not pa.types.is_decimal(kind):
        sums = np.zeros(pairs.count, np.float64 if pa.types.is_floating(kind) else np.int64)
        pairs.add(without_nulls(column, 0), sums)
        return pa.array(sums, mask=nothing)
    limbs = kind.bit_width // 64
    whole = pc.fill_null(column, pa.scalar(0, kind)).combine_chunks()
    words = np.frombuffer(whole.buffers()[1], np.uint64)[whole.offset * limbs :][: len(whole) * limbs]
    total = np.zeros((pairs.count, limbs), np.uint64)
    add_limbs(words.reshape(-1, limbs), *pairs.listed, total)
    is_there = None if nothing is None else pa.array(~nothing).buffers()[1]
    return pa.Array.from_buffers(kind, pairs.count, [is_there, pa.py_buffer(total)])


def extreme(column: pa.ChunkedArray, function: str, pairs: Pairs) -> pa.Array:
    """The least or the largest by cell, NULL where all are; see `added`.

    Args:
        column: of any type that has an order.
        function: "min" or "max".
        pairs: see `added`.
    """
    (rows, cells), count = pairs.listed, pairs.count
    if not pa.types.is_int64(column.type):
        listed = pa.table({"cell": cells, "value": column.take(pa.array(rows))})
        found = listed.group_by("cell", use_threads=False).aggregate([("value", function)])
        return found.sort_by("cell").column(f"value_{function}").combine_chunks()
    is_least, is_there = function == "min", column.is_valid().to_numpy()
    extremes = np.full(count, _LARGEST if is_least else -_LARGEST - 1)
    take_extremes(without_nulls(column, 0), is_there, rows, cells, is_least, extremes)
    known = np.zeros(count, np.int64)
    pairs.add(is_there.astype(np.int64), known)
    return pa.array(extremes, mask=known == 0)


def combined_bits(column: pa.ChunkedArray, function: str, pairs: Pairs) -> pa.Array:
    """The bits of all numbers of a cell, int64, NULL where all are; see `added`.

    Args:
        column: int64.
        function: one of `BITWISE`.
        pairs: see `added`.
    """
    rows, cells = pairs.listed
    is_there = column.is_valid().to_numpy()[rows]
    rows, cells = rows[is_there], cells[is_there]
    combine = BITWISE[function]
    found = np.full(pairs.count, combine.identity, np.int64)
    combine.at(found, cells, without_nulls(column, 0)[rows])
    return pa.array(found, mask=np.bincount(cells, minlength=pairs.count) == 0)


def without_nulls(column: pa.ChunkedArray, instead: float) -> npt.NDArray[Any]:
    """The numbers of a column, `instead` for NULL."""
    filled = pc.fill_null(column, instead) if column.null_count else column
    numbers: npt.NDArray[Any] = filled.to_numpy()
    return numbers


def _numbered(column: pa.ChunkedArray) -> tuple[Longs, int]:
    """A number for each value, equal where they are, and what all are below; NULL is a value too."""
    if pa.types.is_signed_integer(column.type) and len(column) and not column.null_count:
        numbers = column.to_numpy()
        least, largest = int(numbers.min()), int(numbers.max())
        if _has_places(largest - least + 1, len(numbers)):
            return numbers.astype(np.int64) - least, largest - least + 1
        heads = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
        if len(heads) * _ROWS_A_RUN <= len(numbers):
            part = np.repeat(_encoded(pa.array(numbers[heads])), np.diff(heads, append=len(numbers)))
            return part, int(part.max()) + 1
    part = _encoded(column.combine_chunks())
    return part, int(part.max(initial=0)) + 1


def _has_places(different: int, rows: int) -> bool:
    return different <= _PLACES_A_ROW * rows + _FEW_PLACES


def _first_seen(codes: Longs, combinations: int) -> Longs:
    """Numbers below `combinations` as 0, 1, ... in order of first occurrence."""
    if not _has_places(combinations, len(codes)):
        return _encoded(pa.array(codes))
    first = np.empty(combinations, np.int64)
    # of several rows of a number the last one that is written, so the first one, is kept
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    firsts = first[codes]
    numbers = np.cumsum(firsts == np.arange(len(codes))) - 1
    found: Longs = numbers[firsts]
    return found


def _encoded(values: pa.Array) -> Longs:
    """A number for each value, 0, 1, ... in order of first occurrence; NULL is a value too."""
    indices = values.dictionary_encode(null_encoding="encode").indices
    codes: Longs = indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes
