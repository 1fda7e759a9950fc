"""Region codes of Arrow columns: every type, exact at the edges."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.coding.encode import ColumnEncoder, code_type
from penstock.operators.coding.regions import RegionCoding
from penstock.plan.selection import Domain
from penstock.plan.value_sets import Key


def coding(kind: pa.DataType, *constants: Key) -> RegionCoding:
    domain = Domain.INTEGER
    if pa.types.is_floating(kind):
        domain = Domain.FLOAT
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        domain = Domain.BINARY
    return RegionCoding("a", kind, domain, constants)


def codes(column: pa.Array | pa.ChunkedArray, of: RegionCoding) -> list[int]:
    return ColumnEncoder(of).encode(column).tolist()


def test_integers_between_on_and_beyond_constants() -> None:
    of = coding(pa.int64(), -3, 4, 5)
    values = pa.array([-(2**63), -4, -3, -2, 3, 4, 5, 6, 2**63 - 1, None])
    assert codes(values, of) == [0, 0, 1, 2, 2, 3, 5, 6, 6, 7]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32()])
def test_narrow_integers_are_coded_like_wide_ones(kind: pa.DataType) -> None:
    of = coding(kind, -1, 7, 100, 10**12)
    assert codes(pa.array([0, 7, 8, 100, 127, None], kind), of) == [2, 3, 4, 5, 6, 9]


def test_constants_far_apart_are_found_through_buckets() -> None:
    rng = np.random.default_rng(3)
    constants = sorted({int(c) for c in rng.integers(-(2**62), 2**62, 500)} | {-(2**63), 2**63 - 1})
    of = coding(pa.int64(), *constants)
    near = [c + d for c in constants for d in (-1, 0, 1) if -(2**63) <= c + d < 2**63]
    expected = [2 * sum(c < v for c in constants) + (v in set(constants)) for v in near]
    assert codes(pa.array(near, pa.int64()), of) == expected


def test_unsigned_beyond_int64_is_exact() -> None:
    of = coding(pa.uint64(), 5, 2**63 + 1)
    assert codes(pa.array([5, 2**63, 2**63 + 1, 2**64 - 1, None], pa.uint64()), of) == [1, 2, 3, 4, 5]


def test_floats_order_nan_last_and_zero_once() -> None:
    of = coding(pa.float64(), -math.inf, -0.0, 1.5, math.nan)
    values = [-math.inf, -1.0, -0.0, 0.0, 5e-324, 1.5, math.inf, math.nan, -math.nan, None]
    assert codes(pa.array(values, pa.float64()), of) == [1, 2, 3, 3, 4, 5, 6, 7, 7, 9]


def test_float_column_compares_as_double() -> None:
    of = coding(pa.float32(), 0.1)
    single = float(np.float32(0.1))
    assert single > 0.1
    assert codes(pa.array([single], pa.float32()), of) == [2]


@pytest.mark.parametrize(
    ("unit", "values", "expected"),
    [
        ("s", [-1, 0, 1, 2], [0, 1, 2, 4]),
        ("ms", [-1, 0, 1, 1500, 1501], [0, 1, 2, 3, 4]),
        ("us", [-1, 0, 1, 1_499_999, 1_500_000, 1_500_001], [0, 1, 2, 2, 3, 4]),
        ("ns", [-1, 0, 1, 1_499_999_999, 1_500_000_000, 1_500_000_001], [0, 1, 2, 2, 3, 4]),
    ],
)
def test_timestamps_of_any_unit_against_microseconds(
    unit: str, values: list[int], expected: list[int]
) -> None:
    of = coding(pa.timestamp("us", "UTC"), 0, 1_500_000)
    for zone in (None, "UTC", "Europe/Berlin"):
        column = pa.array(values, pa.int64()).cast(pa.timestamp(unit, zone))
        assert codes(column, of) == expected


def test_timestamps_beyond_the_range_of_microseconds() -> None:
    of = coding(pa.timestamp("us"), 2**63 - 1)
    column = pa.array([-(2**62), 2**62], pa.int64()).cast(pa.timestamp("s"))
    assert codes(column, of) == [0, 2]


def test_dates_in_days_and_in_milliseconds() -> None:
    days = (dt.date(2020, 2, 29) - dt.date(1970, 1, 1)).days
    of = coding(pa.date32(), days)
    values = [dt.date(2020, 2, 28), dt.date(2020, 2, 29), dt.date(2020, 3, 1)]
    for kind in (pa.date32(), pa.date64()):
        assert codes(pa.array(values, kind), of) == [0, 1, 2]


@pytest.mark.parametrize("precision", [9, 18, 19, 38])
def test_decimals_by_unscaled_value(precision: int) -> None:
    kind = pa.decimal128(precision, 2)
    of = coding(kind, -150, 1)
    values = [Decimal("-1.51"), Decimal("-1.50"), Decimal("0.00"), Decimal("0.01"), Decimal("0.02"), None]
    assert codes(pa.array(values, kind), of) == [0, 1, 2, 3, 4, 5]


def test_decimals_wider_than_64_bits() -> None:
    kind = pa.decimal128(38, 0)
    of = coding(kind, 2**64, 10**30)
    values = [Decimal(2**64 - 1), Decimal(2**64), Decimal(10**30), Decimal(10**30 + 1), Decimal(0)]
    assert codes(pa.array(values, kind), of) == [0, 1, 3, 4, 0]


def test_wide_decimals_are_coded_alike_whether_all_fit_64_bits_or_not() -> None:
    kind = pa.decimal128(24, 3)
    of = coding(kind, -(2**63) - 1, -5, 0, 7, 2**63, 2**70)
    narrow = [-(2**63), -6, -5, -1, 0, 6, 7, 8, 2**63 - 1]
    values = [None if each is None else Decimal(each).scaleb(-3) for each in [*narrow, None, 2**70, -(2**70)]]
    whole = codes(pa.array(values, kind), of)
    assert codes(pa.array(values[:10], kind), of) == whole[:10]
    assert codes(pa.array(values, kind).slice(3, 4), of) == whole[3:7]


def test_decimal_of_another_scale_than_declared() -> None:
    of = coding(pa.decimal128(9, 2), 150)
    values = pa.array([Decimal("1.499"), Decimal("1.500"), Decimal("1.501")], pa.decimal128(9, 3))
    assert codes(values, of) == [0, 1, 2]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_strings_bytewise(kind: pa.DataType) -> None:
    of = coding(pa.string(), b"", b"ab", "é".encode())
    values = ["", "a", "ab", "abc", "z", "é", "日本", None]
    column = pa.array(
        [
            v if v is None or pa.types.is_string(kind) or pa.types.is_large_string(kind) else v.encode()
            for v in values
        ],
        kind,
    )
    assert codes(column, of) == [1, 2, 3, 4, 4, 5, 6, 7]
    assert codes(column.dictionary_encode(), of) == [1, 2, 3, 4, 4, 5, 6, 7]
    assert codes(column[2:6], of) == [3, 4, 4, 5]


def test_booleans() -> None:
    of = coding(pa.bool_(), 1)
    assert codes(pa.array([False, True, None])[1:], of) == [1, 3]


def test_sliced_and_chunked_columns_with_nulls() -> None:
    of = coding(pa.int32(), 2)
    column = pa.array([None, 1, 2, None, 3] * 5, pa.int32())
    expected = [3, 0, 1, 3, 2] * 5
    assert codes(column[3:21], of) == expected[3:21]
    assert codes(pa.chunked_array([column[:7], column[7:]]), of) == expected
    assert codes(pa.array([None] * 3), of) == [3] * 3


def test_no_constants_and_no_rows() -> None:
    assert codes(pa.array([1, None]), coding(pa.int64())) == [0, 1]
    assert codes(pa.array([], pa.string()), coding(pa.string(), b"a")) == []


def test_code_type_widens_past_16_bits() -> None:
    narrow = coding(pa.int64(), *range(32_767))
    wide = coding(pa.int64(), *range(32_768))
    assert code_type([narrow]) is np.uint16
    assert code_type([narrow, wide]) is np.uint32
    assert codes(pa.array([32_767, None]), wide) == [65_535, 65_537]


@pytest.mark.parametrize(
    ("column", "of"),
    [
        (pa.array(["1"]), coding(pa.int64(), 1)),
        (pa.array([1]), coding(pa.string(), b"1")),
        (pa.array([1]), coding(pa.float64(), 1.0)),
        (pa.array([1]), coding(pa.decimal128(10, 2), 100)),
        (pa.array([Decimal(1)], pa.decimal128(10, 0)), coding(pa.int64(), 1)),
        (pa.array([1], pa.date32()), coding(pa.timestamp("us"), 1)),
        (pa.array([1], pa.timestamp("us")), coding(pa.date32(), 1)),
        (pa.array([True]), coding(pa.int32(), 1)),
        (pa.array([1]), coding(pa.bool_(), 1)),
        (pa.array([1]), coding(pa.timestamp("us"), 1)),
    ],
)
def test_column_of_another_domain_is_refused(column: pa.Array, of: RegionCoding) -> None:
    with pytest.raises(TypeError, match="column 'a'"):
        ColumnEncoder(of).encode(column)


def test_encoder_survives_pickling() -> None:
    encoder = ColumnEncoder(coding(pa.int64(), 3), np.uint32)
    column = pa.array([2, 3])
    encoder.encode(column)
    copy: Any = pickle.loads(pickle.dumps(encoder))
    assert copy.encode(column).dtype == np.uint32
    assert copy.encode(column).tolist() == [0, 1]
