"""Arithmetic and comparisons as Spark computes them under ANSI rules.

A function takes the arguments and the type of the result. Where an argument is NULL, so is the result, and nothing raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.scalars.values import Argument, Bools, Found, array_of, numbers

#: more digits than a number has
_EXACT = Context(prec=400)
Numbers = npt.NDArray[Any]


def add(one: Argument, other: Argument, kind: pa.DataType) -> Found:
    return _checked(pc.add_checked, pc.add, _sum_overflows, (one, other), kind)


def subtract(one: Argument, other: Argument, kind: pa.DataType) -> Found:
    return _checked(pc.subtract_checked, pc.subtract, _difference_overflows, (one, other), kind)


def multiply(one: Argument, other: Argument, kind: pa.DataType) -> Found:
    return _checked(pc.multiply_checked, pc.multiply, _product_overflows, (one, other), kind)


def negate(value: Argument, kind: pa.DataType) -> Found:
    return _checked(pc.negate_checked, pc.negate, _is_least, (value,), kind)


def absolute(value: Argument, kind: pa.DataType) -> Found:
    return _checked(pc.abs_checked, pc.abs, _is_least, (value,), kind)


def divide(dividend: Argument, divisor: Argument, kind: pa.DataType) -> Found:
    """A quotient of floating-point numbers."""
    under = numbers(divisor)
    with np.errstate(all="ignore"):
        quotients = np.divide(numbers(dividend), under)
    return array_of(quotients, kind, dividend, divisor), _zeros(under, len(quotients))


def integral_divide(dividend: Argument, divisor: Argument, kind: pa.DataType) -> Found:
    """A quotient without its fraction, as `div` gives it."""
    over, under = numbers(dividend), numbers(divisor)
    quotients, _ = _divided(over, under)
    raised = (under == 0) | ((under == -1) & (over == np.iinfo(over.dtype).min))
    return array_of(quotients, kind, dividend, divisor), _if_any(raised, len(quotients))


def remainder(dividend: Argument, divisor: Argument, kind: pa.DataType) -> Found:
    """What is left of a division, with the sign of the dividend."""
    under = numbers(divisor)
    _, left = _divided(numbers(dividend), under)
    return array_of(left, kind, dividend, divisor), _zeros(under, len(left))


def pmod(dividend: Argument, divisor: Argument, kind: pa.DataType) -> Found:
    """`r = a % n; r < 0 ? (r + n) % n : r`, as Spark has it."""
    # Java adds bytes and shorts as integers
    wide = np.promote_types(numbers(divisor).dtype, np.int32)
    under = numbers(divisor).astype(wide)
    _, left = _divided(numbers(dividend).astype(wide), under)
    with np.errstate(over="ignore"):
        _, above = _divided(left + under, under)
    found = np.where(left < 0, above, left).astype(numbers(dividend).dtype)
    return array_of(found, kind, dividend, divisor), _zeros(under, len(left))


def round_half_up(value: Argument, scale: Argument, kind: pa.DataType) -> Found:
    """A floating-point number to some digits behind the point: the decimal that it is written as, with half of a digit rounded away from zero.

    Where the product with a power of ten is not near a half, it tells the digit; a quotient of two exact numbers is the nearest one to the decimal.
    """
    digits = scale.as_py()
    values, power = numbers(value), 10.0**digits
    with np.errstate(all="ignore"):
        scaled = np.abs(values) * power
        whole = np.floor(scaled + 0.5)
        rounded = np.copysign(whole / power, values)
        is_near = np.abs(scaled - np.floor(scaled) - 0.5) <= scaled * 2.0**-50 + 1e-9
        is_large = ~(scaled < 2.0**52)
    found = np.where(whole == 0, 0.0, rounded)
    step = Decimal(1).scaleb(-digits)
    for place in np.flatnonzero((is_near | is_large) & np.isfinite(values)):
        exact = Decimal(repr(float(values[place])))
        if -exact.as_tuple().exponent > digits:  # type: ignore[operator]
            exact = exact.quantize(step, ROUND_HALF_UP, _EXACT)
        found[place] = float(exact) + 0.0
    found[~np.isfinite(values)] = values[~np.isfinite(values)]
    return array_of(found, kind, value), None


def floor(value: Argument, kind: pa.DataType) -> Found:
    return _long(np.floor, value, kind)


def ceil(value: Argument, kind: pa.DataType) -> Found:
    return _long(np.ceil, value, kind)


def greatest(*arguments: Argument) -> Found:
    """The greatest of some values that are not NULL; the last argument is the type of the result."""
    *values, _ = arguments
    return pc.max_element_wise(*values, skip_nulls=True), None


def least(*arguments: Argument) -> Found:
    """The least, likewise."""
    *values, _ = arguments
    return pc.min_element_wise(*values, skip_nulls=True), None


def bit_and(one: Argument, other: Argument, _kind: pa.DataType) -> Found:
    return pc.bit_wise_and(one, other), None


def bit_or(one: Argument, other: Argument, _kind: pa.DataType) -> Found:
    return pc.bit_wise_or(one, other), None


def bit_xor(one: Argument, other: Argument, _kind: pa.DataType) -> Found:
    return pc.bit_wise_xor(one, other), None


def cast(value: Argument, kind: pa.DataType) -> Found:
    """To a type that has all values of the value's own."""
    return value.cast(kind, safe=not pa.types.is_floating(kind)), None


