"""Which values of a column satisfy a comparison with a literal, as Spark's ANSI coercion has it.

Spark compares two types in a common type. Where that comparison is a comparison in the column's own
order, the predicate is a set of the column's values; this module says which set. Elsewhere it
answers None and Spark evaluates the predicate itself.

    column          literal                     compared as
    integers        integer, decimal            exact numbers
    integers        FLOAT, DOUBLE               double (a BIGINT is rounded)
    integers        string of digits            BIGINT
    float, double   any number or numeric text  double (FLOAT with FLOAT: float)
    decimal         integer, decimal            exact numbers, up to 38 digits together
    decimal         FLOAT, DOUBLE, string       double
    string          string                      bytes
    boolean         boolean, 'true' and such    false < true
    date            DATE, string                days
    timestamp       TIMESTAMP[_NTZ], string     microseconds (session time zone)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from operator import eq, ge, gt, le, lt

import pyarrow as pa

from penstock.plan.value_sets import FALSE, NOT_NULL, NOTHING, TRUE, Interval, Key, ValueSet, point, union
from penstock.sql.text.literals import (
    EPOCH,
    LONG_MAX,
    LONG_MIN,
    Kind,
    Literal,
    local_microseconds,
    microseconds,
    parse_date,
    parse_timestamp,
)

_NUMBERS = {Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE}
_EXACT = {Kind.INTEGER, Kind.DECIMAL}
_MAX_PRECISION = 38
#: decimal digits that hold every value of an integer of so many bits
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_NUMERIC_TEXT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER_TEXT = re.compile(r"[+-]?\d{1,19}", re.ASCII)
#: literals in this range are of type INT, others BIGINT
_INT = range(-(2**31), 2**31)
_TRUE_TEXT, _FALSE_TEXT = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}


class MismatchedError(Exception):
    """Spark does not compare this column with this literal."""


def is_comparable(kind: pa.DataType) -> bool:
    """Whether a column's values have an order that the kernels know."""
    return (
        pa.types.is_signed_integer(kind)
        or kind in (pa.float32(), pa.float64(), pa.bool_(), pa.date32(), pa.string(), pa.large_string())
        or (pa.types.is_decimal128(kind) and kind.scale >= 0)
        or kind == pa.binary()
        or (pa.types.is_timestamp(kind) and kind.unit == "us")
    )


def compare(operator: str, kind: pa.DataType, literal: Literal, zone: str) -> ValueSet | bool | None:
    """The values of a column of type `kind` for which `column operator literal` is true.

    Args:
        operator: one of `= < <= > >=`.
        literal: not NULL.
        zone: time zone of timestamps that name none.

    Returns:
        The value set, without NULL; or True or False where Spark answers so for every row, NULL
        rows too; or None where only Spark can tell.

    Raises:
        MismatchedError: Spark refuses the comparison.
    """
    _check(kind, literal.kind)
    integer = pa.types.is_signed_integer(kind)
    if integer and literal.kind is Kind.DECIMAL and operator != "=":
        value = literal.value
        assert isinstance(value, Decimal)
        if value > LONG_MAX or value < LONG_MIN:
            return (value > 0) == (operator[0] == "<")
    elif literal.kind in _EXACT and not (
        (integer and literal.kind is Kind.INTEGER) or _fits(kind, [literal])
    ):
        return None
    if pa.types.is_floating(kind):
        number = _double(literal, as_float=kind == pa.float32() and literal.kind is Kind.FLOAT)
        return None if number is None else _ordered(operator, number + 0.0)
    if pa.types.is_decimal(kind) or integer:
        return _compare_number(operator, kind, literal)
    key = _key(kind, literal, zone)
    if key is None:
        return None
    return _booleans(operator, int(key)) if pa.types.is_boolean(kind) else _ordered(operator, key)


