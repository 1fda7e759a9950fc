"""JSON as Spark's `to_json` wrote it (Spark 4, Java 17, time zone America/New_York)."""

from __future__ import annotations

import datetime as dt
import time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.cli.json_lines import json_cells, json_lines

UTC = dt.UTC
SPARK: list[tuple[pa.DataType, Any, str]] = [
    (pa.float64(), 1.5, "1.5"),
    (pa.float64(), 1e10, "1.0E10"),
    (pa.float64(), 1e-5, "1.0E-5"),
    (pa.float32(), 0.1, "0.1"),
    (pa.float32(), 1e10, "1.0E10"),
    (pa.float64(), float("nan"), '"NaN"'),
    (pa.float64(), float("-inf"), '"-Infinity"'),
    (pa.float64(), 100.0, "100.0"),
    (pa.float64(), 1234567.0, "1234567.0"),
    (pa.float64(), 12345678.0, "1.2345678E7"),
    (pa.float64(), 0.001, "0.001"),
    (pa.float64(), 0.0001, "1.0E-4"),
    (pa.float64(), -0.0, "-0.0"),
    (pa.decimal128(5, 3), Decimal("12.340"), "12.340"),
    (pa.decimal128(18, 18), Decimal("0E-18"), "0E-18"),
    (pa.decimal128(10, 2), Decimal("123000.00"), "123000.00"),
    (
        pa.timestamp("us", "UTC"),
        dt.datetime(2024, 7, 1, 16, 0, 0, 123456, tzinfo=UTC),
        '"2024-07-01T12:00:00.123456-04:00"',
    ),
    (pa.timestamp("us"), dt.datetime(9999, 12, 31, 23, 59, 59), '"9999-12-31T23:59:59.000000"'),
    (pa.date32(), dt.date(99, 1, 2), '"0099-01-02"'),
    (pa.binary(), b"\x00\xff", '"AP8="'),
    (pa.string(), 'é"\x01\\/\u2028\n', '"é\\"\\u0001\\\\/\u2028\\n"'),
    (pa.list_(pa.int32()), [1, None], "[1,null]"),
    (pa.map_(pa.string(), pa.int32()), [("k", 1)], '{"k":1}'),
    (pa.struct({"x": pa.int32(), "y": pa.string()}), {"x": 1, "y": None}, '{"x":1,"y":null}'),
    (pa.bool_(), True, "true"),
    (pa.int8(), None, "null"),
]


@pytest.fixture
def _new_york(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_new_york")
@pytest.mark.parametrize(("kind", "value", "told"), SPARK)
def test_values_are_written_as_spark_writes_them(kind: pa.DataType, value: object, told: str) -> None:
    lines = json_lines(pa.table({"v": pa.array([value], kind)}))
    assert lines is not None
    assert list(lines) == [f'{{"v":{told}}}']


def test_what_has_no_form_here_is_left_to_spark() -> None:
    for kind in (pa.duration("us"), pa.map_(pa.timestamp("us"), pa.int32()), pa.list_(pa.duration("us"))):
        assert json_lines(pa.table({"v": pa.array([], kind)})) is None
        assert json_cells(pa.chunked_array([], kind)) is None
