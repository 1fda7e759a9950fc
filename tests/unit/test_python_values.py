"""Columns as Python's values: moments of any year, at any depth."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.operators.python_values import python_values

LEAST, MOST = -(2**63), 2**63 - 1
MOMENTS = [LEAST, None, -62_135_596_800_000_001, -62_135_596_800_000_000, 0, 253_402_300_799_999_999, 253_402_300_800_000_000, MOST]  # fmt: skip
SPELLED = [LEAST, None, -62_135_596_800_000_001, "0001-01-01 00:00:00.000000", "1970-01-01 00:00:00.000000", "9999-12-31 23:59:59.999999", 253_402_300_800_000_000, MOST]  # fmt: skip


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_moments_of_years_that_python_has_are_text_and_others_numbers(zone: str | None) -> None:
    found = python_values(pa.array(MOMENTS, pa.int64()).cast(pa.timestamp("us", zone)))
    assert found == [each + "Z" if zone and isinstance(each, str) else each for each in SPELLED]
    assert python_values(pa.chunked_array([], pa.timestamp("us", zone))) == []


def test_dates_likewise() -> None:
    days = pa.array([-(2**31), -719_163, -719_162, None, 2_932_896, 2_932_897], pa.int32()).cast(pa.date32())
    assert python_values(days) == [-(2**31), -719_163, "0001-01-01", None, "9999-12-31", 2_932_897]


def test_what_lies_inside_is_read_likewise() -> None:
    inner = pa.array([LEAST, 0, None, MOST], pa.int64()).cast(pa.timestamp("us"))
    struct = pa.StructArray.from_arrays([inner, pa.array(["a", "b", "c", "d"])], ["at", "name"])
    rows = [
        {"at": LEAST, "name": "a"},
        {"at": "1970-01-01 00:00:00.000000", "name": "b"},
        {"at": None, "name": "c"},
        {"at": MOST, "name": "d"},
    ]
    assert python_values(struct) == rows
    assert python_values(struct.slice(1, 2)) == rows[1:3]
    lists = pa.ListArray.from_arrays([0, None, 1, 4], struct)
    assert python_values(lists) == [rows[:1], None, rows[1:]]
    assert python_values(lists.slice(2)) == [rows[1:]]
    assert python_values(pa.LargeListArray.from_arrays([0, 4], struct)) == [rows]
    maps = pa.MapArray.from_arrays([0, 2, 4], struct.field("name"), struct)
    assert python_values(maps) == [[("a", rows[0]), ("b", rows[1])], [("c", rows[2]), ("d", rows[3])]]
    assert python_values(pa.array([None, {"at": 1}], pa.struct([("at", pa.int64())]))) == [None, {"at": 1}]
    assert python_values(pa.array([{}, None], pa.struct([]))) == [{}, None]


@pytest.mark.parametrize("kind", [pa.duration("us"), pa.timestamp("ns")])
def test_lengths_of_time_are_numbers(kind: pa.DataType) -> None:
    assert python_values(pa.array([LEAST, MOST, None], pa.int64()).cast(kind)) == [LEAST, MOST, None]


def test_other_values_are_as_they_are() -> None:
    for value in (1, 1.5, "a", b"\xff", True, Decimal("1.50"), [1, None], {"a": {"b": "c"}}):
        assert python_values(pa.array([value, None])) == [value, None]
    assert python_values(pa.array([dt.time(1, 2, 3)], pa.time64("us"))) == [3_723_000_000]
