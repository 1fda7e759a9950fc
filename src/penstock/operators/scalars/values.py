"""Values of a batch's rows as arrays of numbers, and back."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bools = npt.NDArray[np.bool_]
#: one value a row, or the same for all
Argument: TypeAlias = "pa.Array | pa.Scalar"
#: one value a row, and the rows at which the function raised; None: none
Found = tuple[pa.Array, Bools | None]


def numbers(value: Argument) -> npt.NDArray[Any]:
    """Values of fixed width as numbers; of a NULL any.

    Args:
        value: numbers, dates (days) or timestamps (microseconds).

    Returns:
        `[rows]`, or `[]` of one value for all.
    """
    kind = _number_type(value.type)
    if isinstance(value, pa.Scalar):
        found = value.cast(_integer(value.type)).as_py() if value.is_valid else 0
        return np.asarray(found, kind)
    if not len(value):
        return np.empty(0, kind)
    return np.frombuffer(value.buffers()[1], kind)[value.offset : value.offset + len(value)]


def array_of(values: npt.NDArray[Any], kind: pa.DataType, *arguments: Argument) -> pa.Array:
    """Numbers as an array, NULL where an argument is.

    Args:
        values: `[rows]`, of the width of the type.
        kind: the type.
        arguments: from which they were computed.
    """
    known = valid(*arguments)
    mask = None if known is None else ~np.broadcast_to(known, values.shape)
    return pa.array(np.ascontiguousarray(values), mask=mask).view(kind)


def valid(*arguments: Argument) -> Bools | None:
    """Where no argument is NULL, bool[rows] or bool[]; None: everywhere."""
    known: Bools | None = None
    for each in arguments:
        if isinstance(each, pa.Scalar):
            own = None if each.is_valid else np.zeros((), np.bool_)
        elif each.null_count:
            own = pc.is_valid(each).to_numpy(zero_copy_only=False)
        else:
            own = None
        known = both(known, own)
    return known


def both(one: Bools | None, other: Bools | None) -> Bools | None:
    """Where two conditions hold; None stands for everywhere."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def either(one: Bools | None, other: Bools | None) -> Bools | None:
    """Where one of two conditions holds; None stands for nowhere."""
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _number_type(kind: pa.DataType) -> np.dtype[Any]:
    found: np.dtype[Any] = np.dtype(_integer(kind).to_pandas_dtype())
    return found


def _integer(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind
