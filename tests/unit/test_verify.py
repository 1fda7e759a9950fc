"""`penstock verify`: exit codes, and what is said of a folder without Spark; views of all kinds are in tests/spark/test_every_file_damaged.py."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.errors import DamagedError, InputError
from penstock.monitor.verification import Findings, verify
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.spark.log.entries import Entry
from penstock.spark.log.listed_runs import ListedRun
from penstock.spark.log.runs import write_run_file
from penstock.spark.log.stream_log import StreamLog
from penstock.spark.publication.manifests import published_paths
from penstock.spark.publication.publish import Publisher
from penstock.spark.results.cataloguing import CatalogWriter
from penstock.spark.storage.documents import replace_json
from penstock.spark.storage.formats import LOG_RUN, OPERATOR_VIEWS, RESULT_VIEWS
from penstock.spark.storage.layout import Layout, tuples_kind
from penstock.spark.storage.spark_checksums import check_metadata, missing_batches
from publishing import stored

pytestmark = pytest.mark.usefixtures("own_commits")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Two batches of a stream, and a log with a run of tuples."""
    found = Layout.of(tmp_path / "out", None)
    found.open().close()
    CatalogWriter(found).write({"s": StructType()}, {})
    publisher = Publisher(found, "s")
    for batch in range(2):
        rows = pa.table({"n": list(range(1_000))})
        publisher.publish(batch, [stored(found, "s", batch, "matches", rows)], {"batch": batch})
    log = StreamLog(found.log("s"))
    path = log.path(tuples_kind(1), "0.arrow")
    path.parent.mkdir(parents=True)
    tuples = pa.table({"k": [1, 2, 3], "ts": pa.array([1, 2, 3], pa.timestamp("us"))})
    write_run_file(path, tuples, RunPlan(("k",), "ts", HashRouter(("k",), 2)))
    log.append(Entry(0, 0, 0, 0, files={tuples_kind(1): (path.name,)}))
    return found


def _verify(layout: Layout, *options: str) -> Result:
    return CliRunner().invoke(app, ["verify", str(layout.output), *options])


def test_a_whole_folder(layout: Layout) -> None:
    found = _verify(layout)
    assert (found.exit_code, found.stdout.rpartition(": ")[2]) == (0, "no damage found\n")
    told = json.loads(_verify(layout, "--format", "json").stdout)
    assert told["faults"] == []
    assert told["files"] > 5
    assert told["checkpoint"] == str(layout.checkpoint)


def test_each_damaged_file_is_a_line(layout: Layout) -> None:
    _, matches = published_paths(layout, "s")
    run = layout.log("s").files / tuples_kind(1) / "0.arrow"
    for path in (matches, run):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    found = _verify(layout)
    assert found.exit_code == 1
    assert f"{matches} is damaged: its content differs from what Penstock published\n" in found.stdout
    assert f"{run} (tuples of a log) is damaged: its content does not match its checksum\n" in found.stdout
    assert "2 files are damaged. Restore them from a copy" in found.stdout
    told = json.loads(_verify(layout, "--format", "json").stdout)
    assert {each["path"] for each in told["faults"]} == {str(matches), str(run)}


def test_a_merged_run_that_is_missing_is_told(layout: Layout) -> None:
    layout.open()
    log = layout.log("s")
    LOG_RUN.put(log.runs(1)[63], ListedRun(1, 0, 63, "level-0-0000000000.arrow").document())
    layout.ledger.close()
    found = _verify(layout)
    assert found.exit_code == 1
    missing = log.files / tuples_kind(1) / "level-0-0000000000.arrow"
    assert f"{missing} (tuples of a log) is missing" in found.stdout


def test_names_with_characters_of_patterns_are_looked_at_too(layout: Layout) -> None:
    stream = "s.a[b]"
    publisher = Publisher(layout, stream)
    publisher.publish(0, [stored(layout, stream, 0, "matches", pa.table({"n": [1]}))], {"batch": 0})
    RESULT_VIEWS.put(layout.result_views(stream)[0], {"views": {}})
    OPERATOR_VIEWS.put(layout.operators(stream)[0], {"views": []})
    assert _verify(layout).exit_code == 0
    (path,) = published_paths(layout, stream)
    path.write_bytes(path.read_bytes()[:-1])
    assert str(path) in _verify(layout).stdout


def test_the_checkpoint_of_a_run_that_goes_on_is_left_alone(layout: Layout) -> None:
    (layout.log("s").files / tuples_kind(1) / "0.arrow").unlink()
    owner = layout.ledger.open()
    try:
        found = _verify(layout)
    finally:
        owner.close()
    assert found.exit_code == 0
    assert "it was not checked" in found.stdout
    assert _verify(layout).exit_code == 1


def test_there_must_be_a_folder(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["verify", str(tmp_path / "none")])
    assert isinstance(found.exception, InputError)
    assert found.exception.exit_code == 2


def test_a_file_is_told_once_however_many_there_are(tmp_path: Path) -> None:
    found = Findings(tmp_path, tmp_path)
    began = time.process_time()
    for fault in ("is missing", "is damaged"):
        for number in range(20_000):
            found.note(str(number), fault)
    assert time.process_time() - began < 5, "the time grows with the number of faults, not with its square"
    assert [(each.path, each.fault) for each in found.faults] == [
        (str(n), "is missing") for n in range(20_000)
    ]


def test_a_copied_folder_is_judged_by_its_own_checkpoint(layout: Layout) -> None:
    replace_json(layout.status, {"checkpoint": str(layout.checkpoint)})
    copied = layout.output.with_name("copied")
    shutil.copytree(layout.output, copied)
    (copied / "_penstock/checkpoint/identity.json").write_bytes(b"")
    assert [str(copied / "_penstock/checkpoint/identity.json")] == [
        each.path for each in verify(copied).faults
    ]
    assert not verify(layout.output).faults


def test_a_published_file_that_is_missing_is_told(layout: Layout) -> None:
    path = next((layout.output / "matches" / "s").glob("*.parquet"))
    path.unlink()
    found = _verify(layout)
    assert found.exit_code == 1, found.stdout
    assert f"{path} is missing: the manifests in " in found.stdout


def test_a_lost_batch_of_sparks_checkpoint_is_told(layout: Layout) -> None:
    folder = layout.checkpoint / "s" / "spark"
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True)
        for batch in range(2):
            (folder / log / str(batch)).write_text("v1")
    # planned, not committed
    (folder / "offsets" / "2").write_text("v1")
    assert not any(str(folder / "offsets") in each.path for each in verify(layout.output).faults)
    (folder / "offsets" / "0").unlink()
    assert f"{folder / 'offsets' / '0'}" in {each.path for each in verify(layout.output).faults}


def test_what_spark_has_removed_is_not_missed(layout: Layout) -> None:
    folder = layout.checkpoint / "s" / "spark"
    for log, first in (("offsets", 55), ("commits", 50)):
        (folder / log).mkdir(parents=True)
        for batch in range(first, 155):
            (folder / log / str(batch)).write_text("v1")
    assert list(missing_batches(folder)) == []


@pytest.mark.parametrize("content", [b"", b'{"id":', b'{"other":1}'])
def test_metadata_of_spark_that_are_damaged_are_told_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "metadata"
    check_metadata(tmp_path)
    path.write_bytes(b'{"id":"a"}')
    check_metadata(tmp_path)
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=re.escape(str(path))):
        check_metadata(tmp_path)
