"""Spark's own checkpoint is read alike from a local folder and from an object store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from obstore.store import MemoryStore, ObjectStore

from penstock.errors import CheckpointError, DamagedError
from penstock.spark.sessions.file_systems import hadoop_path
from penstock.spark.sources.probes import FolderProbe
from penstock.spark.storage import store_paths
from penstock.spark.storage.offsets import (
    PlannedBatches,
    files_of_batch,
    offsets_digest,
    planned_after,
    planned_at,
    times_of_batch,
)
from penstock.spark.storage.past import Past, offsets_of_batch, read_offset
from penstock.spark.storage.spark_checksums import check_metadata, missing_batches
from penstock.spark.storage.spark_files import (
    drop_unbegun,
    last_lines,
    numbered,
    remove_file,
    replace_file,
    sources_of,
)
from penstock.spark.storage.store_paths import ObjectPath, StorePath, modified_at, store_path
from penstock.stores.address import StoreAddress
from penstock.stores.file_cache import FileCache
from penstock.stores.object_files import ObjectFiles

HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1700000000123}\n'
#: a checkpoint of three batches, the last one planned and not committed; Spark and Hadoop have left other things in it
CHECKPOINT = {
    "metadata": '{"id":"00000000-0000-0000-0000-000000000000"}',
    "offsets/0": HEAD + '{"logOffset":0}',
    "offsets/1": HEAD + '{"logOffset":1}',
    "offsets/2": HEAD + '{"logOffset":3}',
    "offsets/.3.8e1b.TID7.tmp": "v1\n",
    "commits/0": "v1\n{}",
    "commits/1": "v1\n{}",
    "sources/0/1.compact": "v1\n"
    + "\n".join(
        json.dumps(
            {"path": f"s3a://b/{number}%20x", "timestamp": 10 + number, "batchId": number},
            separators=(",", ":"),
        )
        for number in (0, 1)
    ),
    "sources/0/2": 'v1\n{"path":"s3a://b/2","timestamp":12,"batchId":2}',
    "sources/0/3": 'v1\n{"path":"s3a://b/3","timestamp":13,"batchId":3}',
}


@pytest.fixture(params=["local", "objects"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StorePath:
    """A checkpoint's folder without files."""
    if request.param == "local":
        return tmp_path / "spark"
    store: ObjectStore = MemoryStore()
    # a store may list what marks a folder
    store.put("out/spark/offsets", b"")
    files = ObjectFiles(store, "s3://b", FileCache(tmp_path))
    monkeypatch.setitem(store_paths._stores, ("s3://b", ()), files)
    return ObjectPath(StoreAddress.of("s3://b"), "out/spark")


