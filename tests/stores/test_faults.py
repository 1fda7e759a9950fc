"""Stores that fail: slow and lost replies, errors of the server, a full disk; and what a second process does to the first."""

from __future__ import annotations

import errno
import os
import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from slatedb.uniffi import ObjectStore

import killing
from penstock.errors import FencedError, StoreFailedError, UnexpectedDocumentError
from penstock.stores import address as addresses
from penstock.stores.address import StoreAddress
from penstock.stores.file_cache import FileCache
from penstock.stores.ledger import Ledger, LedgerReader, Range
from penstock.stores.local_files import LocalFiles
from penstock.stores.slate_ledger import SlateLedger, SlateReader
from penstock.stores.slate_place import SlatePlace
from penstock.stores.sqlite_ledger import SqliteLedger, SqliteReader
from penstock_lab.servers.fault_proxy import DROPPED, PASS, REFUSED, REPLY_LOST, FaultProxy
from penstock_lab.servers.s3 import S3Server
from store_work import check_files, check_numbers, commit_numbers, prepare_files, put_files

FAULTS = [REFUSED, DROPPED, REPLY_LOST]


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy before the S3 server, to which the environment points."""
    with FaultProxy(s3.endpoint) as proxy:
        for name, value in {**s3.environment(), "AWS_ENDPOINT_URL": proxy.endpoint}.items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture
def address() -> StoreAddress:
    """A new prefix behind the proxy."""
    return StoreAddress.of(f"s3://bucket/faults-{time.time_ns()}")


@pytest.mark.parametrize("fault", FAULTS)
def test_files_outlive_passing_faults(
    fault: str, proxy: FaultProxy, address: StoreAddress, tmp_path: Path
) -> None:
    files = address.files(FileCache(tmp_path / "cache"))
    prepare_files(files)
    proxy.first(fault, lambda *_: True, 3)
    put_files(files, tmp_path / "told")
    proxy.first(fault, lambda *_: True, 2)
    check_files(files, tmp_path / "told")
    proxy.first(fault, lambda *_: True, 2)
    with files.open("b/staged") as path:
        assert path.read_bytes() == files.get("b/staged")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_ledger_outlives_passing_faults_and_is_not_fenced_by_them(
    fault: str, proxy: FaultProxy, address: StoreAddress, tmp_path: Path
) -> None:
    proxy.first(fault, lambda method, _: method == "PUT", 2)
    ledger = address.ledger()
    for number in range(0, 6, 2):
        proxy.first(fault, lambda method, _: method == "PUT", 2)
        commit_numbers(ledger, number, number + 2, tmp_path / "told")
    assert check_numbers(ledger, tmp_path / "told") == 6
    ledger.close()
    assert check_numbers(address.ledger_reader(), tmp_path / "told") == 6


def test_slow_replies_are_waited_for(proxy: FaultProxy, address: StoreAddress, tmp_path: Path) -> None:
    proxy.delay = 0.1
    ledger = address.ledger()
    commit_numbers(ledger, 0, 3, tmp_path / "told")
    assert check_numbers(ledger, tmp_path / "told") == 3
    proxy.delay = 0.0
    ledger.close()


def test_a_store_that_remains_away_fails_a_put_and_leaves_the_local_file(
    proxy: FaultProxy, address: StoreAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "_RETRIES", {"max_retries": 2, "retry_timeout": timedelta(seconds=5)})
    files = address.files(FileCache(tmp_path / "cache"))
    staged = files.staging("a")
    staged.write_bytes(b"content")
    proxy.fault = lambda *_: REFUSED
    with pytest.raises(StoreFailedError, match="503"):
        files.put("a", staged)
    with pytest.raises(StoreFailedError, match=f"{address}/a"):
        files.get("a")
    proxy.fault = lambda *_: PASS
    files.put("a", staged)
    assert files.get("a") == b"content"


def test_a_commit_in_doubt_ends_the_ledger_until_it_is_opened_anew(
    proxy: FaultProxy, address: StoreAddress
) -> None:
    def opened(patience: float) -> SlateLedger:
        store, path = ObjectStore.resolve("s3://bucket"), f"{address.path}/ledger"
        return SlateLedger(SlatePlace(store, path, str(address), patience))

    ledger = opened(3.0)
    ledger.commit({("a",): b"1"})
    proxy.fault = lambda method, _: REFUSED if method == "PUT" else PASS
    for _ in range(2):
        with pytest.raises(StoreFailedError, match="did not answer within 3 s"):
            ledger.commit({("a",): b"2"})
    assert ledger.get(("a",)) == b"1", "what is not acknowledged is not read"
    proxy.fault = lambda *_: PASS
    with pytest.raises(StoreFailedError):
        ledger.commit({("a",): b"3"})
    again = opened(60.0)
    assert again.get(("a",)) in (b"1", b"2")
    again.commit({("a",): b"4"})
    assert again.get(("a",)) == b"4"
    again.close()
    ledger.close()


@pytest.fixture
def small_disk() -> Iterator[None]:
    """Files of this process cannot grow beyond 100 kB, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def _fill_files(folder: Path) -> None:
    files = LocalFiles(folder / "files")
    files.put_all({"a": b"old", "b": b"old"})
    with pytest.raises(OSError, match="File too large"):
        files.put_all({"c": b"new", "a": b"n" * 200_000})
    assert (files.get("a"), files.get("b")) == (b"old", b"old")
    assert not any(path.name.startswith(".") for path in folder.rglob("*"))


