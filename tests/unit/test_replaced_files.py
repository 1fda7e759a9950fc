"""Published files that are replaced, or lost: names live on until their time is over, and a start deletes nothing for what is missing."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import DamagedError
from penstock.spark.publication.manifests import MERGED, published_paths
from penstock.spark.publication.publish import Publisher
from penstock.spark.results.window_rows import MadeResults
from penstock.spark.results.window_staging import write_staged
from penstock.spark.storage.files import second_name
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.ledger_documents import StoredDocument, StoredDocuments
from penstock.spark.storage.replaced import ReplacedFiles

STREAM, BATCHES = "s", 8


def _publisher(layout: Layout) -> Publisher:
    return Publisher(layout, STREAM, grace_seconds=600)


def _publish(publisher: Publisher, layout: Layout, batch: int) -> None:
    staged = write_staged("matches", layout.staging(STREAM, batch) / "0.parquet", pa.table({"n": [batch]}))
    publisher.publish(batch, [MadeResults(0, 0, [staged])], {"batch": batch})


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Batches 0 to 5 merged, 6 and 7 not."""
    found = Layout(tmp_path / "out", tmp_path / "checkpoint")
    found.open()
    publisher = _publisher(found)
    for batch in range(BATCHES):
        _publish(publisher, found, batch)
        if batch in (3, 6):
            publisher.compact(batch - 1)
    return found


def _shown(layout: Layout) -> list[int]:
    """What somebody reads who lists the folder."""
    files = layout.matches(STREAM).glob("*.parquet")
    return sorted(row for path in files for row in pq.read_table(path)["n"].to_pylist())


def _later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    moment = time.time() + seconds
    monkeypatch.setattr(time, "time", lambda: moment)


def test_names_live_on_until_their_time_is_over(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = layout.kept(layout.matches(STREAM))
    held = list(published_paths(layout, STREAM))
    publisher = _publisher(layout)
    assert publisher.compact(BATCHES - 1) == (6, 7)
    assert [pq.read_table(path)["n"].to_pylist() for path in held][-2:] == [[6], [7]]
    assert _shown(layout) == list(range(BATCHES)), "each row once"
    before = set(kept.iterdir())
    _publisher(layout)
    assert set(kept.iterdir()) == before, "a start keeps them too"
    _later(monkeypatch, 601)
    publisher.compact(BATCHES - 1)
    assert set(kept.iterdir()) == set(published_paths(layout, STREAM))
    assert _shown(layout) == list(range(BATCHES))


def test_the_next_process_removes_what_the_last_one_left(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    _later(monkeypatch, 601)
    _publisher(layout)
    kept = layout.kept(layout.matches(STREAM))
    assert set(kept.iterdir()) == set(published_paths(layout, STREAM))


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_merged_file_outlives_the_leftover_of_an_attempt_that_had_its_name(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, is_restarted: bool
) -> None:
    publisher = _publisher(layout)
    with monkeypatch.context() as patched:
        patched.setattr(StoredDocuments, "change", _full)
        with pytest.raises(OSError, match="No space left"):
            publisher.compact(BATCHES - 1)
    if is_restarted:
        publisher = _publisher(layout)
    # the batch after them has no rows, so that the next attempt merges the same files
    publisher.publish(BATCHES, [], {"batch": BATCHES})
    assert publisher.compact(BATCHES) == (6, 8)
    _later(monkeypatch, 601)
    publisher.compact(BATCHES)
    assert set(layout.kept(layout.matches(STREAM)).iterdir()) == set(published_paths(layout, STREAM))
    assert _shown(layout) == list(range(BATCHES))


def test_a_name_is_given_in_one_step_where_a_file_has_to_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"new")

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def stop(_: Path, copy: Path) -> None:
        copy.write_bytes(b"n")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", refuse)
    for before in (None, b"old"):
        with monkeypatch.context() as patched:
            patched.setattr(shutil, "copyfile", stop)
            with pytest.raises(OSError, match="No space left"):
                second_name(source, target)
        assert (target.read_bytes() if target.exists() else None) == before
        assert {each.name for each in tmp_path.iterdir()} <= {"source", "target"}
        second_name(source, target)
        assert target.read_bytes() == b"new"
        target.write_bytes(b"old")


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


LOSSES: dict[str, Callable[[Layout], StoredDocument]] = {
    "the manifest of the merged batches": lambda layout: layout.manifests(STREAM)[MERGED],
    "a manifest": lambda layout: layout.manifests(STREAM)[6],
}


@pytest.mark.parametrize("lost", LOSSES)
def test_a_manifest_that_is_gone_is_told_and_nothing_is_deleted(
    layout: Layout, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = LOSSES[lost](layout)
    document.remove()
    _later(monkeypatch, 601)
    before = {each for each in layout.output.rglob("*") if each.is_file()}
    for read in (lambda: list(published_paths(layout, STREAM)), lambda: _publisher(layout)):
        with pytest.raises(DamagedError, match="is missing"):
            read()
    assert {each for each in layout.output.rglob("*") if each.is_file()} == before


@pytest.mark.parametrize("size", [0, 100])
def test_a_file_of_another_size_is_told(layout: Layout, size: int) -> None:
    path = next(published_paths(layout, STREAM))
    os.truncate(path, size)
    for read in (lambda: list(published_paths(layout, STREAM)), lambda: _publisher(layout)):
        with pytest.raises(DamagedError, match=rf"^{path} is damaged: it has {size} bytes, and "):
            read()


def test_a_file_that_lost_one_of_its_names_gets_it_back(layout: Layout) -> None:
    first, second = list(published_paths(layout, STREAM))[:2]
    first.unlink()
    (layout.matches(STREAM) / second.name).unlink()
    rows = [row for path in published_paths(layout, STREAM) for row in pq.read_table(path)["n"].to_pylist()]
    assert rows == list(range(BATCHES))
    _publisher(layout)
    assert first.exists()
    assert _shown(layout) == list(range(BATCHES))


def test_a_folder_without_any_manifest_keeps_its_files(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    for manifest in layout.manifests(STREAM):
        manifest.remove()
    before = set(layout.output.rglob("*.parquet"))
    _later(monkeypatch, 601)
    _publisher(layout)
    assert set(layout.output.rglob("*.parquet")) == before


def test_a_file_that_cannot_be_removed_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, other = tmp_path / "stuck", tmp_path / "other"
    # a folder cannot be unlinked
    stuck.mkdir()
    other.touch()
    replaced = ReplacedFiles(0)
    replaced.add([stuck, other], 0)
    assert not other.exists()
    for later in (100, 200):
        _later(monkeypatch, later)
        replaced.remove()
    assert [record.message.startswith(f"{stuck} was replaced") for record in caplog.records] == [True]
    stuck.rmdir()
    stuck.touch()
    _later(monkeypatch, 300)
    replaced.remove()
    assert not stuck.exists()
