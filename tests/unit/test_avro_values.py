"""Avro on the wire: the same values as a library gives, whatever the schema; no byte beyond a value is read."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from penstock.operators.wire.avro_programs import AvroSchema, AvroSchemaError
from penstock.operators.wire.readers import AVRO, AvroReader, WantedColumn, misfit
from penstock.operators.wire.value_decoder import Decoded, UnknownSchemaError, ValueDecoder
from penstock.operators.wire.wire_types import WireType
from penstock.plan.spark_types import spark_name

UTC_US = pa.timestamp("us", "UTC")
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "attributes", "type": {"type": "map", "values": ["null", "int"]}},
        {"name": "inner", "type": ["null", {"type": "record", "name": "Inner", "fields": [
            {"name": "x", "type": "float"}, {"name": "next", "type": ["null", "Inner"]}]}]},
        {"name": "raw", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "either", "type": ["int", "string", "null"]},
        {"name": "n", "type": "int"},
        {"name": "ok", "type": "boolean"},
    ],
}  # fmt: skip
WANTED = [
    WantedColumn("id", pa.int64(), ("id",)),
    WantedColumn("city", pa.string(), ("city",)),
    WantedColumn("amount", pa.float64(), ("amount",)),
    WantedColumn("at", UTC_US, ("at",)),
    WantedColumn("day", pa.date32(), ("day",)),
    WantedColumn("price", pa.decimal128(14, 3), ("price",)),
    WantedColumn("state", pa.string(), ("state",)),
    WantedColumn("x", pa.float32(), ("inner", "next", "x")),
    WantedColumn("raw", pa.binary(), ("raw",)),
    WantedColumn("n", pa.int64(), ("n",)),
    WantedColumn("ok", pa.bool_(), ("ok",)),
    WantedColumn("gone", pa.string(), ("gone",)),
]


def _written(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def _orders(number: int) -> list[dict[str, Any]]:
    drawn = random.Random(7)
    return [
        {
            "id": drawn.choice([0, -1, 2**63 - 1, -(2**63), each]),
            "city": drawn.choice([None, "", "Bern", "Zürich" * 20]),
            "amount": drawn.choice([0.0, -1.5, 1e300, each / 7]),
            "at": datetime(2024, 5, 1, tzinfo=UTC) + timedelta(milliseconds=each),
            "day": date(2024, 5, 1) + timedelta(days=each % 400 - 200),
            "price": Decimal(drawn.choice([0, 1, -1, 128, -128, 255, 10**11, -(10**11)])) / 100,
            "state": drawn.choice(["NEW", "PAID"]),
            "tags": ["a"] * drawn.choice([0, 1, 70]),
            "attributes": {str(name): drawn.choice([None, name]) for name in range(each % 4)},
            "inner": drawn.choice([None, {"x": 0.5, "next": None}, {"x": 1.5, "next": {"x": 2.5, "next": None}}]),
            "raw": bytes([each % 256] * 4),
            "either": drawn.choice([3, "three", None]),
            "n": drawn.choice([each, -each, 2**31 - 1, -(2**31)]),
            "ok": each % 3 == 0,
        }
        for each in range(number)
    ]  # fmt: skip


def _expected(order: dict[str, Any]) -> dict[str, Any]:
    own = {
        name: order[name]
        for name in ("id", "city", "amount", "at", "day", "price", "state", "raw", "n", "ok")
    }
    inner = order["inner"] or {}
    return {**own, "x": (inner.get("next") or {}).get("x"), "gone": None}


def _framed(number: int, value: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + value


def _decoder(
    schemas: dict[int, dict[str, Any]], wanted: Sequence[WantedColumn] = WANTED, most: int = 10_000
) -> ValueDecoder:
    def readers(number: int, _: tuple[int, ...]) -> tuple[AvroReader, list[bool]]:
        if number not in schemas:
            raise UnknownSchemaError(f"the registry has no schema {number}")
        schema = AvroSchema(json.dumps(schemas[number]))
        return AvroReader(schema, wanted), [schema.field(each.path) is not None for each in wanted]

    return ValueDecoder(wanted, AVRO, readers, most)


def _all(found: Decoded) -> list[dict[str, Any]]:
    assert found.is_decoded.all(), found.reasons[:3]
    return found.tuples.to_pylist()


def test_values_are_those_of_a_library() -> None:
    orders = _orders(700)
    values = pa.array([_framed(3, _written(ORDER, each)) for each in orders], pa.binary())
    decoder = _decoder({3: ORDER})
    assert _all(decoder.decode(values)) == [_expected(each) for each in orders]
    assert _all(decoder.decode(values.slice(100, 37))) == [_expected(each) for each in orders[100:137]]


def test_blocks_with_their_size_are_skipped() -> None:
    schema = {"type": "record", "name": "r", "fields": [
        {"name": "a", "type": {"type": "array", "items": {"type": "array", "items": "null"}}}, {"name": "b", "type": "int"}]}  # fmt: skip
    wanted = [WantedColumn("b", pa.int32(), ("b",))]
    plain = b"\x04\x06\0\x02\0\0\x0e"  # 2 lists, of 3 and of 1 without bytes
    sized = b"\x03\x08\x06\0\x02\0\0\x0e"
    found = _decoder({1: schema}, wanted).decode(
        pa.array([_framed(1, plain), _framed(1, sized)], pa.binary())
    )
    assert _all(found) == [{"b": 7}, {"b": 7}]


def test_schemas_change_within_a_block() -> None:
    first = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "id", "type": "int"}, {"name": "old", "type": "string"}],
    }
    second = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "more", "type": "double"}, {"name": "id", "type": "long"}],
    }
    third = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}
    wanted = [WantedColumn("id", pa.int64(), ("id",)), WantedColumn("more", pa.float64(), ("more",))]
    values = [
        _framed(1, _written(first, {"id": 1, "old": "x"})),
        _framed(2, _written(second, {"id": 2, "more": 0.5})),
        _framed(3, _written(third, {"id": "3"})),
        _framed(1, _written(first, {"id": 4, "old": "y"})),
        _framed(9, b""),
    ]
    found = _decoder({1: first, 2: second, 3: third}, wanted).decode(pa.array(values, pa.binary()))
    assert found.tuples.to_pylist() == [
        {"id": 1, "more": None},
        {"id": 2, "more": 0.5},
        {"id": 4, "more": None},
    ]
    assert found.is_decoded.tolist() == [True, True, False, True, False]
    assert found.reasons == [
        "malformed Avro: schema 3: id is string, no BIGINT",
        "malformed Avro: the registry has no schema 9",
    ]


def test_a_block_of_several_schemas_without_a_tuple_is_set_aside() -> None:
    values = [_framed(1, b"a"), _framed(2, b"a"), _framed(3, b"")]
    found = _decoder({3: ORDER}).decode(pa.array(values, pa.binary()))
    assert found.reasons == [
        "malformed Avro: the registry has no schema 1",
        "malformed Avro: the registry has no schema 2",
        "malformed Avro: it ends within a field",
    ]
    assert not found.is_decoded.any()
    assert found.tuples.num_rows == 0
    assert found.tuples.schema.names == [each.name for each in WANTED]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        (b"", "malformed Avro: it does not begin with 0 and the number of a schema"),
        (b"\1\0\0\0\3abc", "malformed Avro: it does not begin with 0 and the number of a schema"),
        (b'{"id": 1}', "malformed Avro: it does not begin with 0 and the number of a schema"),
        (_framed(3, b""), "malformed Avro: it ends within a field"),
        (_framed(3, b"x" * 20_000), "record too large"),
        (_framed(3, b"\xff" * 11), "malformed Avro: a number has too many bytes"),
        (_framed(3, b"\x02\x06"), "malformed Avro: a union has no such branch"),
        (_framed(3, b"\x02\x02\x01"), "malformed Avro: a length is negative"),
        (_framed(3, b"\x02\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01abc"), "malformed Avro: it ends within a field"),
        (_framed(3, _written(ORDER, _orders(1)[0]) + b"\0"), "malformed Avro: bytes follow its last field"),
        (_framed(3, _written(ORDER, {**_orders(1)[0], "ok": True})[:-1] + b"\2"), "malformed Avro: a boolean is neither 0 nor 1"),
        (_framed(3, _written(ORDER, {**_orders(1)[0], "city": "XX"}).replace(b"XX", b"\xff\xfe")), "not UTF-8"),
    ],
)  # fmt: skip
def test_a_bad_value_is_set_aside_with_its_reason(value: bytes | None, reason: str) -> None:
    good = _framed(3, _written(ORDER, _orders(1)[0]))
    found = _decoder({3: ORDER}).decode(pa.array([good, value, good], pa.binary()))
    assert found.reasons == [reason]
    assert found.is_decoded.tolist() == [True, False, True]
    assert found.tuples.num_rows == 2


def test_whatever_the_bytes_no_more_is_read() -> None:
    drawn = random.Random(11)
    good = [_written(ORDER, each) for each in _orders(40)]
    values = []
    for _ in range(4_000):
        value = bytearray(drawn.choice(good))
        for _ in range(drawn.randint(1, 4)):
            value[drawn.randrange(len(value))] = drawn.randrange(256)
        values.append(_framed(3, bytes(value[: drawn.randint(0, len(value))])))
    decoder = _decoder({3: ORDER})
    together = decoder.decode(pa.array(values, pa.binary()))
    assert 0 < together.is_decoded.sum() < len(values)
    for place in range(0, len(values), 97):
        alone = decoder.decode(pa.array(values[place : place + 1], pa.binary()))
        assert alone.is_decoded[0] == together.is_decoded[place]


@pytest.mark.parametrize(
    ("kind", "column", "good", "bad"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, pa.decimal128(9, 2), [b"\x08\x3b\x9a\xc9\xff", b"\x08\xc4\x65\x36\x01"], [b"\x08\x3b\x9a\xca\x00", b"\x08\xc4\x65\x36\x00", b"\x20\x7f" + b"\xff" * 15, b"\x20\x80" + b"\0" * 15]),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, pa.decimal128(38, 0), [b"\x02\x01"], [b"\x20\x7f" + b"\xff" * 15]),
        ({"type": "long", "logicalType": "timestamp-millis"}, UTC_US, [9_223_372_036_854_775, -9_223_372_036_854_775], [9_223_372_036_854_776, -9_223_372_036_854_776, -(2**63)]),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("us"), [0], [-(2**63)]),
        ("int", pa.int32(), [2**31 - 1, -(2**31)], [2**31, -(2**31) - 1, 2**40 + 7]),
        ("int", pa.int64(), [2**31 - 1], [2**40 + 7]),
        ("int", pa.float64(), [2**31 - 1], [2**40 + 7]),
        ({"type": "int", "logicalType": "date"}, pa.date32(), [20_000, -(2**31)], [2**40, -(2**31) - 1]),
        ({"type": "int", "logicalType": "date"}, pa.int32(), [20_000], [2**40]),
    ],
)  # fmt: skip
def test_numbers_beyond_their_type_are_set_aside(
    kind: Any, column: pa.DataType, good: list[int | bytes], bad: list[int | bytes]
) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "v", "type": kind}]}
    plain = {"type": "record", "name": "r", "fields": [{"name": "v", "type": "long"}]}
    values = [
        _framed(1, each if isinstance(each, bytes) else _written(plain, {"v": each})) for each in good + bad
    ]
    found = _decoder({1: schema}, [WantedColumn("v", column, ("v",))]).decode(pa.array(values, pa.binary()))
    assert found.is_decoded.tolist() == [True] * len(good) + [False] * len(bad)
    assert found.tuples.column(0).null_count == 0
    assert set(found.reasons) == {f"malformed Avro: v is no {spark_name(column)}"}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("{", "the schema is not JSON"),
        ('"string"', "not one of a record"),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":"Other"}]}', "has no type Other"),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":{"x":1}}]}', "is not a schema"),
        ('{"type":["null","string"]}', "is not a schema"),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":{"type":["null","string"]}}]}', "string.* is not a schema"),
        ('{"type":"record","name":"r"}', "is not a schema"),
        ('{"type":"record","name":"r","fields":[{"type":"int"}]}', "is not a schema"),
        ('{"type":"record","name":"r","fields":[{"name":"a"}]}', "is not a schema"),
        ('{"type":"record","name":"r","fields":[7]}', "is not a schema"),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"enum","name":"e"}}]}', "is not a schema"),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"fixed","name":"f","size":9999999999}}]}', "is not a schema"),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"array"}}]}', "is not a schema"),
    ],
)  # fmt: skip
def test_what_is_no_avro_schema_is_refused(schema: str, told: str) -> None:
    with pytest.raises(AvroSchemaError, match=told):
        AvroSchema(schema)


@pytest.mark.parametrize(
    "odd", [{"precision": "9"}, {"precision": 39}, {}, {"precision": 2, "scale": 3}, {"precision": 2, "scale": None}]
)  # fmt: skip
def test_what_is_no_decimal_is_bytes(odd: dict[str, Any]) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", **odd}
    schema = AvroSchema(json.dumps({"type": "record", "name": "r", "fields": [{"name": "v", "type": kind}]}))
    assert AvroReader(schema, [WantedColumn("v", pa.binary(), ("v",))]).types[0] == WireType("bytes", "bytes")


def test_columns_that_a_field_cannot_have_are_named() -> None:
    schema = AvroSchema(json.dumps(ORDER))

    def odd(name: str, kind: pa.DataType) -> str | None:
        wanted = [WantedColumn(name, kind, (name,))]
        found = misfit(wanted, AvroReader(schema, wanted), [True])
        return None if found is None else " ".join(found)

    assert odd("id", pa.int32()) == "id is long, no INT"
    assert odd("tags", pa.string()) == "tags is a list, a map, a record or one of several types"
    assert odd("either", pa.string()) == "either is a list, a map, a record or one of several types"
    assert odd("price", pa.decimal128(12, 1)) == "price is decimal(12, 2), no DECIMAL(12, 1)"
    assert odd("at", pa.int64()) is None