def _fill_sqlite(folder: Path) -> None:
    ledger = SqliteLedger(folder / "ledger.db")
    ledger.commit({("a",): b"old"})
    for _ in range(2):
        with pytest.raises(StoreFailedError) as raised:
            ledger.commit({("a",): b"new", ("b",): b"n" * 200_000})
        assert raised.value.errno in (errno.ENOSPC, errno.EIO)
    assert list(ledger.scan()) == [(("a",), b"old")]
    ledger.commit({("a",): b"newer"})
    ledger.close()
    ledger = SqliteLedger(folder / "ledger.db")
    assert list(ledger.scan()) == [(("a",), b"newer")]
    ledger.close()


def _fill_slate(folder: Path) -> None:
    def opened() -> SlateLedger:
        return SlateLedger(
            SlatePlace(ObjectStore.resolve("file:///"), str(folder / "ledger").lstrip("/"), "there", 2.0)
        )

    ledger = opened()
    ledger.commit({("a",): b"old"})
    with pytest.raises(StoreFailedError):
        ledger.commit({("a",): b"new", ("b",): b"n" * 200_000})
    assert list(opened().scan()) == [(("a",), b"old")]


@pytest.mark.parametrize("fill", [_fill_files, _fill_sqlite, _fill_slate])
def test_a_full_disk_changes_nothing_that_was_stored(fill, tmp_path: Path) -> None:
    assert killing.forked(_limited, fill, tmp_path) == 0


