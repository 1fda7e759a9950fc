"""Columns from inside JSON records: the clause PATH, what it refuses, and what the worker makes of records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import SqlError
from penstock.operators.ingest.json_decode import JsonDecoder, decoded_first
from penstock.operators.ingest.json_records import Records
from penstock.operators.ingest.record_fields import FieldOf, RecordFields, SharedFieldError, field_tree
from penstock.spark.sources.table_checks import table_warnings
from penstock.sql.script.script import parse_script

FIELDS = RecordFields(
    (
        FieldOf("id", ("after", "id"), ("before", "id")),
        FieldOf("city", ("after", "city"), ("before", "city")),
        FieldOf(
            "at",
            ("source", "ts"),
        ),
        FieldOf("op", ("op",)),
    )
)
SCHEMA = pa.schema(
    {"id": pa.int32(), "city": pa.string(), "at": pa.timestamp("us", "UTC"), "op": pa.string()}
)
LINES = b"""{"after":{"id":1,"city":"Bern","x":[1]},"before":null,"source":{"ts":"2024-05-01T10:00:00Z"},"op":"c"}
{"after":null,"before":{"id":2,"city":"Thun"},"op":"d"}
{"after":{},"before":{"id":3},"op":"u"}
{}
"""


def test_path_follows_the_type_of_a_column() -> None:
    (table,) = parse_script(
        "CREATE TABLE t (id INT PATH '$.after.id', price DECIMAL(9, 2) path \"$['unit price'].x\", path STRING, a STRUCT<b: INT>) "
        "USING json OPTIONS (path 'in')"
    ).tables
    assert [(each.name, each.type_sql, each.path) for each in table.columns] == [
        ("id", "INT", ("after", "id")),
        ("price", "DECIMAL(9, 2)", ("unit price", "x")),
        ("path", "STRING", ()),
        ("a", "STRUCT<b: INT>", ()),
    ]


@pytest.mark.parametrize(
    ("column", "told", "marked"),
    [
        (
            "id INT PATH 'after.id'",
            r"Column id: 'after\.id' is not a path\. Write names such as",
            "'after.id'",
        ),
        ("id INT PATH '$'", "is not a path", "'$'"),
        ("id INT PATH '$.a..b'", "is not a path", "'$.a..b'"),
        ("id INT PATH '$.a[0].b'", "names elements of a list, which is not supported", "'$.a[0].b'"),
        ("id INT PATH $.a", "Expected a path in quotes here", None),
        ("id INT COMMENT 'x'", "a name, a type and, for fields within records, PATH", None),
    ],
)
def test_what_is_no_path_is_underlined(column: str, told: str, marked: str | None) -> None:
    with pytest.raises(SqlError, match=told) as caught:
        parse_script(f"CREATE TABLE t ({column}) USING json OPTIONS (path 'in')")
    if marked is not None:
        assert caught.value.text[caught.value.start : caught.value.end] == marked


@pytest.mark.parametrize(
    ("fields", "types"),
    [
        ((FieldOf("a", ("x",)), FieldOf("b", ("x", "y"))), "ii"),
        ((FieldOf("a", ("x", "y")), FieldOf("b", ("x",))), "ii"),
        ((FieldOf("a", ("x", "y")), FieldOf("b", ("x", "y"))), "is"),
    ],
)
def test_columns_that_need_one_field_in_two_forms_are_found(fields: tuple[FieldOf, ...], types: str) -> None:
    with pytest.raises(SharedFieldError) as caught:
        field_tree(fields, lambda name: types["ab".index(name)])
    assert (caught.value.column, caught.value.other) == ("b", "a")
    assert field_tree(fields[:1], lambda _: "i")


def test_two_columns_of_one_type_may_share_a_field() -> None:
    fields = (FieldOf("a", ("x", "y")), FieldOf("b", ("x", "y")))
    assert field_tree(fields, lambda _: "i") == {"x": {"y": "i"}}


def test_the_worker_takes_columns_out_of_objects() -> None:
    decoder = JsonDecoder(SCHEMA, 1 << 20, FIELDS)
    tuples, is_decoded = decoder.decode(Records.of_lines(LINES))
    assert np.all(is_decoded)
    assert tuples.schema == SCHEMA
    found = tuples.to_pylist()
    assert [(each["id"], each["city"], each["op"]) for each in found] == [
        (1, "Bern", "c"),
        (2, "Thun", "d"),
        (None, None, "u"),
        (None, None, None),
    ]
    assert found[0]["at"].isoformat() == "2024-05-01T10:00:00+00:00"


@pytest.mark.parametrize(
    "record",
    [
        b'{"after":3}',
        b'{"after":"{}"}',
        b'{"after":[]}',
        b'{"after":{"id":"x"}}',
        b'{"after":{"id":1,"id":2}}',
    ],
)
def test_what_is_no_such_object_is_left_to_spark(record: bytes) -> None:
    _, is_decoded = JsonDecoder(SCHEMA, 1 << 20, FIELDS).decode(Records.of_lines(record + b"\n"))
    assert not is_decoded.any()


def test_texts_within_objects_are_decoded_first() -> None:
    first = decoded_first(SCHEMA, (), FIELDS.nested)
    assert first.names == ["id", "city", "at"]


def test_paths_that_no_record_has_are_warned_of(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "1.json").write_bytes(LINES)
    (table,) = parse_script(
        f"CREATE TABLE t (id INT PATH '$.after.id', town STRING PATH '$.after.town', op STRING) USING json OPTIONS (path '{tmp_path}')"
    ).tables
    assert table_warnings(table) == ["the sampled records have no $.after.town, which will be NULL"]
    (table,) = parse_script(
        "CREATE TABLE t (id INT, town STRING, op STRING PATH '$.op') "
        f"USING json OPTIONS (path '{tmp_path}', format 'debezium-json')"
    ).tables
    assert table_warnings(table) == ["the sampled records have no $.after.town, which will be NULL"]