def member(kind: pa.DataType, literals: Sequence[Literal], zone: str) -> ValueSet | None:
    """The values of a column for which `column IN (literals)` is true.

    Spark brings the whole list to one type. NULLs are to be left out of `literals`.

    Raises:
        MismatchedError: Spark refuses the comparison.
    """
    for literal in literals:
        _check(kind, literal.kind)
    kinds = {literal.kind for literal in literals}
    if kinds & {Kind.FLOAT, Kind.DOUBLE} and not (kind == pa.float32() and kinds == {Kind.FLOAT}):
        converted = [_double(literal, as_float=False) for literal in literals]
        if Kind.STRING in kinds or None in converted:
            return None
        literals = [Literal(Kind.DOUBLE, value) for value in converted]
    elif not _fits(kind, literals) or (Kind.STRING in kinds and len(kinds) > 1 and not _is_temporal(kind)):
        return None
    values = NOTHING
    keys: list[Key] = []
    for literal in literals:
        found = compare("=", kind, literal, zone)
        if not isinstance(found, ValueSet):
            return None
        if len(found.intervals) == 1 and found.intervals[0].low == found.intervals[0].high:
            assert found.intervals[0].low is not None
            keys.append(found.intervals[0].low)
        else:
            values = union(values, found)
    if pa.types.is_boolean(kind):
        return values
    points = ValueSet(tuple(Interval(key, key) for key in sorted(set(keys))))
    return union(points, values) if values.intervals else points


def like(pattern: str, escape: str = "\\") -> ValueSet | None:
    """The strings that a LIKE pattern of one prefix, or of no wildcard, matches; else None."""
    prefix: list[str] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            following = pattern[position + 1 : position + 2]
            if following not in ("%", "_", escape) or not following:
                return None
            prefix.append(following)
            position += 2
        elif character == "_":
            return None
        elif character == "%":
            return _prefixed("".join(prefix).encode()) if not pattern[position:].strip("%") else None
        else:
            prefix.append(character)
            position += 1
    return point("".join(prefix).encode())


def like_pattern(pattern: str, escape: str = "\\") -> str | None:
    """A LIKE pattern with backslashes as escapes; None where Spark refuses it."""
    parts: list[str] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        position += 1
        if character == escape:
            following = pattern[position : position + 1]
            if not following or following not in ("%", "_", escape):
                return None
            parts.append(f"\\{following}" if following in "%_\\" else following)
            position += 1
        else:
            parts.append("\\\\" if character == "\\" else character)
    return "".join(parts)


def _prefixed(prefix: bytes) -> ValueSet:
    if not prefix:
        return NOT_NULL
    return ValueSet((Interval(prefix, prefix[:-1] + bytes([prefix[-1] + 1]), high_closed=False),))


def _check(kind: pa.DataType, literal: Kind) -> None:
    number = pa.types.is_signed_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if number:
        refused = literal not in _NUMBERS and literal is not Kind.STRING
    elif _is_temporal(kind):
        refused = literal not in (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ, Kind.STRING)
    elif pa.types.is_boolean(kind):
        refused = literal not in (Kind.BOOLEAN, Kind.STRING)
    else:
        refused = False
    if refused:
        raise MismatchedError


def _is_temporal(kind: pa.DataType) -> bool:
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind)  # type: ignore[no-any-return]


def _fits(kind: pa.DataType, literals: Sequence[Literal]) -> bool:
    """Whether the common decimal type of a column and exact numbers holds all of them exactly."""
    if pa.types.is_decimal(kind):
        whole, scale = kind.precision - kind.scale, kind.scale
    elif pa.types.is_signed_integer(kind):
        whole, scale = _INTEGER_DIGITS[kind.bit_width], 0
    else:
        return True
    for literal in literals:
        if literal.kind is Kind.DECIMAL:
            assert isinstance(literal.value, Decimal)
            digits, exponent = literal.value.as_tuple()[1:]
            assert isinstance(exponent, int)
            literal_scale = max(0, -exponent)
            whole = max(whole, len(digits) + max(0, exponent) - literal_scale)
            scale = max(scale, literal_scale)
        elif literal.kind is Kind.INTEGER:
            whole = max(whole, 10 if literal.value in _INT else 20)
    return bool(whole + scale <= _MAX_PRECISION)


def _double(literal: Literal, *, as_float: bool) -> float | None:
    value = literal.value
    if literal.kind is Kind.STRING:
        assert isinstance(value, str)
        return float(value) if _NUMERIC_TEXT.fullmatch(value.strip(" ")) else None
    if as_float:
        assert literal.kind is Kind.FLOAT
    assert isinstance(value, int | float | Decimal)
    return float(value)


