"""Rows written as Avro, read back by fastavro and by our own reader."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.wire.avro_writer import AvroColumnError, avro_schema, avro_values

MOMENT = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", MOMENT), ("end", MOMENT)])
COLUMNS = pa.schema(
    [
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", MOMENT),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(20, 3)),
        ("w", WINDOW),
        ("deep", pa.struct([("a", pa.struct([("b", pa.string())])), ("n", pa.int64())])),
    ]
)
_MOMENTS = st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 30))
_AWARE = _MOMENTS.map(lambda at: at.replace(tzinfo=dt.UTC))
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "tiny": st.integers(-128, 127),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "real": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "text": st.text(),
    "raw": st.binary(),
    "day": st.dates(),
    "at": _AWARE,
    "local": _MOMENTS,
    "price": st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: Decimal(n).scaleb(-3)),
    "w": st.fixed_dictionaries({"start": st.none() | _AWARE, "end": st.none() | _AWARE}),
    "deep": st.fixed_dictionaries(
        {
            "a": st.none() | st.fixed_dictionaries({"b": st.none() | st.text()}),
            "n": st.none() | st.integers(-9, 9),
        }
    ),
}


def read(schema: str, value: bytes) -> Any:
    """What fastavro reads of a value."""
    stream = io.BytesIO(value)
    found = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(schema)), None)
    assert not stream.read()
    return found


@given(
    st.lists(st.fixed_dictionaries({name: st.none() | each for name, each in _VALUES.items()}), max_size=6)
)
def test_another_reader_sees_what_was_written(rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, COLUMNS)
    schema = avro_schema(COLUMNS, "view")
    values = avro_values(table, b"\0\0\0\0\7")
    assert all(value[:5] == b"\0\0\0\0\7" for value in values)
    assert [read(schema, value[5:]) for value in values] == rows
    sliced = avro_values(pa.concat_tables([table, table]).slice(len(rows) // 2, len(rows)))
    twice = [*values, *values]
    assert sliced == [value[5:] for value in twice[len(rows) // 2 :][: len(rows)]]


def test_a_name_or_a_type_that_avro_does_not_have_is_refused() -> None:
    with pytest.raises(AvroColumnError, match=r"a field named 'a b'. Rename it with AS"):
        avro_schema(pa.schema([("a b", pa.int64())]), "v")
    with pytest.raises(AvroColumnError, match="column tags is list"):
        avro_schema(pa.schema([("tags", pa.list_(pa.string()))]), "v")
    assert json.loads(avro_schema(pa.schema([("a", pa.int64())]), "1-v"))["name"] == "_1_v"
