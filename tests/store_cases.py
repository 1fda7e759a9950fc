"""Stores of each kind, for the suites that all of them pass."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from obstore.store import MemoryStore
from slatedb.uniffi import ObjectStore

from penstock.stores.address import StoreAddress
from penstock.stores.file_cache import FileCache
from penstock.stores.files import Files
from penstock.stores.ledger import Ledger, LedgerReader
from penstock.stores.local_files import LocalFiles
from penstock.stores.object_files import ObjectFiles
from penstock.stores.slate_ledger import SlateLedger, SlateReader
from penstock.stores.slate_place import SlatePlace
from penstock.stores.sqlite_ledger import SqliteLedger, SqliteReader


class LedgerCase:
    """A place for one ledger, which may be opened more than once."""

    name: str

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._request = request
        self.folder = folder

    def opened(self) -> Ledger:
        """The ledger, opened for writing; closed at the end of the test."""
        return self._closed_later(self._open())

    def reader(self) -> LedgerReader:
        """The ledger, opened for reading; closed at the end of the test."""
        return self._closed_later(self._read())

    def await_equal(self, read: Callable[[], object], wanted: object) -> None:
        """Waits until a reader sees what was committed."""
        deadline = time.monotonic() + 30
        while (found := read()) != wanted:
            assert time.monotonic() < deadline, found
            time.sleep(0.02)

    def _closed_later(self, ledger):
        self._request.addfinalizer(ledger.close)
        return ledger


class SqliteCase(LedgerCase):
    name = "sqlite"

    def _open(self) -> Ledger:
        return SqliteLedger(self.folder / "ledger.db")

    def _read(self) -> LedgerReader:
        return SqliteReader(self.folder / "ledger.db")


class SlateCase(LedgerCase):
    name = "slate-memory"

    def _place(self) -> SlatePlace:
        if not hasattr(self, "_store"):
            self._store = ObjectStore.resolve("memory:///")
        return SlatePlace(self._store, "ledger", "memory:///ledger")

    def _open(self) -> Ledger:
        return SlateLedger(self._place())

    def _read(self) -> LedgerReader:
        return SlateReader(self._place())


class SlateFolderCase(SlateCase):
    name = "slate-folder"

    def _place(self) -> SlatePlace:
        path = self.folder / "ledger"
        return SlatePlace(ObjectStore.resolve("file:///"), str(path).lstrip("/"), str(path))


class SlateS3Case(LedgerCase):
    name = "slate-s3"

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        super().__init__(request, folder)
        self.address = s3_address(request)

    def _open(self) -> Ledger:
        return self.address.ledger()

    def _read(self) -> LedgerReader:
        return self.address.ledger_reader()


LEDGERS = [SqliteCase, SlateCase, SlateFolderCase, SlateS3Case]


def s3_address(request: pytest.FixtureRequest) -> StoreAddress:
    """A new prefix of the S3 server, whose variables are in the environment until the end of the test."""
    server = request.getfixturevalue("s3")
    monkeypatch = request.getfixturevalue("monkeypatch")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return StoreAddress.of(f"s3://bucket/{uuid.uuid4().hex}")


def local_files(_: pytest.FixtureRequest, folder: Path) -> Files:
    return LocalFiles(folder / "files")


def memory_files(_: pytest.FixtureRequest, folder: Path) -> Files:
    return ObjectFiles(MemoryStore(), "memory:///files", FileCache(folder / "cache"))


def s3_files(request: pytest.FixtureRequest, folder: Path) -> Files:
    return s3_address(request).files(FileCache(folder / "cache"))


FILES = [local_files, memory_files, s3_files]
