"""Rows written as messages, read back by our own reader of Protobuf."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.operators.wire.protobuf_programs import ProtobufFiles, ProtobufSchemaError
from penstock.operators.wire.protobuf_writer import ProtobufWriter, message_path
from penstock.operators.wire.readers import PROTOBUF, ProtobufReader, WantedColumn
from penstock.operators.wire.value_decoder import ValueDecoder
from unit.test_protobuf_values import COLUMNS, _proto

AT = datetime(2024, 5, 1, 10, 0, 0, 5, UTC)
INNER = pa.struct([("x", pa.float32()), ("text", pa.string())])
SCHEMA = pa.schema(
    [
        *(pa.field(name, kind) for name, kind in COLUMNS.items() if not pa.types.is_decimal(kind)),
        ("inner", INNER),
    ]
)
ROW: dict[str, Any] = {
    **{"f_int32": -1, "f_sint32": -(2**31), "f_sfixed32": 7, "f_uint32": 2**32 - 1, "f_fixed32": 0},
    **{"f_int64": -(2**63), "f_sint64": 5, "f_sfixed64": 2**63 - 1, "f_bool": True, "f_double": -0.25},
    **{"f_string": "Z\u00fcrich", "f_bytes": b"\xff\0", "state": "PAID", "at": AT, "wrapped": 0, "maybe": 0},
    "inner": {"x": 1.5, "text": None},
}


def files() -> ProtobufFiles:
    """A file with two messages."""
    return ProtobufFiles([_proto()])


def read(values: list[bytes]) -> list[dict[str, Any]]:
    """What our reader makes of values."""
    message = files().message("Order")
    wanted = [
        *(WantedColumn(each.name, each.type, (each.name,)) for each in SCHEMA if each.name != "inner"),
        WantedColumn("x", pa.float32(), ("inner", "x")),
        WantedColumn("text", pa.string(), ("inner", "text")),
    ]
    reader = ProtobufReader(message, wanted)
    decoder = ValueDecoder(
        wanted, PROTOBUF, lambda *_: (reader, [True] * len(wanted)), 1_000, is_framed=False
    )
    found = decoder.decode(pa.array(values, pa.binary()))
    assert found.is_decoded.all(), found.reasons
    rows: list[dict[str, Any]] = found.tuples.to_pylist()
    return rows


def test_what_was_written_is_read() -> None:
    nothing = dict.fromkeys(SCHEMA.names)
    rows = pa.Table.from_pylist([ROW, nothing], SCHEMA)
    whole, empty = read(ProtobufWriter(files().message("Order"), SCHEMA).values(rows))
    assert {**whole, "inner": {"x": whole["x"], "text": None}} == {**ROW, "x": 1.5, "text": ""}
    assert (empty["at"], empty["wrapped"], empty["maybe"], empty["x"]) == (None, None, None, None)
    # without presence in Protobuf
    assert (empty["f_int32"], empty["f_string"]) == (0, "")


def test_a_message_is_found_by_its_path() -> None:
    found = files()
    assert message_path(found.message("Other")) == b"\0"
    assert message_path(found.message("Order")) == b"\2\2"
    assert message_path(found.message("Order").nested_types[0]) == b"\4\2\0"
    assert found.message(None, (1, 0)).name == "Inner"


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (pa.field("f_int", pa.int32()), "message shop.Order has no field f_int; fields: f_int32"),
        (pa.field("f_int32", pa.int64()), "column f_int32 is int64, and its field is int32. CAST it"),
        (pa.field("f_string", pa.int64()), "column f_string is int64, and its field is string"),
        (pa.field("list", pa.int32()), "its field is a list or map"),
        (pa.field("inner", pa.string()), "its field is a message"),
        (pa.field("inner", pa.struct([("y", pa.int32())])), "message shop.Order.Inner has no field y"),
    ],
)
def test_a_column_that_no_field_takes_is_refused(column: pa.Field, told: str) -> None:
    with pytest.raises(ProtobufSchemaError, match=told):
        ProtobufWriter(files().message("Order"), pa.schema([column]))


def test_a_value_that_a_field_cannot_have_is_no_other_value() -> None:
    message = files().message("Order")
    for name, kind, value in (("state", pa.string(), "LOST"), ("f_uint32", pa.int64(), -1)):
        table = pa.table({name: pa.array([value], kind)})
        with pytest.raises(ValueError, match=r"LOST|out of range"):
            ProtobufWriter(message, table.schema).values(table)