def _write(path: StorePath, content: str) -> None:
    if isinstance(path, Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    elif path.name.startswith("."):
        path.files.store.put(path.place, content.encode())  # type: ignore[attr-defined]
    else:
        path.write_bytes(content.encode())


@pytest.fixture
def whole(checkpoint: StorePath) -> StorePath:
    """A checkpoint of three batches."""
    for name, content in CHECKPOINT.items():
        _write(checkpoint / name, content)
    return checkpoint


def test_what_a_batch_reads_is_known(whole: StorePath) -> None:
    assert files_of_batch(whole, 1) == ["s3a://b/1 x"]
    assert times_of_batch(whole, 2) == {"s3a://b/2": 12, "s3a://b/3": 13}
    assert times_of_batch(whole, 3) is None
    assert planned_at(whole, 1) == 1_700_000_000_123
    assert read_offset(whole, 1) == '{"logOffset":1}'
    assert read_offset(whole, 7) is None
    planned = planned_after(whole, 1)
    assert planned is not None
    assert (planned["batch"], planned["files"]) == (2, 2)
    assert planned["planned"] > 1e9
    assert planned_after(whole, 2) is None
    PlannedBatches(whole).sync(2)


def test_two_batches_with_the_same_files_have_the_same_digest(whole: StorePath) -> None:
    first = offsets_digest(whole, 1)
    assert first != offsets_digest(whole, 2)
    assert offsets_digest(whole, 3) is None
    remove_file(whole / "sources/0/2")
    with pytest.raises(CheckpointError, match=r"sources/0/2 is missing, which lists the files of a batch"):
        offsets_digest(whole, 2)


def test_numbers_and_lines_are_those_of_finished_files(whole: StorePath) -> None:
    assert numbered(whole / "offsets", "") == [0, 1, 2]
    assert numbered(whole / "state", "") == []
    assert [path.name for path in sources_of(whole / "sources")] == ["0"]
    assert next(last_lines(whole / "sources/0/3")).endswith(b'"batchId":3}')
    assert sorted(path.name for path in (whole / "sources/0").glob("[0-9]*.compact")) == ["1.compact"]
    assert (whole / "offsets").is_dir()
    assert not (whole / "offset").is_dir()
    assert not (whole / "offset").exists()
    assert (whole / "offsets/1").exists()


def test_who_looks_into_a_folder_lists_that_level_alone(
    whole: StorePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    if isinstance(whole, ObjectPath):
        children = ObjectFiles.children

        def listed(self: ObjectFiles, folder: str = "") -> object:
            asked.append(folder)
            return children(self, folder)

        monkeypatch.setattr(ObjectFiles, "children", listed)
        monkeypatch.setattr(ObjectFiles, "list", None)
    assert sorted(path.name for path in whole.iterdir()) == ["commits", "metadata", "offsets", "sources"]
    found = [str(path) for path in whole.glob("*/[01]")]
    names = ("commits/0", "commits/1", "offsets/0", "offsets/1", "sources/0")
    assert sorted(found) == [str(whole / name) for name in names]
    assert [str(path) for path in whole.glob("sources/0/*.compact")] == [str(whole / "sources/0/1.compact")]
    assert modified_at(whole / "offsets/1") > 1e9
    with pytest.raises(FileNotFoundError):
        modified_at(whole / "offsets/9")
    if asked:
        folders = ["", "", "/commits", "/offsets", "/sources", "/sources/0"]
        assert asked == [f"out/spark{each}" for each in folders]


def test_what_a_query_has_read_can_be_read_again(whole: StorePath) -> None:
    past = Past(whole, 3, '{"logOffset":2}', lambda batch: batch > 0)
    assert list(past.files()) == [["s3a://b/1 x", "s3a://b/2"]]


def test_offsets_of_topics_are_read_and_replaced(checkpoint: StorePath) -> None:
    _write(checkpoint / "sources/0/0", '0v1\n{"t":{"0":5}}')
    for batch, end in enumerate((9, 20)):
        _write(checkpoint / "offsets" / str(batch), HEAD + json.dumps({"t": {"0": end}}))
    assert offsets_of_batch(checkpoint, 0) == ({"t": {"0": 5}}, {"t": {"0": 9}})
    replace_file(checkpoint / "offsets" / "1", (HEAD + '{"t":{"0":30}}').encode())
    assert offsets_of_batch(checkpoint, 1) == ({"t": {"0": 9}}, {"t": {"0": 30}})


def test_the_backlog_of_a_folder_is_what_is_in_no_batch(checkpoint: StorePath, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / name).touch()
    probe = FolderProbe(folder)
    assert probe.backlog(checkpoint) == 3
    _write(checkpoint / "sources/0/0", f'v1\n{{"path":"file://{folder}/a","timestamp":1,"batchId":0}}')
    assert probe.backlog(checkpoint) == 2


def test_damage_is_found(whole: StorePath) -> None:
    check_metadata(whole)
    assert list(missing_batches(whole)) == []
    remove_file(whole / "commits/0")
    assert [str(path) for path in missing_batches(whole)] == [str(whole / "commits/0")]
    replace_file(whole / "metadata", b"{}")
    with pytest.raises(DamagedError, match=r"metadata .* is damaged: it does not name the query"):
        check_metadata(whole)
    remove_file(whole / "metadata")
    with pytest.raises(DamagedError, match=r"metadata \(of Spark's checkpoint\) is missing"):
        check_metadata(whole)


def test_a_query_that_has_planned_nothing_begins_anew(checkpoint: StorePath) -> None:
    check_metadata(checkpoint)
    for name in ("commits/0", "state/0/0/1.delta", "sources/0/0"):
        _write(checkpoint / name, "v1")
    drop_unbegun(checkpoint)
    assert [(checkpoint / name).exists() for name in ("commits/0", "state/0/0/1.delta", "sources/0/0")] == [
        False,
        False,
        True,
    ]
    _write(checkpoint / "offsets/0", HEAD)
    _write(checkpoint / "commits/0", "v1")
    drop_unbegun(checkpoint)
    assert (checkpoint / "commits/0").exists()


def test_spark_and_we_find_the_same_place(tmp_path: Path) -> None:
    assert store_path(str(tmp_path)) == tmp_path.resolve()
    found = store_path("s3://bucket/out") / "flights" / "spark"
    assert str(found) == "s3://bucket/out/flights/spark"
    assert hadoop_path(str(found)) == "s3a://bucket/out/flights/spark"
