"""What is said of a record that is set aside: the column and type that did not fit, and its line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.operators.malformed import explained
from penstock.spark.record_lines import with_lines

SCHEMA = pa.schema(
    {
        "id": pa.int32(),
        "amount": pa.float64(),
        "late": pa.bool_(),
        "at": pa.timestamp("us", "UTC"),
        "city": pa.string(),
    }
)


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ('{"id": 1, "amount": "much"}', "amount is no DOUBLE"),
        ('{"id": 3000000000}', "id is no INT"),
        ('{"id": 1.5}', "id is no INT"),
        ('{"id": 1, "late": "yes"}', "late is no BOOLEAN"),
        ('{"at": "never"}', "at is no TIMESTAMP"),
        ('{"at": {}}', "at is no TIMESTAMP"),
        ("[1]", "no JSON object"),
        ('{"id": 1', "no JSON value"),
        ("[" * 100_000, "no JSON value"),
        ('{"id": 1, "amount": 2, "city": {}}', None),
    ],
)
def test_json_is_told_by_column_and_type(record: str, told: str | None) -> None:
    expected = f"malformed JSON: {told}" if told else "malformed JSON"
    assert explained("malformed JSON", record.encode(), SCHEMA) == expected


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ("1,much,true,2026-01-01,Bern", "amount is no DOUBLE"),
        ("x,1,true,2026-01-01,Bern", "id is no INT"),
        ('1,1,perhaps,2026-01-01,"Bern, CH"', "late is no BOOLEAN"),
        (",,,never,", "at is no TIMESTAMP"),
        ("1,2", None),
        ("1;2;3;4;5", None),
    ],
)
def test_csv_is_told_where_the_fields_can_be_told(record: str, told: str | None) -> None:
    expected = f"malformed csv record: {told}" if told else "malformed csv record"
    assert explained("malformed csv record", record.encode(), SCHEMA) == expected


def test_other_reasons_stay() -> None:
    assert explained("not UTF-8", b"\xff", SCHEMA) == "not UTF-8"
    assert explained("malformed JSON", b"\xff", SCHEMA) == "malformed JSON: no JSON value"


def test_a_record_of_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a b.csv"
    path.write_bytes(b"id\nbad\n1\r\nworse\r\nbad\n")
    origin = f"file:{str(tmp_path).replace(' ', '%20')}/a%20b.csv"
    records = pa.array([b"bad", b"worse", b"bad", b"gone", None], pa.binary())
    origins = pa.array([origin] * 5)
    assert (
        with_lines(origins, records).to_pylist() == [f"{origin}:{line}" for line in (2, 4, 5)] + [origin] * 2
    )
    topic = pa.array(["orders-0-17", None])
    assert with_lines(topic, records[:2]).to_pylist() == ["orders-0-17", None]
