"""What is said of a record that is set aside: the column and type that did not fit, and its line."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.operators.ingest.malformed import explained
from penstock.operators.ingest.map_stage import StreamProgram
from penstock.operators.ingest.outcomes import Outcomes
from penstock.operators.selection.selector import compile_selections
from penstock.plan.selection import Attribute, Interval, Query, SelectionSet, Term, ValueSet
from penstock.settings import Settings
from penstock.spark.tasks import worker
from penstock.spark.tasks.dataframe_stage import CORRUPT, ORIGIN, REASON, batch_processor
from penstock.spark.tasks.record_lines import with_lines
from penstock.spark.tasks.worker import Task, TaskContextData

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


def test_of_equal_records_no_line_is_told_that_may_be_anothers(tmp_path: Path) -> None:
    path = tmp_path / "1.csv"
    path.write_bytes(b"id\nbad\n1\nbad\nworse\n")
    origin = f"file:{path}"
    told = with_lines(pa.array([origin] * 2), pa.array([b"bad", b"worse"]))
    assert told.to_pylist() == [origin, f"{origin}:5"]


def test_records_of_many_blocks_are_told_with_lines_of_their_own_in_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "1.csv"
    path.write_bytes(b"id\nbad\n1\nbad\nworse\nlast\n")
    attribute = Attribute("id", pa.int64(), "`id`")
    query = Query("q", (Term(((0, ValueSet((Interval(0, 9),))),)),))
    plan = compile_selections(SelectionSet((attribute,), (query,)))
    program = StreamProgram("s", 0, plan, Outcomes.of_views(1), ("id",), None, None, Settings())
    shipped: Any = SimpleNamespace(value=pickle.dumps(program))
    staging = str(tmp_path / "staged")
    task = Task(
        TaskContextData(("malformed", 0), shipped, None, staging, staging, 0, 2**62, -(2**62), 0, -(2**62)), 0
    )
    processor = batch_processor(program, has_corrupt=True)
    opened: list[Path] = []
    real_open = Path.open

    def noted(self: Path, *args: Any, **how: Any) -> Any:
        opened.append(self)
        return real_open(self, *args, **how)

    monkeypatch.setattr(Path, "open", noted)
    monkeypatch.setattr(worker, "_PLACED_ROWS", 3)
    for records in (["bad", None], ["bad"], ["worse", "last"]):
        columns = {
            "id": pa.array([7 if record is None else None for record in records], pa.int64()),
            CORRUPT: pa.array([record and record.encode() for record in records], pa.binary()),
            REASON: pa.array([record and "malformed csv record" for record in records], pa.string()),
            ORIGIN: [f"file:{path}"] * len(records),
        }
        processor(task, pa.record_batch(columns), None)
    report = task.report()
    assert opened.count(path) == 1
    (staged,) = [file.path for file in report.files if file.kind == "quarantine"]
    told = {(row["record"], row["origin"]) for row in pq.read_table(staged).to_pylist()}
    origin = f"file:{path}"
    assert told == {
        *((b"bad", f"{origin}:{line}") for line in (2, 4)),
        (b"worse", f"{origin}:5"),
        (b"last", origin),
    }
    assert sum(report.quarantined.values()) == 4
