"""Protobuf on the wire: the same values as the library gives; no byte beyond a value is read."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

from penstock.operators.wire.protobuf_programs import ProtobufFiles, ProtobufSchemaError
from penstock.operators.wire.readers import PROTOBUF, ProtobufReader, WantedColumn
from penstock.operators.wire.value_decoder import Decoded, UnknownSchemaError, ValueDecoder
from penstock.spark.tasks.value_formats import ValueFormat

UTC_US = pa.timestamp("us", "UTC")


def _framed(number: int, value: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + value


def _all(found: Decoded) -> list[dict[str, Any]]:
    assert found.is_decoded.all(), found.reasons[:3]
    return found.tuples.to_pylist()


def _proto() -> descriptor_pb2.FileDescriptorProto:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    file.message_type.add(name="Other").field.add(name="z", number=1, type=kinds.TYPE_INT32, label=1)
    order = file.message_type.add(name="Order")
    inner = order.nested_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=kinds.TYPE_FLOAT, label=1)
    inner.field.add(name="text", number=2, type=kinds.TYPE_STRING, label=1)
    order.enum_type.add(name="State").value.extend(
        descriptor_pb2.EnumValueDescriptorProto(name=name, number=number)
        for number, name in enumerate(("NEW", "PAID"))
    )
    plain = [
        "int32",
        "sint32",
        "sfixed32",
        "uint32",
        "fixed32",
        "int64",
        "sint64",
        "sfixed64",
        "uint64",
        "fixed64",
        "bool",
        "double",
        "string",
        "bytes",
    ]
    for number, kind in enumerate(plain, 1):
        order.field.add(name=f"f_{kind}", number=number, type=getattr(kinds, f"TYPE_{kind.upper()}"), label=1)
    order.field.add(name="state", number=20, type=kinds.TYPE_ENUM, type_name=".shop.Order.State", label=1)
    order.field.add(name="inner", number=21, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.Inner", label=1)
    order.field.add(
        name="at", number=22, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=1
    )
    order.field.add(
        name="wrapped", number=23, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Int64Value", label=1
    )
    order.field.add(name="list", number=24, type=kinds.TYPE_INT32, label=3)
    order.field.add(
        name="maybe", number=2_000, type=kinds.TYPE_INT32, label=1, proto3_optional=True, oneof_index=0
    )
    order.oneof_decl.add(name="_maybe")
    return file  # fmt: skip


COLUMNS = {
    "f_int32": pa.int32(), "f_sint32": pa.int32(), "f_sfixed32": pa.int32(), "f_uint32": pa.int64(), "f_fixed32": pa.int64(),
    "f_int64": pa.int64(), "f_sint64": pa.int64(), "f_sfixed64": pa.int64(), "f_uint64": pa.decimal128(20, 0),
    "f_fixed64": pa.decimal128(20, 0), "f_bool": pa.bool_(), "f_double": pa.float64(), "f_string": pa.string(), "f_bytes": pa.binary(),
    "state": pa.string(), "at": UTC_US, "wrapped": pa.int64(), "maybe": pa.int32(),
}  # fmt: skip


def _messages(file: descriptor_pb2.FileDescriptorProto, number: int) -> list[Any]:
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    drawn = random.Random(5)
    small, large = [0, 1, -1, 2**31 - 1, -(2**31)], [0, 1, -1, 2**63 - 1, -(2**63)]
    made = []
    for each in range(number):
        message = kind()
        for name in ("f_int32", "f_sint32", "f_sfixed32"):
            setattr(message, name, drawn.choice(small))
        for name in ("f_int64", "f_sint64", "f_sfixed64"):
            setattr(message, name, drawn.choice(large))
        message.f_uint32, message.f_fixed32 = drawn.choice([0, 2**32 - 1]), drawn.choice([0, 2**31])
        message.f_uint64, message.f_fixed64 = drawn.choice([0, 2**64 - 1]), drawn.choice([0, 2**63])
        message.f_bool, message.f_double = bool(each % 2), drawn.choice([0.0, -0.25])
        message.f_string, message.f_bytes = drawn.choice(["", "Zürich"]), drawn.choice([b"", b"\xff\0"])
        message.state = drawn.choice([0, 1, 7])
        if each % 3:
            message.inner.x = drawn.choice([0.0, 1.5])
        if each % 4:
            message.at.seconds, message.at.nanos = (
                drawn.choice([0, 1_714_557_600, -1]),
                drawn.choice([0, 5_000]),
            )
        if each % 5:
            message.wrapped.value = drawn.choice([0, 9])
        if each % 6:
            message.maybe = drawn.choice([0, 3])
        message.list.extend(range(each % 5))
        made.append(message)
    return made


def _row(message: Any) -> dict[str, Any]:
    row = {name: getattr(message, name) for name in COLUMNS if name.startswith("f_")}
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    at = epoch + timedelta(seconds=message.at.seconds, microseconds=message.at.nanos // 1_000)
    return {
        **row,
        "state": {0: "NEW", 1: "PAID"}.get(message.state, str(message.state)),
        "at": at if message.HasField("at") else None,
        "wrapped": message.wrapped.value if message.HasField("wrapped") else None,
        "maybe": message.maybe if message.HasField("maybe") else None,
        "x": message.inner.x if message.HasField("inner") else None,
        "text": message.inner.text if message.HasField("inner") else None,
    }


def _protobuf_decoder(files: ProtobufFiles) -> ValueDecoder:
    wanted = [WantedColumn(name, kind, (name,)) for name, kind in COLUMNS.items()]
    wanted += [
        WantedColumn("x", pa.float32(), ("inner", "x")),
        WantedColumn("text", pa.string(), ("inner", "text")),
    ]

    def readers(_: int, path: tuple[int, ...]) -> tuple[ProtobufReader, list[bool]]:
        try:
            return ProtobufReader(files.message(None, path), wanted), [True] * len(wanted)
        except ProtobufSchemaError as error:
            raise UnknownSchemaError(str(error)) from None

    return ValueDecoder(wanted, PROTOBUF, readers, 10_000)


def test_messages_are_those_of_the_library() -> None:
    file = _proto()
    messages = _messages(file, 400)
    # the message is the second of its file: one number, 1
    values = [_framed(4, b"\x02\x02" + each.SerializeToString()) for each in messages]
    found = _protobuf_decoder(ProtobufFiles([file])).decode(pa.array(values, pa.binary()))
    decimals = dict.fromkeys(("f_uint64", "f_fixed64"), Decimal)
    expected = [
        {name: decimals.get(name, lambda each: each)(value) for name, value in _row(each).items()}
        for each in messages
    ]
    assert _all(found) == expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\x02\x02\x08", "malformed Protobuf: it ends within a field"),
        (b"\x02\x02\x08" + b"\xff" * 11, "malformed Protobuf: a number has too many bytes"),
        (b"\x02\x02\x07", "malformed Protobuf: a field has no valid number"),
        (b"\x02\x02\x6a\x7fabc", "malformed Protobuf: it ends within a field"),
        (b"\x02\x02\x6a\x02\xff\xfe", "not UTF-8"),
        (b"\x02\x08", "malformed Protobuf: the value's message is not in the schema"),
        (b"\xff\xff", "malformed Protobuf: the path of its message is not readable"),
    ],
)
def test_a_bad_message_is_set_aside_with_its_reason(value: bytes, reason: str) -> None:
    found = _protobuf_decoder(ProtobufFiles([_proto()])).decode(pa.array([_framed(4, value)], pa.binary()))
    assert found.reasons == [reason]


def test_unknown_fields_and_groups_are_skipped_and_later_values_win() -> None:
    group = b"\xf3\x01\x08\x01\xf4\x01"
    value = (
        b"\x02\x02" + b"\x08\x01" + group + b"\xfd\x7f1234" + b"\xaa\x01\x05\x0d\0\0\xc0\x3f" + b"\x08\x02"
    )
    (row,) = _all(
        _protobuf_decoder(ProtobufFiles([_proto()])).decode(pa.array([_framed(4, value)], pa.binary()))
    )
    assert (row["f_int32"], row["x"], row["text"], row["maybe"]) == (2, 1.5, "", None)


def test_a_moment_that_no_column_has_is_set_aside() -> None:
    values = []
    for seconds in (253_402_300_799, 2**62, -(2**62), 2**63 - 1, -(2**63), 9_223_372_036_854):
        at = timestamp_pb2.Timestamp(seconds=seconds, nanos=999_999_999).SerializeToString()
        values.append(_framed(4, b"\x02\x02" + b"\xb2\x01" + bytes([len(at)]) + at))
    found = _protobuf_decoder(ProtobufFiles([_proto()])).decode(pa.array(values, pa.binary()))
    assert found.reasons == ["malformed Protobuf: at is no TIMESTAMP"] * 5
    assert found.tuples["at"].to_pylist() == [datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)]


def test_of_an_int32_the_lowest_bits_count() -> None:
    # 2**40 + 7, as the library reads it
    value = _framed(4, b"\x02\x02" + b"\x08\x87\x80\x80\x80\x80\x20")
    (row,) = _all(_protobuf_decoder(ProtobufFiles([_proto()])).decode(pa.array([value], pa.binary())))
    assert row["f_int32"] == 7


def test_of_a_oneof_the_last_field_counts() -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="one.proto", package="one", syntax="proto3")
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=kinds.TYPE_INT32, label=1)
    inner.field.add(name="y", number=2, type=kinds.TYPE_INT32, label=1, proto3_optional=True, oneof_index=0)
    inner.oneof_decl.add(name="_y")
    outer = file.message_type.add(name="Outer")
    outer.oneof_decl.add(name="kind")
    own = {"label": 1, "oneof_index": 0}
    outer.field.add(name="a", number=1, type=kinds.TYPE_INT32, **own)
    outer.field.add(name="b", number=2, type=kinds.TYPE_STRING, **own)
    outer.field.add(name="m", number=3, type=kinds.TYPE_MESSAGE, type_name=".one.Inner", **own)
    outer.field.add(name="unwanted", number=4, type=kinds.TYPE_MESSAGE, type_name=".one.Inner", **own)
    outer.field.add(name="z", number=5, type=kinds.TYPE_INT32, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("one.Outer"))
    wanted = [
        WantedColumn("a", pa.int32(), ("a",)),
        WantedColumn("b", pa.string(), ("b",)),
        WantedColumn("x", pa.int32(), ("m", "x")),
        WantedColumn("y", pa.int32(), ("m", "y")),
        WantedColumn("z", pa.int32(), ("z",)),
    ]
    message = ProtobufFiles([file]).message("Outer")
    decoder = ValueDecoder(
        wanted,
        PROTOBUF,
        lambda _, __: (ProtobufReader(message, wanted), [True] * len(wanted)),
        1_000,
        is_framed=False,
    )
    # a number in the place of the message is an unknown field
    parts = [
        b"\x08\x07",
        b"\x12\x01b",
        b"\x1a\x02\x08\x05",
        b"\x1a\x02\x10\x06",
        b"\x22\x00",
        b"\x20\x01",
        b"\x28\x09",
    ]
    drawn = random.Random(2)
    values = [b"".join(drawn.choices(parts, k=drawn.randint(0, 5))) for _ in range(500)]
    expected = []
    for value in values:
        one = kind.FromString(value)
        has = {name: one.HasField(name) for name in ("a", "b", "m")}
        expected.append(
            {
                "a": one.a if has["a"] else None,
                "b": one.b if has["b"] else None,
                "x": one.m.x if has["m"] else None,
                "y": one.m.y if has["m"] and one.m.HasField("y") else None,
                "z": one.z,
            }
        )
    assert _all(decoder.decode(pa.array(values, pa.binary()))) == expected


def test_random_bytes_of_messages_read_no_more() -> None:
    drawn = np.random.default_rng(3)
    good = [each.SerializeToString() for each in _messages(_proto(), 30)]
    values = []
    for number in range(3_000):
        value = bytearray(good[number % len(good)])
        for place in drawn.integers(0, len(value), 3):
            value[place] = drawn.integers(0, 256)
        values.append(_framed(4, b"\x02\x02" + bytes(value[: drawn.integers(0, len(value) + 1)])))
    found = _protobuf_decoder(ProtobufFiles([_proto()])).decode(pa.array(values, pa.binary()))
    assert 0 < found.is_decoded.sum() < len(values)


def test_files_of_types_are_checked() -> None:
    with pytest.raises(ProtobufSchemaError, match="no FileDescriptorSet"):
        ProtobufFiles.of_set(b"\xff\xff")
    file = _proto()
    file.dependency.append("missing.proto")
    with pytest.raises(ProtobufSchemaError, match="do not fit together"):
        ProtobufFiles([file])
    with pytest.raises(
        ProtobufSchemaError, match=r"message Nothing does not exist; messages: shop\.Other, shop\.Order"
    ):
        ProtobufFiles([_proto()]).message("Nothing")


@pytest.mark.parametrize(
    ("message", "path", "reason"),
    [
        (None, b"\x02\x02", None),
        ("Order", b"\x02\x02", None),
        (
            "shop.Order",
            b"\0",
            "malformed Protobuf: schema 4: the value is a shop.Other, and schema.message is shop.Order",
        ),
    ],
)
def test_a_value_of_another_message_is_set_aside(
    message: str | None, path: bytes, reason: str | None
) -> None:
    files = descriptor_pb2.FileDescriptorSet(file=[_timestamps(), _wrappers(), _proto()]).SerializeToString()
    form = ValueFormat(PROTOBUF, schema=files, message=message)
    decoder = form.decoder([WantedColumn("f_int32", pa.int32(), ("f_int32",))], 1_000)
    found = decoder.decode(pa.array([_framed(4, path + b"\x08\x05")], pa.binary()))
    assert found.reasons == ([] if reason is None else [reason])
    assert found.tuples.to_pylist() == ([{"f_int32": 5}] if reason is None else [])


def _timestamps() -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)


def _wrappers() -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto.FromString(wrappers_pb2.DESCRIPTOR.serialized_pb)
