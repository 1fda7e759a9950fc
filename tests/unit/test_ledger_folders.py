"""One run writes the ledger of a results folder; any part of a process reads it; others are refused or fenced."""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import CheckpointError, DamagedError, FencedError, StoreFailedError
from penstock.monitor.book import StatusBook
from penstock.spark.storage import ledgers
from penstock.spark.storage.documents import replace_json
from penstock.spark.storage.layout import Layout
from penstock.stores.address import StoreAddress
from penstock.stores.sqlite_ledger import SqliteLedger
from status_cases import lines, results_folder

HOLDS = """
import sys
from penstock.spark.storage.layout import Layout
layout = Layout.of(sys.argv[1], None)
layout.open()
layout.deadlines.replace(b"of the other process")
print(flush=True)
sys.stdin.read()
layout.deadlines.replace(b"at its end")
"""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.of(tmp_path / "out", None)


def _holder(layout: Layout) -> subprocess.Popen[bytes]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, layout.output],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    return holder


def test_only_a_run_opens_the_ledger_for_writing(layout: Layout) -> None:
    with pytest.raises(RuntimeError, match="is not open for writing"):
        layout.catalog.replace(b"before")
    assert not layout.output.exists()
    ledger = layout.open()
    layout.catalog.replace(b"during")
    ledger.close()
    with pytest.raises(RuntimeError, match="is not open for writing"):
        layout.catalog.replace(b"after")
    assert layout.catalog.get() == b"during"


def test_a_run_of_this_process_that_lives_keeps_the_ledger(layout: Layout) -> None:
    lives = True
    first = layout.open(lambda: lives)
    elsewhere = Layout(layout.output / ".." / layout.output.name, layout.checkpoint)
    for other in (layout, Layout.of(elsewhere.output, None)):
        with pytest.raises(CheckpointError, match="is in use by another run of this process; stop that"):
            other.open()
    lives = False
    second = layout.open()
    first.close()
    layout.catalog.replace(b"of the second")
    assert layout.ledger.owner() is not None
    second.close()
    assert layout.ledger.owner() is None
    layout.ledger.close()
    assert not layout.ledger.path.with_name("ledger.db-wal").exists()


def test_a_process_that_lives_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    layout = results_folder(tmp_path)
    with _holder(layout) as holder:
        replace_json(layout.status, {**StatusBook().document(), "state": "running", "pid": holder.pid})
        told = rf"is in use by process {holder.pid} of host {socket.gethostname()} since 20.* UTC\. Stop that process"
        for _ in range(2):
            assert f"out: running (process {holder.pid})" in lines(layout)
            with pytest.raises(CheckpointError, match=told):
                layout.open()
        _, failed = holder.communicate(b"")
    assert not failed
    assert layout.deadlines.get() == b"at its end"
    assert "out: dead" in lines(layout), "it has not closed the ledger"
    layout.open().close()


def test_a_writer_of_another_host_is_fenced(layout: Layout) -> None:
    with _holder(layout) as holder:
        with closing(sqlite3.connect(layout.ledger.path)) as database, database:
            database.execute("UPDATE writer SET host = 'elsewhere'")
        assert layout.ledger.owner().host == "elsewhere"
        layout.open()
        layout.deadlines.replace(b"of this process")
        _, failed = holder.communicate(b"")
    told = f"FencedError: process {os.getpid()} of host {socket.gethostname()} since 20"
    assert told.encode() in failed
    assert layout.deadlines.get() == b"of this process"


@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_a_run_has_a_spark_checkpoint_that_no_other_run_writes_to(layout: Layout, is_elsewhere: bool) -> None:
    first = layout.spark("orders")
    wanted = {"commits/7", "offsets/7", "offsets/8", "offsets/.8.crc", "sources/0/8", "metadata"}
    with _holder(layout) as holder:
        for name in (*wanted, "offsets/.9.tmp"):
            write_below(first, name)
        if is_elsewhere:
            with closing(sqlite3.connect(layout.ledger.path)) as database, database:
                database.execute("UPDATE writer SET host = 'elsewhere'")
        else:
            holder.kill()
            holder.wait()
        layout.open()
        second = layout.spark("orders")
        assert (second == first) is not is_elsewhere
        if is_elsewhere:
            write_below(first, "offsets/9")
            assert {
                each.relative_to(second).as_posix() for each in second.rglob("*") if each.is_file()
            } == wanted
            assert all((second / name).read_text() == name for name in wanted)
        holder.kill()
    layout.ledger.writer.close()
    layout.open()
    assert layout.spark("orders") == second
    assert [each.name for each in first.parent.glob("spark*")] == [second.name]


