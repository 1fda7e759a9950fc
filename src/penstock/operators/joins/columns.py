"""Columns of tuples that lie in many mapped parts: values are decoded for the rows that were found, and only then."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.gather import (
    SLOT_SHIFT,
    Addresses,
    Ids,
    gather_bits,
    gather_double_words,
    gather_ends,
    gather_texts,
    gather_values,
    same_texts,
)

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


class Column:
    """A column of the tuples of some parts, one *slot* each; rows are asked for by ids (see `kernels.gather`).

    Args:
        arrays: of each slot its values, all of one type; at least one.

    Raises:
        ValueError: the types differ.
    """

    def __init__(self, arrays: Sequence[pa.Array]) -> None:
        self._arrays = list(arrays)
        #: the type of the values
        self.type: pa.DataType = arrays[0].type
        if any(array.type != self.type for array in arrays):
            raise ValueError(f"runs of different tuples: {', '.join({str(each.type) for each in arrays})}")

    @property
    def is_text(self) -> bool:
        """Whether values are strings or bytes of any length."""
        kind = self.type
        return bool(
            pa.types.is_string(kind)
            or pa.types.is_binary(kind)
            or pa.types.is_large_string(kind)
            or pa.types.is_large_binary(kind)
        )

    def valid(self, ids: Ids) -> Bools | None:
        """Which rows are not NULL; None: all."""
        if not self._has_nulls:
            return None
        found = np.empty(len(ids), np.bool_)
        return found if gather_bits(self._validity, self._offsets, ids, found) else None

    def words(self, ids: Ids) -> Ints | None:
        """Values as whole numbers that are equal and ordered as they are; arbitrary where NULL.

        Floating-point numbers have one zero and one NaN, the largest. None: the type is no number or time of 64 bits or less.
        """
        kind = self.type
        if pa.types.is_floating(kind) and kind.bit_width >= 32:
            floats = self._gathered(ids, f"f{kind.bit_width // 8}").astype(np.float64) + 0.0
            words = floats.view(np.int64)
            words = np.where(words < 0, words ^ np.int64(2**63 - 1), words)
            words[np.isnan(floats)] = 2**63 - 1
            return words
        if pa.types.is_integer(kind) or (pa.types.is_temporal(kind) and kind.bit_width <= 64):
            sign = "u" if pa.types.is_unsigned_integer(kind) else "i"
            return self._gathered(ids, f"{sign}{kind.bit_width // 8}").astype(np.int64, copy=False)
        return None

    def ends(self, ids: Ids) -> Ints:
        """Where the text of each row ends if they lie behind each other from 0; the values are texts."""
        ends = np.empty(len(ids), np.int64)
        gather_ends(self._texts[0], self._offset_width, ids, ends)
        return ends

    def same(self, ids: Ids, other: Column, other_ids: Ids) -> Bools | None:
        """Which of the texts of two inputs are equal, arbitrary where one is NULL; None: they are no texts."""
        if not self.is_text or other.type != self.type:
            return None
        found = np.empty(len(ids), np.bool_)
        same_texts(*self._texts, ids, *other._texts, other_ids, self._offset_width, found)
        return found

    def take(self, ids: Ids, ends: Ints | None = None) -> pa.Array:
        """The values of rows.

        Args:
            ids: the rows.
            ends: `ends(ids)`, if the values are texts and it is known; the last one is below 2^31.
        """
        kind, rows = self.type, len(ids)
        width = kind.bit_width if _is_plain(kind) else 0
        if self.is_text:
            ends = self.ends(ids) if ends is None else ends
            offsets = np.zeros(rows + 1, f"i{self._offset_width}")
            offsets[1:] = ends
            text = np.empty(int(ends[-1]) if rows else 0, np.uint8)
            gather_texts(self._texts[0], self._offset_width, self._texts[1], ids, text)
            buffers = [pa.py_buffer(offsets), pa.py_buffer(text)]
        elif width == 1:
            bits = np.empty(rows, np.bool_)
            gather_bits(self._values, self._offsets, ids, bits)
            buffers = [_bitmap(bits)]
        elif width in (8, 16, 32, 64):
            buffers = [pa.py_buffer(self._gathered(ids, f"u{width // 8}"))]
        elif width == 128:
            words = np.empty((rows, 2), np.uint64)
            gather_double_words(self._values, ids, words)
            buffers = [pa.py_buffer(words)]
        else:
            return self._taken(ids)
        valid = self.valid(ids)
        return pa.Array.from_buffers(kind, rows, [None if valid is None else _bitmap(valid), *buffers])

    def _gathered(self, ids: Ids, dtype: str) -> npt.NDArray[np.generic]:
        found = np.empty(len(ids), dtype)
        gather_values(self._values, ids, found)
        return found

    def _taken(self, ids: Ids) -> pa.Array:
        """Values of any type, slot by slot."""
        slots = ids >> SLOT_SHIFT
        order = np.argsort(slots, kind="stable")
        pieces, places = np.unique(slots[order], return_index=True)
        bounds = [*places.tolist(), len(ids)]
        rows = (ids & ((1 << SLOT_SHIFT) - 1))[order]
        taken = [
            self._arrays[slot].take(pa.array(rows[begin:end]))
            for slot, begin, end in zip(pieces.tolist(), bounds[:-1], bounds[1:], strict=True)
        ]
        back = np.empty(len(ids), np.int64)
        back[order] = np.arange(len(ids))
        return pa.concat_arrays(taken).take(pa.array(back)) if taken else pa.array([], self.type)

    @cached_property
    def _has_nulls(self) -> bool:
        return any(array.null_count for array in self._arrays)

    @cached_property
    def _offsets(self) -> Ints:
        return np.array([array.offset for array in self._arrays], np.int64)

    @cached_property
    def _validity(self) -> Addresses:
        return _addresses([array.buffers()[0] if array.null_count else None for array in self._arrays])

    @cached_property
    def _values(self) -> Addresses:
        """Of each slot its first value; for bits its first byte."""
        places = _addresses([array.buffers()[1] for array in self._arrays])
        return places + self._offsets.astype(np.uint64) * np.uint64(self.type.bit_width // 8)

    @property
    def _offset_width(self) -> int:
        return 8 if pa.types.is_large_string(self.type) or pa.types.is_large_binary(self.type) else 4

    @cached_property
    def _texts(self) -> tuple[Addresses, Addresses]:
        """Of each slot its first offset, and its bytes."""
        offsets = _addresses([array.buffers()[1] for array in self._arrays])
        data = _addresses([array.buffers()[2] for array in self._arrays])
        return offsets + self._offsets.astype(np.uint64) * np.uint64(self._offset_width), data


def _is_plain(kind: pa.DataType) -> bool:
    """Whether values are so many bits each and nothing else."""
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _addresses(buffers: Sequence[pa.Buffer | None]) -> Addresses:
    return np.array([0 if buffer is None else buffer.address for buffer in buffers], np.uint64)


def _bitmap(bits: Bools) -> pa.Buffer:
    return pa.py_buffer(np.packbits(bits, bitorder="little"))
