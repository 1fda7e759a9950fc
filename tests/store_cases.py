"""Stores of each kind, for the suites that all of them pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from slatedb.uniffi import ObjectStore

from penstock.stores.files import Files
from penstock.stores.ledger import Ledger, LedgerReader
from penstock.stores.local_files import LocalFiles
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


LEDGERS = [SqliteCase, SlateCase, SlateFolderCase]


def local_files(_: pytest.FixtureRequest, folder: Path) -> Files:
    return LocalFiles(folder / "files")


FILES = [local_files]
