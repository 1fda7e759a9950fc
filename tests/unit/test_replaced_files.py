"""Published files that are replaced, or lost: they remain until their time is over, and a start deletes nothing for what is missing."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import DamagedError
from penstock.spark.publication import compaction
from penstock.spark.publication.manifests import MERGED, published_paths
from penstock.spark.publication.publish import Publisher
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.ledger_documents import StoredDocument, commit
from penstock.spark.storage.replaced import ReplacedFiles
from publishing import stored

STREAM, BATCHES = "s", 8


def _publisher(layout: Layout) -> Publisher:
    return Publisher(layout, STREAM, grace_seconds=600)


def _publish(publisher: Publisher, layout: Layout, batch: int) -> None:
    staged = stored(layout, STREAM, batch, "matches", pa.table({"n": [batch]}))
    publisher.publish(batch, [staged], {"batch": batch})


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


def _files(layout: Layout) -> set[Path]:
    return set(layout.matches(STREAM).iterdir())


def _later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    moment = time.time() + seconds
    monkeypatch.setattr(time, "time", lambda: moment)


def test_replaced_files_remain_until_their_time_is_over(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = list(published_paths(layout, STREAM))
    publisher = _publisher(layout)
    assert publisher.compact(BATCHES - 1) == (6, 7)
    assert [pq.read_table(path)["n"].to_pylist() for path in held][-2:] == [[6], [7]]
    before = _files(layout)
    _publisher(layout)
    assert _files(layout) == before, "a start keeps them too"
    _later(monkeypatch, 601)
    publisher.compact(BATCHES - 1)
    assert _files(layout) == set(published_paths(layout, STREAM))
    assert not layout.replaced(STREAM).exists(), "nothing is left to be deleted"


def test_the_next_process_removes_what_the_last_one_left(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    _later(monkeypatch, 601)
    _publisher(layout)
    assert _files(layout) == set(published_paths(layout, STREAM))


def test_a_replaced_file_that_something_needs_remains(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = min(_files(layout) - set(published_paths(layout, STREAM)))
    held = {needed.relative_to(layout.output).as_posix()}
    _later(monkeypatch, 601)
    publisher = Publisher(layout, STREAM, grace_seconds=600, held=lambda: held)
    assert _files(layout) == {*published_paths(layout, STREAM), needed}
    held.clear()
    _later(monkeypatch, 61)
    publisher.compact(BATCHES - 1)
    assert needed not in _files(layout)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_next_start_deletes_what_could_not_be_listed(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, is_restarted: bool
) -> None:
    publisher = _publisher(layout)
    before = _files(layout)
    with monkeypatch.context() as patched:
        patched.setattr(compaction, "commit", _full)
        with pytest.raises(OSError, match="No space left"):
            publisher.compact(BATCHES - 1)
    (left,) = _files(layout) - before
    if is_restarted:
        publisher = _publisher(layout)
    assert left.exists() != is_restarted, "it may be listed for all that the process knows"
    # the batch after them has no rows, so that the next attempt merges the same files
    publisher.publish(BATCHES, [], {"batch": BATCHES})
    assert publisher.compact(BATCHES) == (6, 8)
    _later(monkeypatch, 601)
    publisher.compact(BATCHES)
    _publisher(layout)
    assert _files(layout) == set(published_paths(layout, STREAM))


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


def test_a_folder_without_any_manifest_keeps_what_was_published(layout: Layout) -> None:
    before = set(published_paths(layout, STREAM))
    for manifest in layout.manifests(STREAM):
        manifest.remove()
    _publisher(layout)
    assert before <= _files(layout)


@pytest.mark.parametrize("batch", [BATCHES, BATCHES + 1])
def test_a_start_deletes_files_of_batches_up_to_the_next_one(layout: Layout, batch: int) -> None:
    left = stored(layout, STREAM, batch, "matches", pa.table({"n": [batch]}))
    quarantined = stored(layout, STREAM, batch, "quarantine", pa.table({"n": [batch]}))
    before = _files(layout)
    _publisher(layout)
    gone = {each.files[0].name for each in (left,)} if batch == BATCHES else set()
    assert {path.name for path in before - _files(layout)} == gone
    assert (layout.quarantine(STREAM) / quarantined.files[0].name).exists() == (batch > BATCHES)


def test_a_file_that_cannot_be_removed_holds_nothing_up(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, other = layout.output / "stuck", layout.output / "other"
    # a folder cannot be unlinked
    stuck.mkdir()
    other.touch()
    replaced = ReplacedFiles(layout.replaced("query"), layout.files, 0)
    puts = replaced.document(1, ["stuck", "other"])
    commit(puts)
    replaced.committed(puts)
    for later in (1, 100, 100):
        _later(monkeypatch, later)
        replaced.remove()
        assert not other.exists()
    assert [record.message.startswith(f"{stuck} was replaced") for record in caplog.records] == [True]
    stuck.rmdir()
    stuck.touch()
    _later(monkeypatch, 100)
    replaced.remove()
    assert not stuck.exists()
    assert not layout.replaced("query").exists()
