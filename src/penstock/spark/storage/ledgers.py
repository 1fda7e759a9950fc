"""The ledger of a results folder: opened once in a process, for reading or for writing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from penstock.stores.ledger import Ledger
from penstock.stores.sqlite_ledger import SqliteLedger, SqliteReader

Opened = TypeVar("Opened", bound=SqliteReader)


@dataclass(frozen=True, slots=True)
class _Opening(Generic[Opened]):
    """A ledger that is open.

    Attributes:
        ledger: it.
        process: who opened it: a fork cannot use it.
        file: number of its file on disk: a folder may be removed and made anew.
    """

    ledger: Opened
    process: int
    file: int


_guard = threading.Lock()
_readers: dict[Path, _Opening[SqliteReader]] = {}
_writers: dict[Path, _Opening[SqliteLedger]] = {}


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """A ledger by its path; it can be pickled.

    Attributes:
        path: of the file.
    """

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def reader(self) -> SqliteReader | None:
        """The ledger, None where it does not exist yet; of a process that writes it the same that is written.

        Raises:
            DamagedError, CheckpointError, ConnectionFailedError: see `SqliteReader`.
        """
        with _guard:
            written = _known(_writers, self.path)
            if written is not None:
                return written
            with suppress(FileNotFoundError):
                return _opened(_readers, self.path, SqliteReader)
        return None

    @property
    def writer(self) -> Ledger:
        """The ledger, for writing: it fences the process that wrote it before.

        Raises:
            DamagedError, CheckpointError, ConnectionFailedError: see `SqliteLedger`.
        """
        with _guard:
            return _opened(_writers, self.path, SqliteLedger)

    def close(self) -> None:
        """Close what this process has open of it; it is opened again where it is needed."""
        with _guard:
            for opening in (_readers.pop(self.path, None), _writers.pop(self.path, None)):
                if opening is not None and opening.process == os.getpid():
                    opening.ledger.close()


def _known(known: dict[Path, _Opening[Opened]], path: Path) -> Opened | None:
    opening = known.get(path)
    if opening is None or opening.process != os.getpid():
        return None
    with suppress(FileNotFoundError):
        if path.stat().st_ino == opening.file:
            return opening.ledger
    del known[path]
    opening.ledger.close()
    return None


def _opened(known: dict[Path, _Opening[Opened]], path: Path, begin: Callable[[Path], Opened]) -> Opened:
    found = _known(known, path)
    if found is None:
        found = begin(path)
        known[path] = _Opening(found, os.getpid(), path.stat().st_ino)
    return found