def _compare_number(operator: str, kind: pa.DataType, literal: Literal) -> ValueSet | None:
    """Integers and decimals, as keys scaled to integers."""
    decimal = pa.types.is_decimal(kind)
    scale = kind.scale if decimal else 0
    highest = 10**kind.precision - 1 if decimal else 2 ** (kind.bit_width - 1) - 1
    lowest = -highest if decimal else -highest - 1
    value = literal.value
    if literal.kind is Kind.STRING and not decimal:
        assert isinstance(value, str)
        if not _INTEGER_TEXT.fullmatch(value.strip(" ")) or not LONG_MIN <= int(value) <= LONG_MAX:
            return None
        literal = Literal(Kind.INTEGER, int(value))
    if literal.kind in _EXACT:
        assert isinstance(literal.value, int | Decimal)
        exact = literal.value if isinstance(literal.value, int) else Fraction(literal.value)
        exact *= 10**scale
        at_least = math.ceil(exact)
        above = math.floor(exact) + 1
    else:
        number = _double(literal, as_float=False)
        if number is None:
            return None
        at_least, above = _thresholds(number, 10**scale, lowest, highest)
    match operator:
        case "<":
            low, high = lowest, at_least - 1
        case "<=":
            low, high = lowest, above - 1
        case ">":
            low, high = above, highest
        case ">=":
            low, high = at_least, highest
        case _:
            low, high = at_least, above - 1
    return _clamped(low, high, lowest, highest)


def _clamped(low: int, high: int, lowest: int, highest: int) -> ValueSet:
    if low > high or low > highest or high < lowest:
        return NOTHING
    return ValueSet((Interval(low if low > lowest else None, high if high < highest else None),))


def _thresholds(number: float, unit: int, lowest: int, highest: int) -> tuple[int, int]:
    """The least keys whose double is >= and > `number` (`highest + 1`: none; NaN is the largest)."""
    if number != number:
        return highest + 1, highest + 1
    return (
        _first(lambda key: key / unit >= number, lowest, highest),
        _first(lambda key: key / unit > number, lowest, highest),
    )


def _first(holds: Callable[[int], bool], lowest: int, highest: int) -> int:
    low, high = lowest, highest + 1
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _booleans(operator: str, key: int) -> ValueSet:
    holds = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq}[operator]
    return union(FALSE if holds(0, key) else NOTHING, TRUE if holds(1, key) else NOTHING)


def _ordered(operator: str, key: Key) -> ValueSet:
    match operator:
        case "<":
            interval = Interval(None, key, high_closed=False)
        case "<=":
            interval = Interval(None, key)
        case ">":
            interval = Interval(key, None, low_closed=False)
        case ">=":
            interval = Interval(key, None)
        case _:
            interval = Interval(key, key)
    return ValueSet((interval,))


def _key(kind: pa.DataType, literal: Literal, zone: str) -> Key | None:
    """A literal as a key of a string, binary, boolean, date or timestamp column."""
    value = literal.value
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return value.encode() if isinstance(value, str) and literal.kind is Kind.STRING else None
    if pa.types.is_binary(kind):
        return value if isinstance(value, bytes) else None
    if pa.types.is_boolean(kind):
        if literal.kind is Kind.BOOLEAN:
            return int(bool(value))
        assert isinstance(value, str)
        word = value.strip(" ").lower()
        return 1 if word in _TRUE_TEXT else 0 if word in _FALSE_TEXT else None
    if pa.types.is_date(kind):
        if literal.kind is Kind.DATE and isinstance(value, int):
            return value
        return parse_date(value) if isinstance(value, str) else None
    return _moment(literal, zoned=kind.tz is not None, zone=zone)


def _moment(literal: Literal, *, zoned: bool, zone: str) -> int | None:
    """A literal as microseconds, for a column of timestamps with or without time zone."""
    value = literal.value
    if literal.kind is Kind.DATE and isinstance(value, int):
        ordinal = value + EPOCH.toordinal()
        if not 1 <= ordinal <= date.max.toordinal():
            return None
        value = datetime.combine(date.fromordinal(ordinal), time())
    elif isinstance(value, str):
        value = parse_timestamp(value)
    elif literal.kind is not (Kind.TIMESTAMP if zoned else Kind.TIMESTAMP_NTZ):
        return None
    if isinstance(value, datetime):
        if not zoned:
            return local_microseconds(value)
        try:
            return microseconds(value, zone)
        except ValueError:  # a zone that Java alone knows
            return None
    return value if isinstance(value, int) else None
