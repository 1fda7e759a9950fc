"""Ledgers that are damaged, copied while in use, of another version or something else: one error that says so, nothing changed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from slatedb.uniffi import ObjectStore

from penstock.errors import CheckpointError, ConnectionFailedError, DamagedError
from penstock.stores import slate_ledger, sqlite_ledger
from penstock.stores.slate_ledger import SlateLedger, SlateReader
from penstock.stores.slate_place import SlatePlace
from penstock.stores.sqlite_ledger import SqliteLedger, SqliteReader


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed ledger of SQLite with a thousand documents."""
    path = tmp_path / "ledger.db"
    ledger = SqliteLedger(path)
    ledger.commit({("batch", "flights", number): b"document %d" % number * 20 for number in range(1000)})
    ledger.close()
    return path


def _changed(path: Path, change: Callable[[bytearray], object]) -> None:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


def _flip(content: bytearray, of: bytes) -> None:
    content[content.index(of)] ^= 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"something else" * 1000),
        lambda path: _changed(path, lambda content: content.__delitem__(slice(len(content) // 2, None))),
        lambda path: _changed(path, lambda content: content.__setitem__(slice(8192, 8300), bytes(108))),
        lambda path: _changed(path, lambda content: content.__setitem__(slice(0, 16), b"x" * 16)),
    ],
    ids=["empty", "something else", "cut off", "a page zeroed", "no header"],
)
def test_a_damaged_file_is_refused_and_left_alone(damage: Callable[[Path], object], path: Path) -> None:
    damage(path)
    before = path.read_bytes()
    with pytest.raises(DamagedError, match=rf"{path} \(the ledger\) is damaged: .*restore it from a copy"):
        SqliteLedger(path)
    assert path.read_bytes() == before


def test_a_document_that_is_not_what_was_committed_is_refused_as_it_is_read(path: Path) -> None:
    _changed(path, lambda content: _flip(content, b"document 500document 500"))
    for ledger in (SqliteReader(path), SqliteLedger(path)):
        assert ledger.get(("batch", "flights", 499)) is not None
        with pytest.raises(DamagedError, match=r"the content of \('batch', 'flights', 500\) does not match"):
            ledger.get(("batch", "flights", 500))
        with pytest.raises(DamagedError, match="500"):
            list(ledger.scan())
        ledger.close()


def test_a_copy_that_was_made_while_the_ledger_was_in_use_is_refused(path: Path, tmp_path: Path) -> None:
    ledger = SqliteLedger(path)
    ledger.commit({("batch", "zones", number): b"before" * 100 for number in range(100)})
    copy = tmp_path / "copy" / path.name
    copy.parent.mkdir()
    shutil.copy(path, copy)
    # meanwhile the log is written back, and begins anew
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA wal_checkpoint(RESTART)")
    ledger.commit({("batch", "fares", 2): b"after"})
    shutil.copy(f"{path}-wal", f"{copy}-wal")
    ledger.close()
    with pytest.raises(DamagedError, match=r"It may have been copied while a run was using it|malformed"):
        SqliteLedger(copy)


def test_a_log_without_its_ledger_is_refused(path: Path) -> None:
    ledger = SqliteLedger(path)
    ledger.commit({("a",): b""})
    path.rename(path.with_name("moved"))
    with pytest.raises(DamagedError, match=r"is missing, but ledger.db-wal beside it exists"):
        SqliteLedger(path)
    path.with_name("moved").rename(path)
    ledger.close()


def test_another_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE own (a)")
    before = path.read_bytes()
    for opened in (SqliteLedger, SqliteReader):
        with pytest.raises(DamagedError, match="it is another database"):
            opened(path)
    assert path.read_bytes() == before


def test_a_newer_layout_is_refused_by_name_and_its_writer_not_fenced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_ledger, "LAYOUT", 2)
    newer = SqliteLedger(path.with_name("newer.db"))
    monkeypatch.undo()
    for opened in (SqliteLedger, SqliteReader):
        with pytest.raises(CheckpointError, match=r"newer.db \(the ledger\) has layout 2; .* reads layout 1"):
            opened(path.with_name("newer.db"))
    monkeypatch.setattr(sqlite_ledger, "LAYOUT", 2)
    newer.commit({("a",): b"1"})
    newer.close()


def test_a_ledger_that_does_not_exist_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"the ledger does not exist: .*ledger.db"):
        SqliteReader(tmp_path / "ledger.db")
    with pytest.raises(FileNotFoundError, match="the ledger does not exist"):
        SlateReader(_place(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises((NotADirectoryError, ConnectionFailedError, FileExistsError), match="file"):
        SqliteLedger(tmp_path / "file" / "ledger.db")


def _place(folder: Path) -> SlatePlace:
    return SlatePlace(ObjectStore.resolve("file:///"), str(folder).lstrip("/"), str(folder), 20.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The objects of a ledger of SlateDB whose process was killed, as far as the store can tell."""
    folder = tmp_path / "ledger"
    ledger = SlateLedger(_place(folder))
    for number in range(10):
        ledger.commit({("batch", number): b"document" * 100})
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    ledger.close()
    return copy


def _objects(folder: Path, kind: str) -> list[Path]:
    return sorted((folder / kind).iterdir())


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: _objects(folder, "wal")[-3].unlink(),
        lambda folder: _changed(
            _objects(folder, "wal")[-3], lambda content: content.__delitem__(slice(50, None))
        ),
        lambda folder: _changed(_objects(folder, "wal")[-3], lambda content: _flip(content, b"document")),
        lambda folder: _objects(folder, "manifest")[-1].write_bytes(b""),
        lambda folder: _changed(
            _objects(folder, "manifest")[-1], lambda content: content.__delitem__(slice(50, None))
        ),
    ],
    ids=[
        "a commit missing",
        "a commit cut off",
        "a commit changed",
        "the manifest empty",
        "the manifest cut off",
    ],
)
def test_damaged_objects_are_refused(damage: Callable[[Path], object], folder: Path) -> None:
    damage(folder)
    with pytest.raises(DamagedError, match=rf"{folder} \(the ledger\) is damaged: .*restore it from a copy"):
        SlateLedger(_place(folder))


def test_a_newer_layout_of_objects_is_refused_by_name_and_its_writer_not_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slate_ledger, "LAYOUT", 2)
    newer = SlateLedger(_place(tmp_path / "ledger"))
    monkeypatch.undo()
    for opened in (SlateLedger, SlateReader):
        with pytest.raises(CheckpointError, match=r"ledger \(the ledger\) has layout 2; .* reads layout 1"):
            opened(_place(tmp_path / "ledger"))
    newer.commit({("a",): b"1"})
    newer.close()
