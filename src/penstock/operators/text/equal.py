"""Strings of two columns compared by their distinct values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.text.columns import Rows, plain
from penstock.plan.patterns import Form, formed

#: numbers of a pair
ONE_IS_NULL, DIFFERENT, EQUAL = 0, 1, 2

_OF_ASCII = {
    "lower": pc.ascii_lower,
    "upper": pc.ascii_upper,
    "trim": lambda values: pc.ascii_trim(values, " "),
    "ltrim": lambda values: pc.ascii_ltrim(values, " "),
    "rtrim": lambda values: pc.ascii_rtrim(values, " "),
}


def compared(
    left: pa.Array | pa.ChunkedArray,
    right: pa.Array | pa.ChunkedArray,
    forms: tuple[Form, Form],
    if_null: tuple[str | None, str | None],
    rows: Rows | None,
) -> npt.NDArray[np.uint32]:
    """Whether strings of the same row are equal behind functions.

    Args:
        left, right: string, large_string, string_view, or a dictionary of these.
        forms: the functions of each.
        if_null: what a NULL of each becomes behind them; None: NULL.
        rows: int64[], the rows that matter, ascending; None: all.

    Returns:
        uint32[rows]: ONE_IS_NULL, DIFFERENT or EQUAL.
    """
    sides = [_strings(column, rows).dictionary_encode() for column in (left, right)]
    distinct = [
        pa.concat_arrays([formed_values(side.dictionary, form), pa.array([instead], pa.large_string())])
        for side, form, instead in zip(sides, forms, if_null, strict=True)
    ]
    number_of = pa.concat_arrays(distinct).dictionary_encode().indices.fill_null(-1).to_numpy()
    numbers = []
    first = 0
    for side in sides:
        size = len(side.dictionary)
        # what stands for NULL is behind the distinct values
        numbers.append(number_of[first + side.indices.fill_null(size).to_numpy()])
        first += size + 1
    found = np.where(numbers[0] == numbers[1], np.uint32(EQUAL), np.uint32(DIFFERENT))
    found[(numbers[0] < 0) | (numbers[1] < 0)] = ONE_IS_NULL
    return found


def _strings(column: pa.Array | pa.ChunkedArray, rows: Rows | None) -> pa.Array:
    """The values of some rows as large_string."""
    parts = [pa.array([], pa.large_string())]
    first = 0
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        is_dictionary = pa.types.is_dictionary(chunk.type)
        values = plain(chunk.dictionary if is_dictionary else chunk).cast(pa.large_string())
        if rows is not None:
            begin, end = np.searchsorted(rows, (first, first + len(chunk)))
            wanted = pa.array(rows[begin:end] - first)
            values = values.take(chunk.indices.take(wanted) if is_dictionary else wanted)
        elif is_dictionary:
            values = values.take(chunk.indices)
        first += len(chunk)
        parts.append(values)
    return pa.concat_arrays(parts)


def formed_values(values: pa.Array, form: Form) -> pa.Array:
    """Distinct strings behind functions: those of ASCII together, others one by one."""
    if not form:
        return values
    # of an array whose bytes do not begin with its buffer, pyarrow's functions of ASCII give those of other values
    values = pa.concat_arrays([values, values.slice(0, 0)])
    strange = pc.invert(pc.string_is_ascii(values))
    found = values
    for function in form:
        found = _OF_ASCII[function](found)
    if not pc.any(strange).as_py():
        return found
    texts = values.filter(strange).cast(pa.large_binary()).to_pylist()
    changed = [formed(form, text.decode(errors="replace")) for text in texts]
    return pc.replace_with_mask(found, strange, pa.array(changed, pa.large_string()))
