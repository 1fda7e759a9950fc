"""Values of string columns where they lie in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Texts:
    """Some strings: UTF-8 in one buffer.

    Attributes:
        address: of the buffer.
        begins: int64[values], where each begins in it; `ends`: int64[values], where it ends.
        holder: what must live as long as the address is used.
    """

    address: int
    begins: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    holder: Any

    def __len__(self) -> int:
        return len(self.begins)

    def take(self, numbers: npt.NDArray[np.int64] | npt.NDArray[np.int32] | slice) -> Texts:
        """Some of them."""
        return Texts(self.address, self.begins[numbers], self.ends[numbers], self.holder)

    def text(self, number: int) -> str:
        """One of them; bytes that are no UTF-8 become U+FFFD."""
        view: npt.NDArray[np.uint8] = np.frombuffer(self.holder, np.uint8)
        return view[self.begins[number] : self.ends[number]].tobytes().decode(errors="replace")


def texts_of(values: list[str]) -> Texts:
    """Strings of Python."""
    return texts_in(pa.array(values, pa.large_string()), None)


def texts_in(array: pa.Array, rows: Rows | None) -> Texts:
    """The values of rows (None: of all) of an array of string or large_string; of NULL none, or any."""
    kind = np.int64 if pa.types.is_large_string(array.type) else np.int32
    _, offsets, data = array.buffers()
    holder = data if data is not None and data.size else _NOTHING
    if not len(array):
        none = np.empty(0, np.int64)
        return Texts(holder.address, none, none, holder)
    all_offsets = np.frombuffer(offsets, kind, len(array) + 1, array.offset * np.dtype(kind).itemsize)
    begins, ends = all_offsets[:-1], all_offsets[1:]
    if rows is not None:
        begins, ends = begins[rows], ends[rows]
    return Texts(holder.address, begins.astype(np.int64), ends.astype(np.int64), holder)


def plain(array: pa.Array) -> pa.Array:
    """A string column as string or large_string."""
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return array
    if pa.types.is_string_view(array.type) or pa.types.is_null(array.type):
        return array.cast(pa.large_string())
    raise TypeError(f"{array.type} is not a type of strings.")


_NOTHING = pa.py_buffer(b"\0" * 8)
