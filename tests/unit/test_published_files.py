"""`penstock files`: what is published, as paths and as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import CheckpointError, DamagedError, InputError, UnknownNameError
from penstock.monitor.published import published_files
from penstock.spark.publication.kinds import results_of, view_kind
from penstock.spark.publication.publish import Publisher
from penstock.spark.results.cataloguing import CatalogWriter
from penstock.spark.storage.bindings import ViewDefinition, WindowDefinition
from penstock.spark.storage.documents import put_json_if_absent
from penstock.spark.storage.layout import Layout
from penstock.stores import address
from penstock.stores.durable import make_folder
from publishing import stored

STREAM, VIEWS = "s", {"large": ViewDefinition("large", "large:1", "", "TRUE", None)}


def _publish(publisher: Publisher, layout: Layout, query: str, batch: int, *kinds: str) -> None:
    owner = None if query == STREAM else STREAM
    staged = [stored(layout, query, batch, kind, pa.table({"batch": [batch]}), owner=owner) for kind in kinds]
    publisher.publish(batch, staged, {"batch": batch})


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Five batches of a stream, three of them merged, quarantined records in each, and two of a window view."""
    found = Layout.of(tmp_path / "out", None)
    found.open()
    windows = {"w": WindowDefinition("w", "w:1", "SELECT 1")}
    CatalogWriter(found).write({STREAM: StructType()}, {STREAM: {**VIEWS, **windows}})
    publisher = Publisher(found, STREAM)
    for batch in range(5):
        _publish(publisher, found, STREAM, batch, "matches", "quarantine")
    publisher.compact(2)
    windows_publisher = Publisher(found, results_of(STREAM), (), owner=STREAM)
    for batch in range(2):
        _publish(windows_publisher, found, results_of(STREAM), batch, view_kind(0, "w"))
    return found


def test_each_published_row_is_in_one_listed_file(layout: Layout) -> None:
    found = published_files(layout.output)
    rows = {
        (kind, name): [
            row
            for file in found
            if (file.kind, file.name) == (kind, name)
            for row in pq.read_table(file.path)["batch"].to_pylist()
        ]
        for kind, name in {(file.kind, file.name) for file in found}
    }
    assert rows == {
        ("matches", STREAM): [0, 1, 2, 3, 4],
        ("quarantine", STREAM): [0, 1, 2, 3, 4],
        ("results", "w"): [0, 1],
    }
    assert [(file.first, file.last, file.rows) for file in found if file.kind == "matches"] == [
        (0, 2, 3),
        (3, 3, 1),
        (4, 4, 1),
    ]
    assert all(file.bytes == file.path.stat().st_size for file in found)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [(STREAM, {"matches", "quarantine"}), ("large", {"matches"}), ("w", {"results"})],
)
def test_the_files_of_a_stream_or_view(layout: Layout, name: str, kinds: set[str]) -> None:
    found = published_files(layout.output, name)
    assert {file.kind for file in found} == kinds
    listed = CliRunner().invoke(app, ["files", str(layout.output), name]).stdout.splitlines()
    assert listed == [str(file.path) for file in found]
    told = CliRunner().invoke(app, ["files", str(layout.output), name, "--format", "json"]).stdout
    assert [json.loads(line)["path"] for line in told.splitlines()] == listed


def test_a_name_that_does_not_exist_a_folder_and_a_file_that_do_not(layout: Layout, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"view x does not exist\. Existing names: large, s, w"):
        published_files(layout.output, "x")
    with pytest.raises(InputError, match="does not exist"):
        published_files(tmp_path / "none")
    published_files(layout.output, "w")[0].path.unlink()
    with pytest.raises(DamagedError, match="is missing: the manifests"):
        published_files(layout.output)


def test_a_folder_without_its_ledger_is_damaged(layout: Layout) -> None:
    layout.ledger.close()
    layout.ledger.path.unlink()
    for refuse in (layout.check, lambda: published_files(layout.output)):
        with pytest.raises(DamagedError, match=r"ledger\.db \(the ledger of the results folder\) is missing"):
            refuse()


def test_readers_refuse_a_folder_of_an_older_layout_by_its_number(tmp_path: Path) -> None:
    older = Layout.of(tmp_path / "out", None)
    make_folder(older.output / "_penstock")
    put_json_if_absent(older.output / "_penstock" / "identity.json", {"id": "x", "layout": 6})
    with pytest.raises(CheckpointError, match="written by an older version of Penstock: it has layout 6"):
        published_files(older.output)


def test_who_reads_a_folder_that_machines_share_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "is_shared", lambda _: True)
    assert Layout.of(tmp_path, None).catalog.get() is None
    assert not list(tmp_path.iterdir())


def test_a_folder_that_machines_share_has_a_ledger_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "is_shared", lambda _: True)
    shared = Layout.of(tmp_path / "out", None)
    shared.open()
    CatalogWriter(shared).write({STREAM: StructType()}, {STREAM: VIEWS})
    publisher = Publisher(shared, STREAM)
    for batch in range(3):
        _publish(publisher, shared, STREAM, batch, "matches")
    publisher.compact(1)
    assert shared.ledger.path.is_dir()
    for is_closed in (False, True):
        if is_closed:
            shared.ledger.close()
        assert [(file.first, file.last) for file in published_files(shared.output)] == [(0, 1), (2, 2)]
    shared.ledger.close()
