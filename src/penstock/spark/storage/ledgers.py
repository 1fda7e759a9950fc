"""The ledger of a results folder: opened once in a process, for reading or for writing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from penstock.stores.address import StoreAddress, ledger_path
from penstock.stores.ledger import Ledger, LedgerReader

Opened = TypeVar("Opened", bound=LedgerReader)


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
_readers: dict[Path, _Opening[LedgerReader]] = {}
_writers: dict[Path, _Opening[Ledger]] = {}


@dataclass(frozen=True, slots=True)
class LedgerFolder:
    """A ledger by the folder that has it; it can be pickled.

    Attributes:
        folder: the folder.
    """

    folder: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def path(self) -> Path:
        """The file of the ledger, or its folder where several machines share the file system."""
        return ledger_path(self.folder)

    @property
    def reader(self) -> LedgerReader | None:
        """The ledger, None where it does not exist yet; of a process that writes it the same that is written.

        Raises:
            DamagedError, CheckpointError, ConnectionFailedError: see `StoreAddress.ledger_reader`.
        """
        with _guard:
            written = _known(_writers, self.folder)
            if written is not None:
                return written
            with suppress(FileNotFoundError):
                return _opened(_readers, self.folder, _address(self.folder).ledger_reader)
        return None

    @property
    def writer(self) -> Ledger:
        """The ledger, for writing: it fences the process that wrote it before.

        Raises:
            DamagedError, CheckpointError, ConnectionFailedError: see `StoreAddress.ledger`.
        """
        with _guard:
            return _opened(_writers, self.folder, _address(self.folder).ledger)

    @contextmanager
    def read_briefly(self) -> Iterator[None]:
        """Close what reading has opened, after the `with` block: an open ledger keeps a disk from being unmounted.

        For a process that reads seldom, such as a worker; one thread of it may do so.
        """
        try:
            yield
        finally:
            with _guard:
                opening = _readers.pop(self.folder, None)
            if opening is not None and opening.process == os.getpid():
                opening.ledger.close()

    def close(self) -> None:
        """Close what this process has open of it; it is opened again where it is needed."""
        with _guard:
            for opening in (_readers.pop(self.folder, None), _writers.pop(self.folder, None)):
                if opening is not None and opening.process == os.getpid():
                    opening.ledger.close()


def _address(folder: Path) -> StoreAddress:
    return StoreAddress("file", "", str(folder.absolute()))


def _known(known: dict[Path, _Opening[Opened]], folder: Path) -> Opened | None:
    opening = known.get(folder)
    if opening is None or opening.process != os.getpid():
        return None
    with suppress(FileNotFoundError):
        if ledger_path(folder).stat().st_ino == opening.file:
            return opening.ledger
    del known[folder]
    opening.ledger.close()
    return None


def _opened(known: dict[Path, _Opening[Opened]], folder: Path, begin: Callable[[], Opened]) -> Opened:
    found = _known(known, folder)
    if found is None:
        found = begin()
        known[folder] = _Opening(found, os.getpid(), ledger_path(folder).stat().st_ino)
    return found
