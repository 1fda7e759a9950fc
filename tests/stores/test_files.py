"""What every store of files does: one suite for all implementations."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from penstock.stores.files import Files
from store_cases import FILES, memory_files


@pytest.fixture(params=FILES, ids=lambda case: case.__name__)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """An empty store of each kind."""
    return request.param(request, tmp_path)


@pytest.mark.parametrize("name", ["a", "a/b/c.parquet", "odd %2F#?*[ ]{}~'/ü €/x=1&y", "n" * 200])
def test_what_was_put_is_there(files: Files, name: str) -> None:
    files.put(name, b"content")
    assert files.get(name) == b"content"
    with files.open(name) as path:
        assert path.read_bytes() == b"content"
    assert [(file.name, file.size) for file in files.list()] == [(name, 7)]
    files.delete([name])
    assert list(files.list()) == []


def test_of_new_files_of_one_name_the_first_is_stored(files: Files) -> None:
    assert [files.put_new("a", content) for content in (b"first", b"second")] == [True, False]
    assert files.get("a") == b"first"


def test_a_view_of_memory_is_a_content(files: Files) -> None:
    files.put("a", memoryview(b"content"))
    assert files.get("a") == b"content"
    found = files.stat("a")
    assert [found] == list(files.list())
    assert (found.name, found.size) == ("a", 7)
    with pytest.raises(FileNotFoundError):
        files.stat("b")


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/./b", ".hidden", "a/.b", "a\0b", "a\\b"])
def test_a_name_that_is_no_relative_path_is_refused(files: Files, name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a file"):
        files.put(name, b"")


def test_a_local_file_is_taken_away(files: Files, tmp_path: Path) -> None:
    (tmp_path / "own").write_bytes(b"own")
    staged = files.staging("a/staged")
    staged.write_bytes(b"staged")
    files.put_all(
        {"a/staged": staged, "b/own": tmp_path / "own", "b/view": memoryview(b"view"), "b/none": b""}
    )
    assert not staged.exists()
    assert not (tmp_path / "own").exists()
    assert {file.name: files.get(file.name) for file in files.list()} == {
        "a/staged": b"staged",
        "b/own": b"own",
        "b/none": b"",
        "b/view": b"view",
    }
    assert [file.name for file in files.list("b")] == ["b/none", "b/own", "b/view"]


def test_a_name_that_is_put_again_has_the_new_content(files: Files) -> None:
    files.put("a", b"before")
    files.put("a", b"behind")
    assert files.get("a") == b"behind"


def test_what_is_missing_is_said_so_and_may_be_deleted(files: Files) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        files.get("gone")
    with pytest.raises(FileNotFoundError, match="gone"), files.open("gone"):
        pass
    files.delete(["gone", "a/gone"])
    assert list(files.list("no")) == []


def test_what_was_opened_outlives_its_deletion(files: Files) -> None:
    files.put("a", b"content")
    with files.open("a") as path:
        opened = path.open("rb")
    files.delete(["a"])
    with opened:
        assert opened.read() == b"content"


def test_a_folder_and_one_with_a_longer_name_are_not_the_same(files: Files) -> None:
    files.put_all({"a/1": b"", "ab/2": b""})
    assert [file.name for file in files.list("a")] == ["a/1"]


def test_one_level_is_listed_without_those_below(files: Files) -> None:
    files.put_all(dict.fromkeys(("a/b/1", "a/b/c/2", "a/b c/3", "a/4", "a/0", "ab/5", "6"), b"x"))
    files.staging("a/7").write_bytes(b"half")
    for folder, folders, own in (
        ("", ["a", "ab"], ["6"]),
        ("a", ["a/b", "a/b c"], ["a/0", "a/4"]),
        ("a/b", ["a/b/c"], ["a/b/1"]),
        ("a/b/1", [], []),
        ("no", [], []),
    ):
        found = files.children(folder)
        assert (found[0], [each.name for each in found[1]]) == (folders, own)


def test_a_sweep_deletes_what_a_killed_put_has_left(files: Files) -> None:
    files.put("a/b", b"content")
    left = files.staging("a/c")
    left.write_bytes(b"half")
    assert [file.name for file in files.list()] == ["a/b"]
    files.sweep()
    assert not left.exists()
    assert files.get("a/b") == b"content"


@pytest.mark.parametrize("files", [each for each in FILES if each is not memory_files], indirect=True)
def test_a_store_can_be_sent_to_tasks(files: Files) -> None:
    files.put("a", b"content")
    sent = pickle.loads(pickle.dumps(files))
    assert sent.get("a") == b"content"
    assert sent.address("a") == files.address("a")


def test_threads_that_replace_a_file_show_whole_contents_alone(files: Files) -> None:
    contents = {letter * 50_000 for letter in (b"a", b"b", b"c")}
    files.put("shared", b"a" * 50_000)
    seen: list[bytes] = []

    def replace(content: bytes) -> None:
        for _ in range(5):
            files.put("shared", content)
            seen.append(files.get("shared"))
            with files.open("shared") as path:
                seen.append(path.read_bytes())

    threads = [threading.Thread(target=replace, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 30
    assert set(seen) <= contents
    assert [file.name for file in files.list()] == ["shared"]
