"""Numbers of definitions: given once, kept whatever comes between, carried by rows through merges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StructType

from penstock.cli.results import Format, results
from penstock.errors import InputError, UnknownNameError
from penstock.operators.selection.matches import DEFINITIONS, QUERIES
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.manifests import PublishedBatches, read_published
from penstock.spark.publication.merging import merge
from penstock.spark.publication.publish import Publisher
from penstock.spark.reporting.catalog import find_view, read_catalog
from penstock.spark.reporting.definitions import all_definitions, numbered
from penstock.spark.results import window_schemas
from penstock.spark.results.cataloguing import CatalogWriter
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.bindings import PlanLog, ViewDefinition, WindowDefinition
from penstock.spark.storage.formats import MANIFEST, RESULT_VIEWS
from penstock.spark.storage.layout import Layout
from publishing import listed, stored

SCHEMA = StructType().add("id", LongType())
STREAM = "t"


def selection(condition: str, projection: Any = None, number: int = 1) -> ViewDefinition:
    return ViewDefinition("rule", f"rule:{condition}", "", condition, projection, number)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = Layout(tmp_path / "out", tmp_path / "out" / "_penstock" / "checkpoint")
    found.open()
    return found


def declared(layout: Layout, condition: str, stream: str = STREAM, **more: Any) -> int:
    """Declares a view, as a run does; the number of its definition."""
    views = CatalogWriter(layout).number(stream, SCHEMA, {"rule": selection(condition, **more)})
    CatalogWriter(layout).write({stream: SCHEMA}, {stream: views})
    found = views["rule"]
    assert isinstance(found, ViewDefinition)
    assert find_view(layout, "RULE")[1]["number"] == found.number
    return found.number


def test_a_definition_has_the_number_that_it_had(layout: Layout) -> None:
    numbers = [declared(layout, text) for text in ("id > 1", "id > 2", "id>1 -- again", "ID > 2", "id > 3")]
    assert numbers == [1, 2, 1, 2, 3]
    assert declared(layout, "id > '3'") == 4, "blanks and names make no difference, texts do"
    assert declared(layout, "id > 1", projection=(("id", "id"),)) == 1, "nor does a SELECT list"
    CatalogWriter(layout).write({STREAM: SCHEMA}, {STREAM: {}})
    assert find_view(layout, "rule")[1]["dropped"]
    assert declared(layout, "id > 1") == 1, "a view that was dropped comes back"
    assert declared(layout, "id > 1", stream="other") == 5, "on another stream it is another one"
    assert find_view(layout, "rule", definition=2)[1]["condition"] == "ID > 2"
    with pytest.raises(
        UnknownNameError, match=r"rule has no definition 6\. Existing definitions: 1, 2, 3, 4, 5"
    ):
        find_view(layout, "rule", definition=6)


def test_a_number_is_durable_before_anything_is_bound_to_it(layout: Layout) -> None:
    declared(layout, "id > 1")
    views = CatalogWriter(layout).number(STREAM, SCHEMA, {"rule": selection("id > 2")})
    # the run ends here, and the script is changed before the next one
    assert read_catalog(layout)["views"]["rule"]["number"] == 2
    assert declared(layout, "id > 3") == 3
    PlanLog(layout, STREAM).store(0, views)  # type: ignore[arg-type]
    assert PlanLog(layout, STREAM).load(0) == views


def test_other_kinds_of_views_are_told_apart_by_their_ids() -> None:
    window = {"id": "v:1", "stream": STREAM}
    join = {"id": "v:2", "lanes": [3]}
    first = numbered(window, None)
    second = numbered(join, first)
    third = numbered({"projection": None, "condition": "TRUE", "id": "v:3", "stream": STREAM}, second)
    assert {each["number"]: each["id"] for each in all_definitions(third)} == {1: "v:1", 2: "v:2", 3: "v:3"}
    again = numbered({**join, "lanes": [3, 5]}, third)
    assert (again["number"], again["lanes"]) == (2, [3, 5])
    assert {each["number"] for each in all_definitions(again)} == {1, 2, 3}


def test_a_plan_of_first_definitions_is_as_it_was_before_numbers(layout: Layout) -> None:
    log = PlanLog(layout, STREAM)
    log.store(0, {"rule": selection("id > 1")})
    log.store(1, {"rule": selection("id > 2", number=2)})
    assert [log.load(version)["rule"].number for version in (0, 1)] == [1, 2]
    assert b'"number":' not in (layout.plans(STREAM)[0].get() or b"")


def write_matches(layout: Layout, name: str, batch: int, rows: dict[str, Any]) -> Path:
    path = layout.matches(STREAM) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds = {"id": pa.int64(), QUERIES: pa.list_(pa.string()), DEFINITIONS: pa.list_(pa.int32())}
    pq.write_table(pa.table(rows, pa.schema({each: kinds.get(each, pa.string()) for each in rows})), path)
    file = listed("matches", path, 2, 2)
    MANIFEST.replace(
        layout.manifests(STREAM)[batch],
        {"first": batch, "last": batch, "files": [file], "batches": [{"batch": batch}], "published": 0.0},
    )
    return path


def test_rows_of_a_merged_file_are_those_of_their_definitions(
    layout: Layout, capfd: pytest.CaptureFixture[str]
) -> None:
    for condition in ("id > 1", "id > 2"):
        declared(layout, condition)
    first = write_matches(layout, "0.parquet", 0, {"id": [2, 3], QUERIES: [["a", "rule"], ["rule"]]})
    wide = {"id": [1, 4], "note": ["x", "y"], QUERIES: [["a"], ["a", "rule"]], DEFINITIONS: [[1], [1, 2]]}
    second = write_matches(layout, "1.parquet", 1, wide)
    third = write_matches(layout, "2.parquet", 2, {"id": [5], "note": ["z"], QUERIES: [["rule"]]})
    expected = {1: [2, 3, 5], 2: [4]}
    for _ in range(2):
        for number, ids in expected.items():
            found = plain_rows(layout, "rule", 0, definition=number)
            assert found is not None
            assert (found.rows["id"].to_pylist(), found.count) == (ids, len(ids))
            few = plain_rows(layout, "rule", 1, definition=number)
            assert few is not None
            assert (few.rows["id"].to_pylist(), few.count) == (ids[:1], len(ids))
        with pytest.raises(InputError, match="rule is not a window view"):
            results(layout.output, "rule", final_only=True, limit=0, output_format=Format.CSV)
        results(layout.output, "rule", all_definitions=True, limit=0, output_format=Format.CSV)
        assert capfd.readouterr().out.splitlines() == ['"id","definition"', "2,1", "3,1", "4,2", "5,1"]
        merged = layout.matches(STREAM) / "merged.parquet"
        if not merged.exists():
            merge([first, second, third], merged)
            for batch in (1, 2):
                layout.manifests(STREAM)[batch].remove()
            file = listed("matches", merged, 5, 5)
            MANIFEST.replace(
                layout.manifests(STREAM)[0],
                {"first": 0, "last": 0, "files": [file], "batches": [{"batch": 0}]},
            )
    assert pq.read_table(merged)["note"].to_pylist() == [None, None, "x", "y", "z"]


def test_a_window_view_that_is_redefined_while_it_is_read_is_not_said_to_be_damaged(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher(layout, results_of(STREAM), (), owner=STREAM)

    def redefine(operator: int) -> None:
        shape = StructType().jsonValue()
        view = {"columns": shape, "row": shape, "definition": f"id {operator}", "floor": None}
        RESULT_VIEWS.put(layout.result_views(STREAM)[operator], {"views": {"v": view}})
        table = pa.table({"id": [1]})
        staged = stored(
            layout, results_of(STREAM), operator, f"{operator}/v", table, job=operator, owner=STREAM
        )
        publisher.publish(operator, [staged], {"batch": operator})

    def read_later(*given: Any) -> PublishedBatches:
        redefine(1)
        return read_published(*given)

    redefine(0)
    monkeypatch.setattr(window_schemas, "read_published", read_later)
    assert window_schemas.require_readable(layout, STREAM, "v", "id 0").operator == 0


def test_plan_versions_have_their_views_in_order(layout: Layout) -> None:
    one, two, three = (
        ViewDefinition(name, f"{name}:1", f"SELECT {name}", "TRUE", (("id", name),))
        for name in ("a", "b", "c")
    )
    other = ViewDefinition("a", "a:2", "SELECT 2", "id > 2", None, 2)
    versions = (
        {"a": one, "b": two},
        {"a": other, "b": two, "c": three},
        {"b": two, "c": three, "a": one},
        {"c": three},
        {},
    )
    log = PlanLog(layout, STREAM)
    for number, views in enumerate(versions):
        log.store(number, views)
        assert list(PlanLog(layout, STREAM).load(number).items()) == list(views.items())


def test_one_writer_keeps_the_catalog_as_several_would(layout: Layout, tmp_path: Path) -> None:
    beside = Layout(tmp_path / "beside", tmp_path / "beside" / "_penstock" / "checkpoint")
    beside.open()
    writer = CatalogWriter(layout)
    window = WindowDefinition("w", "w:1", "SELECT 1")
    steps: tuple[dict[str, dict[str, Any]], ...] = (
        {"t": {"rule": selection("id > 1"), "w": window}},
        {"t": {"rule": selection("id > 2")}, "t.w": {"over": WindowDefinition("over", "o:1", "SELECT 2")}},
        {"t": {}, "u": {"rule": selection("id > 2")}},
        {"t": {"rule": selection("id > 1"), "w": window}, "u": {}},
    )
    for views in steps:
        for each, folder in ((writer, layout), (CatalogWriter(beside), beside)):
            numbered_ = {stream: each.number(stream, SCHEMA, own) for stream, own in views.items()}
            each.write(dict.fromkeys(("t", "u"), SCHEMA), numbered_)
            for entry in read_catalog(folder)["views"].values():
                assert entry.get("dropped", "20")[:2] == "20"
        said, expected = (_undated(read_catalog(folder)) for folder in (layout, beside))
        assert said == expected


def _undated(catalog: dict[str, Any]) -> dict[str, Any]:
    """A catalog that only says which of its definitions were dropped."""
    for entry in catalog["views"].values():
        for each in (entry, *entry.get("others", ())):
            if "dropped" in each:
                each["dropped"] = True
    return catalog


def test_a_catalog_that_says_the_same_is_not_written(layout: Layout) -> None:
    writer = CatalogWriter(layout)
    views = writer.number(STREAM, SCHEMA, {"rule": selection("id > 1")})
    writer.write({STREAM: SCHEMA}, {STREAM: views})
    layout.catalog.remove()
    writer.write({STREAM: SCHEMA}, {STREAM: views})
    assert not layout.catalog.exists()
    writer.write({STREAM: SCHEMA}, {STREAM: {}})
    assert "dropped" in read_catalog(layout)["views"]["rule"]