def test_a_start_that_was_killed_before_it_copied_leaves_that_to_the_next_one(layout: Layout) -> None:
    """The process that it took over from may still write."""
    with _holder(layout) as holder:
        write_below(layout.spark("orders"), "offsets/8")
        with closing(sqlite3.connect(layout.ledger.path)) as database, database:
            database.execute("UPDATE writer SET host = 'elsewhere'")
        # it opens the ledger, and ends
        code = f"from penstock.stores.address import StoreAddress; StoreAddress.of({str(layout.ledger.folder)!r}).ledger(); import os; os._exit(9)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
        first = layout.spark("orders")
        layout.open()
        assert layout.spark("orders") != first
        assert (layout.spark("orders") / "offsets" / "8").read_text() == "offsets/8"
        holder.kill()


def write_below(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(name)


def test_a_killed_writer_s_ledger_is_taken_over(layout: Layout) -> None:
    with _holder(layout) as holder:
        holder.kill()
    layout.open()
    assert layout.deadlines.get() == b"of the other process"


def test_a_run_hears_once_a_commit_that_it_is_fenced(layout: Layout) -> None:
    heard: list[FencedError] = []
    layout.open(lambda: True, heard.append)
    StoreAddress.of(str(layout.ledger.folder)).ledger().close()
    with pytest.raises(FencedError, match="has taken over"):
        layout.catalog.replace(b"late")
    assert len(heard) == 1
    assert layout.catalog.get() is None


def test_a_ledger_that_is_removed_under_a_run_takes_no_commit(layout: Layout) -> None:
    layout.open()
    layout.ledger.path.unlink()
    with pytest.raises(DamagedError, match="was removed or replaced"):
        layout.catalog.replace(b"lost")


def test_who_reads_goes_on_whatever_others_close(layout: Layout) -> None:
    ledger = layout.open()
    for number in range(5):
        layout.plans("s")[number].replace(b"%d" % number)
    reader = layout.ledger.reader
    entries, keys = reader.scan(), reader.keys()
    next(entries), next(keys)
    ledger.close()
    assert (len(list(entries)), len(list(keys))) == (5, 5)
    entries = reader.scan()
    next(entries)
    layout.ledger.close()
    assert len(list(entries)) == 5
    assert reader.get(("plan", "s", 3)) == b"3"
    assert reader.writer().is_closed
    layout.ledger.close()
    with reader.snapshot() as view:
        layout.ledger.close()
        assert view.get(("plan", "s", 4)) == b"4"


def test_threads_read_while_others_close(layout: Layout) -> None:
    layout.open()
    layout.plans("s")[0].replace(b"0")
    ends, failed = threading.Event(), []

    def read() -> None:
        try:
            while not ends.is_set():
                assert layout.plans("s").numbers() == [0]
                assert layout.plans("s")[0].get() == b"0"
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        layout.ledger.close()
    ends.set()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_store_that_answers_slowly_holds_no_other_folder_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, slow = Layout.of(tmp_path / "quick", None), Layout.of(tmp_path / "slow", None)
    quick.open()
    opening, answers = threading.Event(), threading.Event()
    ledger = StoreAddress.ledger

    def slowly(address: StoreAddress):
        if address.path.endswith("slow/_penstock"):
            opening.set()
            assert answers.wait(30)
        return ledger(address)

    monkeypatch.setattr(StoreAddress, "ledger", slowly)
    thread = threading.Thread(target=slow.open)
    thread.start()
    assert opening.wait(30)
    quick.catalog.replace(b"meanwhile")
    assert quick.catalog.get() == b"meanwhile"
    with pytest.raises(RuntimeError, match="is not open for writing"):
        slow.catalog.replace(b"too early")
    answers.set()
    thread.join()
    slow.catalog.replace(b"now")


def test_a_fork_reads_by_itself_and_leaves_the_ledger_of_its_parent(layout: Layout) -> None:
    layout.open()
    layout.catalog.replace(b"before")
    with ledgers._places._guard:
        # another thread of the parent may hold what a child has to take
        child = os.fork()
        if not child:
            code = 1
            try:
                assert layout.catalog.get() == b"before"
                with pytest.raises(RuntimeError, match="is not open for writing"):
                    layout.catalog.replace(b"of the child")
                layout.ledger.close()
                code = 0
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert layout.ledger.owner() is not None
    # SQLite's locks are those of the process: they would be gone
    program = "import sys, sqlite3; sqlite3.connect(sys.argv[1], timeout=0.1).execute('PRAGMA journal_mode = DELETE')"
    other = subprocess.run(
        [sys.executable, "-c", program, layout.ledger.path], capture_output=True, check=False
    )
    assert b"locked" in other.stderr
    layout.catalog.replace(b"after")


def test_what_is_there_is_found_by_keys_alone(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    layout.open()
    for stream in ("a", "b"):
        for number in (1, 12, 3):
            layout.manifests(stream)[number].replace(b"x")
        layout.programs(stream)[0].replace(b"x")
    layout.lanes["windows"].replace(b"x")
    monkeypatch.setattr(ledgers.RunLedger, "scan", None)
    assert layout.manifests("a").numbers() == [1, 3, 12]
    assert layout.manifests("a").last == 12
    assert layout.manifests("b").exists()
    assert not layout.manifests("c").exists()
    assert layout.queries() == ["a", "b"]
    assert layout.lanes.names() == ["windows"]
    assert [str(each).partition(" ")[0] for each in layout.manifests("b")] == [
        "batch/b/1",
        "batch/b/3",
        "batch/b/12",
    ]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5_000])


