"""What is said of a record that is set aside: the column and type that did not fit, and its line."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.operators.ingest.malformed import RecordForm, Repeats, explained, explained_each
from penstock.operators.ingest.outcomes import Outcomes
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.operators.selection.selector import compile_selections
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.value_sets import Interval, ValueSet
from penstock.settings import Settings
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.storage.layout import Layout
from penstock.spark.tasks import quarantined_lines
from penstock.spark.tasks.dataframe_stage import CORRUPT, ORIGIN, REASON, batch_processor
from penstock.spark.tasks.record_lines import with_lines
from penstock.spark.tasks.worker import Task, TaskContextData

PLAIN = RecordForm()
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
        ("[1]", "not a JSON object"),
        ('{"id": 1', "not a JSON value"),
        ("[" * 100_000, "not a JSON value"),
        ('{"id": 1, "amount": 2, "city": {}}', None),
    ],
)
def test_json_is_told_by_column_and_type(record: str, told: str | None) -> None:
    expected = f"malformed JSON: {told}" if told else "malformed JSON"
    assert explained("malformed JSON", record.encode(), SCHEMA, PLAIN) == expected


NESTED = pa.schema(
    {
        "id": pa.int32(),
        "paid": pa.decimal128(4, 2),
        "who": pa.struct({"age": pa.int32(), "tags": pa.list_(pa.int32())}),
        "day": pa.date32(),
    }
)


@pytest.mark.parametrize(
    ("record", "found", "told"),
    [
        ('{"id":1,"day":"2024-02-30"}', {"id"}, "day is no DATE"),
        ('{"id":1,"paid":12345.6}', set(), "paid is no DECIMAL(4, 2)"),
        ('{"id":1,"paid":"1,5"}', {"id"}, "paid is no DECIMAL(4, 2)"),
        ('{"paid":NaN}', set(), "paid is no DECIMAL(4, 2)"),
        ('{"id":"x","paid":-Infinity}', set(), "id is no INT"),
        (f'{{"paid":{"9" * 400}}}', set(), "paid is no DECIMAL(4, 2)"),
        ('{"id":1,"id":"x"}', {"id"}, "id is no INT"),
        ('{"day":"2024-02-30","day":"2024-02-01"}', {"day"}, "day appears twice"),
        ('{"who":{"age":"old"}}', {"who"}, "who.age is no INT"),
        ('{"who":{"tags":[1,"a"]}}', {"who"}, "who.tags.element is no INT"),
        ('{"who":[]}', set(), "who is no STRUCT<age: INT, tags: ARRAY<INT>>"),
        ('[{"id":1},{"id":"x"}]', {"id"}, "id is no INT"),
        # what the reader takes beyond the standard
        ("{'id': 'x'}", set(), None),
        ('{id: 1, "paid": 1.5}', {"id"}, None),
        # a reader that finds nothing at all blames no column
        ('{"id":1,"day":"2024-02-01"}', set(), None),
    ],
)
def test_json_is_told_by_what_the_reader_has_found(record: str, found: set[str], told: str | None) -> None:
    reason = explained("malformed json record", record.encode(), NESTED, PLAIN, [frozenset(found)])
    assert reason == (f"malformed json record: {told}" if told else "malformed json record")


#: as Spark has told columns of each record: those that are named have a value
CSV: list[tuple[dict[str, str], str, set[str], str | None]] = [
    ({}, "1,much,true,2026-01-01,Bern", {"id", "late", "at", "city"}, "amount is no DOUBLE"),
    ({}, "x,1,true,2026-01-01,Bern", {"amount", "late", "at", "city"}, "id is no INT"),
    ({}, '1,1,perhaps,2026-01-01,"Bern, CH"', {"id", "amount", "at", "city"}, "late is no BOOLEAN"),
    ({}, ",,,never,", set(), "at is no TIMESTAMP"),
    ({}, "1,2", {"id", "amount"}, "2 fields, 5 columns"),
    ({}, "1;2;3;4;5", set(), "1 field, 5 columns"),
    ({}, "," * 2_000, set(), "more than 1,000 fields, 5 columns"),
    ({"sep": ";"}, "1;x,5;true;2026-01-01;", {"id", "late", "at"}, "amount is no DOUBLE"),
    ({"sep": ";"}, "1;1,5;true;2026-01-01;a;", {"id", "late", "at"}, "6 fields, 5 columns"),
    ({"sep": "\\t"}, "1\tx\t\t\t", {"id"}, "amount is no DOUBLE"),
    ({"delimiter": "||"}, "x||1||true||2026-01-01||a", {"amount", "late", "at"}, "id is no INT"),
    ({"delimiter": "||"}, 'x||"1"||true||2026-01-01||a', {"amount", "late", "at"}, None),
    ({"quote": "'"}, "x,1,true,2026-01-01,'a,b'", {"amount", "late", "at"}, "id is no INT"),
    ({"quote": ""}, 'x,1,true,2026-01-01,"a', {"amount", "late", "at"}, "id is no INT"),
    ({"escape": '"'}, 'x,1,true,2026-01-01,"a "","" b"', {"amount", "late", "at"}, "id is no INT"),
    ({}, 'x,1,true,2026-01-01,"a \\",\\" b"', {"amount", "late", "at"}, "id is no INT"),
    ({}, "x,1,true,2026-01-01,C:\\", {"amount", "late", "at"}, "id is no INT"),
    ({"nullvalue": "NA"}, "NA,1,maybe,2026-01-01,a", {"amount", "at"}, "late is no BOOLEAN"),
    ({}, "1,2,true,2026-01-01,a", {"id", "amount", "late", "at", "city"}, None),
]


@pytest.mark.parametrize(("options", "record", "found", "told"), CSV)
def test_csv_is_taken_apart_as_its_reader_does(
    options: dict[str, str], record: str, found: set[str], told: str | None
) -> None:
    form = RecordForm.of("csv", SCHEMA.names, options)
    reason = explained("malformed csv record", record.encode(), SCHEMA, form, [frozenset(found)])
    assert reason == (f"malformed csv record: {told}" if told else "malformed csv record")


def test_a_column_that_a_folder_gives_is_no_field() -> None:
    schema = pa.schema({"id": pa.int32(), "k": pa.string(), "x": pa.float64()})
    aside = pa.record_batch(
        {
            "record": pa.array([b"1,x", b"1,2,3"]),
            "origin": ["file:/data/K=a%20b/1.csv", "file:/data/k=c/1.csv"],
            "reason": ["malformed csv record"] * 2,
        }
    )
    has_value = {name: pa.array([name != "x"] * 2) for name in schema.names}
    told = explained_each(aside, schema, PLAIN, Repeats(), has_value).column("reason").to_pylist()
    assert told == ["malformed csv record: x is no DOUBLE", "malformed csv record: 3 fields, 2 columns"]


def test_a_line_with_an_array_is_one_record(tmp_path: Path) -> None:
    """Its rows may lie in several blocks, and the same line may stand there again."""
    line = b'[{"id":1,"amount":2},{"id":2,"amount":"x"},{"id":3}]'
    path = tmp_path / "1.json"
    path.write_bytes(b'{"id":7}\n' + (line + b"\n") * 2 + b'{"id":"x"}\n')
    rows = [line] * 6 + [b'{"id":"x"}']
    repeats = Repeats()
    blocks = []
    for first, last in ((0, 2), (2, 5), (5, 7)):
        own = rows[first:last]
        aside = pa.record_batch(
            {
                "record": pa.array(own, pa.binary()),
                "origin": [f"file:{path}"] * len(own),
                "reason": ["malformed json record"] * len(own),
            }
        )
        blocks.append(explained_each(aside, SCHEMA, PLAIN, repeats, {}))
    told = pa.Table.from_batches(blocks)
    assert told.column("reason").to_pylist() == ["malformed json record: amount is no DOUBLE"] * 2 + [
        "malformed json record: id is no INT"
    ]
    record, origin, _ = told.combine_chunks().columns
    lines = with_lines(origin.combine_chunks(), record.combine_chunks()).to_pylist()
    assert lines == [f"file:{path}:{number}" for number in (2, 3, 4)]


@pytest.mark.parametrize("line", [b'["a","b","c"]', b"[1,2]", b'[{"id":"x"},null]'])
def test_equal_lines_with_arrays_of_no_objects_are_a_record_each(line: bytes) -> None:
    """Spark makes one row of such a line, however many elements it has."""
    assert Repeats().groups([line] * 3, ["file:/1.json"] * 3) == [[0], [1], [2]]


@pytest.mark.parametrize("encoding", ["ISO-8859-1", "utf-16", "utf-8"])
def test_a_record_is_looked_for_in_the_encoding_of_its_file(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "1.csv"
    path.write_text("eins\nMüller;x\r\nzwei\n", encoding=encoding, newline="")
    origins, records = pa.array([f"file:{path}"]), pa.array(["Müller;x".encode()])
    assert with_lines(origins, records, encoding).to_pylist() == [f"file:{path}:2"]
    assert with_lines(origins, records, "no such").to_pylist() == [f"file:{path}"]


def test_other_reasons_stay() -> None:
    assert explained("not UTF-8", b"\xff", SCHEMA, PLAIN) == "not UTF-8"
    assert explained("malformed JSON", b"\xff", SCHEMA, PLAIN) == "malformed JSON: not a JSON value"


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
    program = StreamProgram("s", 0, plan, Outcomes.numbered(1), ("id",), None, None, Settings())
    shipped: Any = SimpleNamespace(value=pickle.dumps(program))
    layout = Layout.of(tmp_path / "out", None)
    store = BatchFiles.of(layout, "s", None, 0)
    task = Task(TaskContextData(("malformed", 0), shipped, None, store, 0, 2**62, -(2**62), 0, -(2**62)), 0)
    processor = batch_processor(program, PLAIN)
    opened: list[Path] = []
    real_open = Path.open

    def noted(self: Path, *args: Any, **how: Any) -> Any:
        opened.append(self)
        return real_open(self, *args, **how)

    monkeypatch.setattr(Path, "open", noted)
    monkeypatch.setattr(quarantined_lines, "_PLACED_ROWS", 3)
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
    (staged,) = [layout.quarantine("s") / file.name for file in report.files if file.kind == "quarantine"]
    told = {(row["record"], row["origin"]) for row in pq.read_table(staged).to_pylist()}
    origin = f"file:{path}"
    assert told == {
        *((b"bad", f"{origin}:{line}") for line in (2, 4)),
        (b"worse", f"{origin}:5"),
        (b"last", origin),
    }
    assert sum(report.quarantined.values()) == 4