def equal(one: Argument, other: Argument, _kind: pa.DataType) -> Found:
    return _compared(pc.equal, lambda a, b: (a == b) | (np.isnan(a) & np.isnan(b)), one, other)


def less(one: Argument, other: Argument, _kind: pa.DataType) -> Found:
    return _compared(pc.less, lambda a, b: (a < b) | (np.isnan(b) & ~np.isnan(a)), one, other)


def less_equal(one: Argument, other: Argument, _kind: pa.DataType) -> Found:
    return _compared(pc.less_equal, lambda a, b: (a <= b) | np.isnan(b), one, other)


def greater(one: Argument, other: Argument, kind: pa.DataType) -> Found:
    return less(other, one, kind)


def greater_equal(one: Argument, other: Argument, kind: pa.DataType) -> Found:
    return less_equal(other, one, kind)


def is_in(value: Argument, *members: Argument) -> Found:
    """Whether a value is one of some constants that are not NULL; the last argument is the type of the result."""
    *constants, _ = members
    of = pa.array([each.as_py() for each in constants], value.type)
    return pc.if_else(pc.is_valid(value), pc.is_in(value, value_set=of), pa.scalar(None, pa.bool_())), None


def _long(function: Callable[[Numbers], Numbers], value: Argument, kind: pa.DataType) -> Found:
    """A function of a floating-point number as a BIGINT: NaN is 0, and what does not fit raises."""
    found = function(numbers(value))
    fits = (found >= -(2.0**63)) & (found < 2.0**63)
    whole = np.where(fits, found, 0.0).astype(np.int64)
    return array_of(whole, kind, value), _if_any(~(fits | np.isnan(found)), len(whole))


def _compared(
    plain: Callable[[Argument, Argument], pa.Array],
    floating: Callable[[Numbers, Numbers], Bools],
    one: Argument,
    other: Argument,
) -> Found:
    """A comparison in which NaN is equal to itself and greater than all numbers."""
    if not pa.types.is_floating(one.type):
        return plain(one, other), None
    found = floating(numbers(one), numbers(other))
    return array_of(found.astype(np.uint8), pa.uint8(), one, other).cast(pa.bool_()), None


def _checked(
    checked: Callable[..., pa.Array],
    wrapping: Callable[..., pa.Array],
    overflows: Callable[..., Bools],
    arguments: tuple[Argument, ...],
    kind: pa.DataType,
) -> Found:
    """A function whose result may not fit; whole numbers alone raise then."""
    if not pa.types.is_integer(kind):
        found = wrapping(*arguments)
        return found if found.type == kind else found.cast(kind), None
    try:
        return checked(*arguments), None
    except pa.ArrowInvalid:
        return wrapping(*arguments), overflows(*map(numbers, arguments))


def _sum_overflows(one: Numbers, other: Numbers) -> Bools:
    with np.errstate(over="ignore"):
        total = one + other
    return np.asarray(((one ^ total) & (other ^ total)) < 0)


def _difference_overflows(one: Numbers, other: Numbers) -> Bools:
    with np.errstate(over="ignore"):
        difference = one - other
    return np.asarray(((one ^ other) & (one ^ difference)) < 0)


def _product_overflows(one: Numbers, other: Numbers) -> Bools:
    least = np.iinfo(one.dtype).min
    with np.errstate(over="ignore"):
        product = one * other
    quotient, left = _divided(product, other)
    wrong = (other != 0) & ((quotient != one) | (left != 0))
    return np.asarray(wrong | ((one == least) & (other == -1)) | ((other == least) & (one == -1)))


def _is_least(value: Numbers) -> Bools:
    return np.asarray(value == np.iinfo(value.dtype).min)


def _divided(over: Numbers, under: Numbers) -> tuple[Numbers, Numbers]:
    """Quotients that are cut off towards zero, and what is left; of a division by zero any."""
    by = np.where(under == 0, over.dtype.type(1), under)
    with np.errstate(over="ignore"):
        # numpy rounds down, and divides by one number for all with one multiplication
        quotients = over // by
        left = over - quotients * by
        is_below = (left != 0) & ((over < 0) != (by < 0))
        quotients = quotients + is_below
        left = np.where(is_below, left - by, left)
    return quotients.astype(over.dtype, copy=False), left.astype(over.dtype, copy=False)


def _zeros(divisor: Numbers, rows: int) -> Bools | None:
    return _if_any(divisor == 0, rows)


def _if_any(raised: Any, rows: int) -> Bools | None:
    where = np.broadcast_to(np.asarray(raised, np.bool_), (rows,))
    return where if where.any() else None


ARITHMETIC: Mapping[str, Callable[..., Found]] = {
    "add": add,
    "subtract": subtract,
    "multiply": multiply,
    "negate": negate,
    "absolute": absolute,
    "divide": divide,
    "integral_divide": integral_divide,
    "remainder": remainder,
    "pmod": pmod,
    "round": round_half_up,
    "floor": floor,
    "ceil": ceil,
    "greatest": greatest,
    "least": least,
    "bit_and": bit_and,
    "bit_or": bit_or,
    "bit_xor": bit_xor,
    "cast": cast,
    "equal": equal,
    "less": less,
    "less_equal": less_equal,
    "greater": greater,
    "greater_equal": greater_equal,
    "in": is_in,
}
