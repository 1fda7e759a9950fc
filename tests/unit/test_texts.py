"""JSON as Spark's `to_json` wrote it (Spark 4, Java 17, time zone America/New_York)."""

from __future__ import annotations

import datetime as dt
import time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.results.json_columns import json_lines, json_values
from penstock.spark.results.texts import cell_texts, csv_line, csv_lines, has_form, json_texts

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
    lines = json_lines(pa.record_batch({"v": pa.array([value], kind)}))
    assert list(lines) == [f'{{"v":{told}}}']


#: what table and CSV show where JSON has another text than the value in quotes
CELLS: list[tuple[pa.DataType, Any, str]] = [
    (pa.timestamp("us", "UTC"), 1_719_849_600_000_000, "2024-07-01 12:00:00-04:00"),
    (pa.timestamp("us", "UTC"), 1_719_849_600_120_000, "2024-07-01 12:00:00.12-04:00"),
    (pa.timestamp("us"), 0, "1970-01-01 00:00:00"),
    # 1767225600000 seconds: milliseconds that were read as seconds
    (pa.timestamp("us", "UTC"), 1_767_225_600_000 * 10**6, "+57971-02-24 19:00:00-05:00"),
    (pa.timestamp("us"), 253_402_300_800 * 10**6, "+10000-01-01 00:00:00"),
    (pa.timestamp("us"), -62_198_755_200 * 10**6, "-0001-01-01 00:00:00"),
    (pa.date32(), 20_000_000, "+56728-02-22"),
    (pa.date32(), 2_932_896, "9999-12-31"),
    (pa.float32(), 0.1, "0.1"),
    (pa.float64(), float("nan"), "NaN"),
    (pa.binary(), b"\x00\xff", "AP8="),
    (pa.string(), 'a "b"', 'a "b"'),
    (pa.list_(pa.string()), ["", None], '["",null]'),
]


@pytest.mark.usefixtures("_new_york")
@pytest.mark.parametrize(("kind", "value", "told"), CELLS)
def test_cells_are_the_same_text_whatever_the_year(kind: pa.DataType, value: object, told: str) -> None:
    values = pa.array([None, value, None], kind)
    assert cell_texts(values) == [None, told, None]
    if not pa.types.is_nested(kind):
        (line,) = json_lines(pa.record_batch({"v": values[1:2]}))
        if pa.types.is_temporal(kind):
            assert told[:10] in line
        (cell,) = csv_lines(pa.record_batch({"v": values[1:2]}))
        assert cell in (told, '"' + told.replace('"', '""') + '"')


def test_null_is_not_an_empty_text() -> None:
    rows = pa.record_batch({"n": pa.array([1, None]), 'a "b"': ["", None], "raw": pa.array([None, b""])})
    assert csv_line(rows.schema.names) == '"n","a ""b""","raw"'
    assert list(csv_lines(rows)) == ['1,"",', ',,""']
    assert list(json_lines(rows)) == [
        '{"n":1,"a \\"b\\"":"","raw":null}',
        '{"n":null,"a \\"b\\"":null,"raw":""}',
    ]


def test_nested_values_of_a_slice_are_those_of_its_rows() -> None:
    pairs = pa.array(
        [[("a", [1])], None, [], [("b", None), ("c", [2, 3])]], pa.map_(pa.string(), pa.list_(pa.int8()))
    )
    whole = pa.array([{"x": 1}, None, {"x": None}, {"x": 4}])
    assert cell_texts(pairs) == ['{"a":[1]}', None, "{}", '{"b":null,"c":[2,3]}']
    assert cell_texts(pairs[2:]) == ["{}", '{"b":null,"c":[2,3]}']
    assert cell_texts(whole[1:]) == [None, '{"x":null}', '{"x":4}']
    assert cell_texts(pairs[1:2]) == [None]


def test_what_has_no_form_here_is_left_to_spark() -> None:
    for kind in (pa.duration("us"), pa.map_(pa.timestamp("us"), pa.int32()), pa.list_(pa.duration("us"))):
        assert not has_form(kind)


def _examples(kind: pa.DataType) -> st.SearchStrategy[pa.Array]:
    """Values of a type, NULL among them; moments as numbers."""
    values: dict[pa.DataType, st.SearchStrategy[Any]] = {
        pa.bool_(): st.booleans(),
        pa.int64(): st.integers(-(2**63), 2**63 - 1),
        pa.float64(): st.floats() | st.sampled_from([1e-3, 1e7, 9999999.999, 0.1, 100.0, -0.0, 123456.0]),
        pa.float32(): st.floats(width=32) | st.sampled_from([100.0, -0.0, 0.5, 9999999.0]),
        pa.string(): st.text(),
        pa.timestamp("us"): st.integers(-(2**60), 2**60) | st.integers(-(10**14), 10**14),
        pa.timestamp("us", "UTC"): st.integers(-(10**14), 10**15),
        pa.timestamp("ns", "UTC"): st.integers(0, 10**18),
    }
    of = pa.int64() if pa.types.is_timestamp(kind) else kind
    return st.lists(st.none() | values[kind], max_size=9).map(lambda each: pa.array(each, of).cast(kind))


@pytest.mark.parametrize(
    "kind",
    [
        pa.bool_(),
        pa.int64(),
        pa.float64(),
        pa.float32(),
        pa.string(),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        pa.timestamp("ns", "UTC"),
    ],
    ids=str,
)
@given(data=st.data())
def test_columns_as_json_equal_values_as_json(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(_examples(kind))
    assert json_values(values).to_pylist() == json_texts(values)
    assert list(json_lines(pa.record_batch({'a"b': values, "c": values}))) == [
        f'{{"a\\"b":{text},"c":{text}}}' for text in (text or "null" for text in json_texts(values))
    ]