def _renumber(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA user_version = 99")


def _lose_a_page(path: Path) -> None:
    # as a copy that was made between two writes
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM documents")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_cut, r"ledger.db \(the ledger\) is damaged: .*restore it from a copy"),
        (
            _renumber,
            r"ledger.db \(the ledger\) has layout 99; this version of Penstock reads layout 1. Use the",
        ),
        (_lose_a_page, r"0 documents where 2 were committed.*copied while a run was using it; restore it"),
    ],
)
def test_a_ledger_that_does_not_fit_is_refused_in_words_and_left_alone(
    layout: Layout, damage: Callable[[Path], None], told: str
) -> None:
    ledger = layout.open()
    layout.catalog.replace(b"{}")
    ledger.close()
    layout.ledger.close()
    damage(layout.ledger.path)
    before = layout.ledger.path.read_bytes()
    for _ in range(2):
        with pytest.raises(CheckpointError, match=told) as raised:
            layout.open()
        assert raised.value.exit_code == 2
    layout.ledger.close()
    assert layout.ledger.path.read_bytes() == before


class _Doubtful(SqliteLedger):
    """A commit of its fails, and nobody knows whether it is stored."""

    is_over = False

    @property
    def has_failed(self) -> bool:
        return self.is_over

    def commit(self, puts: Any = None, *others: Any, **named: Any) -> None:
        if ("a",) not in (puts or {}):
            super().commit(puts, *others, **named)
            return
        self.is_over = True
        raise StoreFailedError(errno.EIO, "no answer", "the store")


def test_a_ledger_whose_commit_is_in_doubt_is_opened_again_unless_another_has_taken_over(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    fenced: list[FencedError] = []
    path = Path(str(layout.ledger.folder)) / "ledger.db"
    for is_taken_over in (False, True):
        with monkeypatch.context() as patched:
            patched.setattr(StoreAddress, "ledger", lambda _: _Doubtful(path))
            run = layout.open(on_fenced=fenced.append)
        if is_taken_over:
            other = SqliteLedger(path)
            other.close()
        with pytest.raises(StoreFailedError):
            run.commit({("a",): b"1"})
        assert len(fenced) == is_taken_over
        if not is_taken_over:
            run.commit({("a",): b"2"})
            assert run.get(("a",)) == b"2"
        run.close()


@pytest.mark.parametrize("is_apart", [True, False])
def test_what_killed_writers_have_left_is_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_apart: bool
) -> None:
    layout = Layout.of(tmp_path / "out", tmp_path / "checkpoint" if is_apart else None)
    left = [files.staging("a/b") for files in (layout.files, layout.log_store)]
    for path in left:
        path.write_bytes(b"half")
    walked: list[str] = []
    walk = os.walk

    def counted(folder: Path) -> object:
        walked.append(str(folder))
        return walk(folder)

    monkeypatch.setattr(os, "walk", counted)
    layout.sweep()
    assert not any(path.exists() for path in left)
    assert len(walked) == 1 + is_apart