def _limited(fill, folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    fill(folder)
    # threads of SlateDB that repeat what never succeeds
    os._exit(0)


def test_a_cache_without_space_says_so(tmp_path: Path) -> None:
    def full(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    cache = FileCache(tmp_path)
    with pytest.raises(StoreFailedError, match="no space for copies of remote files"), cache.open("a", full):
        pass
    with cache.open("a", lambda path: path.write_bytes(b"whole")) as path:
        assert path.read_bytes() == b"whole"
    assert sum(not each.is_symlink() for each in path.parent.iterdir()) == 1


def test_who_has_a_copy_open_keeps_it_when_the_file_changes(tmp_path: Path) -> None:
    cache = FileCache(tmp_path)
    with cache.open("a", lambda path: path.write_bytes(b"before")) as before:
        cache.drop("a")
        with cache.open("a", lambda path: path.write_bytes(b"after")) as after:
            assert (before.read_bytes(), after.read_bytes()) == (b"before", b"after")


def test_a_cache_keeps_what_is_in_use_and_deletes_what_was_used_least_recently(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, bytes=250)
    fetched: list[str] = []

    def opened(name: str):
        def fetch(path: Path) -> None:
            fetched.append(name)
            path.write_bytes(name.encode() * 100)

        return cache.open(name, fetch)

    with opened("a") as first, opened("b"), opened("c"), opened("d"):
        assert first.read_bytes() == b"a" * 100
    for name in "abcd":
        with opened(name):
            pass
    assert fetched == list("abcd"), "those in use were kept, beyond the bound"
    with opened("e"):
        pass
    for name in "dea":
        with opened(name):
            pass
    assert fetched == list("abcdea")
    cache.drop("e")
    with opened("e"):
        pass
    assert fetched == list("abcdeae")


def _take_over(path: Path) -> None:
    ledger = SqliteLedger(path)
    ledger.commit({("by",): b"%d" % os.getpid()})
    ledger.close()


def test_another_process_fences_and_is_named(tmp_path: Path) -> None:
    first = SqliteLedger(tmp_path / "ledger.db")
    first.commit({("by",): b"first"})
    assert killing.forked(_take_over, tmp_path / "ledger.db") == 0
    by = first.get(("by",))
    assert by is not None
    with pytest.raises(
        FencedError, match=rf"process {by.decode()} of host \S+ since 20.* UTC has taken over"
    ) as raised:
        first.commit({("by",): b"first"})
    assert raised.value.exit_code == 1
    first.close()


def _count(opened, folder: Path, name: str) -> None:
    """Adds one to a number again and again, fencing the other process as it goes, and tells how often it did."""
    told = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(4):
        try:
            ledger: Ledger = opened(folder)
        except FencedError:
            continue
        try:
            for _ in range(5):
                before = ledger.get(("number",))
                try:
                    ledger.commit({("number",): b"%d" % (int(before or 0) + 1)}, expect={("number",): before})
                except UnexpectedDocumentError:
                    continue
                os.write(told, b".")
        except FencedError:
            pass
        finally:
            ledger.close()
    os.close(told)


def _sqlite(folder: Path) -> Ledger:
    return SqliteLedger(folder / "ledger.db")


def _slate(folder: Path) -> Ledger:
    return SlateLedger(
        SlatePlace(ObjectStore.resolve("file:///"), str(folder / "ledger").lstrip("/"), "there")
    )


@pytest.mark.parametrize("opened", [_sqlite, _slate])
def test_two_writers_at_once_lose_and_double_nothing(opened, tmp_path: Path) -> None:
    codes: list[int] = []
    drivers = [
        threading.Thread(
            target=lambda name=name: codes.append(killing.forked(_count, opened, tmp_path, name))
        )
        for name in "ab"
    ]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert codes == [0, 0]
    told = sum((tmp_path / name).stat().st_size for name in "ab")
    ledger = opened(tmp_path)
    assert int(ledger.get(("number",)) or 0) == told > 0
    ledger.close()


def _read_beside(read, folder: Path) -> None:
    """Reads a ledger again and again until the number comes that its writer ends with; each state is one that was committed."""
    reader: LedgerReader = read(folder)
    states = set()
    deadline = time.monotonic() + 60
    while _LAST not in states:
        assert time.monotonic() < deadline
        with reader.snapshot() as view:
            newest = int(view.get(("newest",)) or 0)
            assert int(view.get(("again", "newest")) or 0) == newest
            assert [key[1] for key, _ in view.scan(Range(("number",)))] == list(
                range(max(0, newest - 3), newest + 1)
            )
        states.add(newest)
    reader.close()


_LAST = 60


def _read_sqlite(folder: Path) -> LedgerReader:
    return SqliteReader(folder / "ledger.db")


def _read_slate(folder: Path) -> LedgerReader:
    return SlateReader(
        SlatePlace(ObjectStore.resolve("file:///"), str(folder / "ledger").lstrip("/"), "there")
    )


@pytest.mark.parametrize(("opened", "read"), [(_sqlite, _read_sqlite), (_slate, _read_slate)])
def test_another_process_reads_beside_the_writer_what_was_committed(opened, read, tmp_path: Path) -> None:
    ledger: Ledger = opened(tmp_path)
    commit_numbers(ledger, 0, 1, tmp_path / "told")
    codes: list[int] = []
    reading = threading.Thread(target=lambda: codes.append(killing.forked(_read_beside, read, tmp_path)))
    reading.start()
    commit_numbers(ledger, 1, _LAST + 1, tmp_path / "told")
    reading.join()
    assert codes == [0]
    ledger.close()


def _read_as_nobody(path: Path) -> None:
    os.setgid(65534)
    os.setuid(65534)
    reader = SqliteReader(path)
    assert [reader.get(("a",)) for _ in range(3)] == [b"1"] * 3
    reader.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("is_open", [False, True])
def test_who_may_only_read_the_folder_reads_the_ledger(is_open: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        ledger = SqliteLedger(folder / "ledger.db")
        ledger.commit({("a",): b"1"})
        if not is_open:
            ledger.close()
        before = sorted(folder.iterdir())
        assert killing.forked(_read_as_nobody, folder / "ledger.db") == 0
        assert sorted(folder.iterdir()) == before
        ledger.close()
