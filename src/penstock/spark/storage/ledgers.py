"""The ledger of a results folder: what this process has open of it.

Any part of the process may read it. One run writes it: `Layout.open` opens it for that, and the end of the run closes it.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import DamagedError, FencedError, PenstockError, StoreFailedError
from penstock.spark.storage.store_paths import StorePath, address_of
from penstock.stores.address import LEDGER_NAME, StoreAddress, ledger_path
from penstock.stores.keys import Key
from penstock.stores.ledger import (
    ALL,
    ClosedError,
    Document,
    Entry,
    Ledger,
    LedgerReader,
    Range,
    View,
    Writer,
)


@dataclass(frozen=True, slots=True)
class LedgerFolder:
    """A ledger by the folder that has it; it can be pickled.

    Attributes:
        folder: the folder.
    """

    folder: StorePath

    def __str__(self) -> str:
        return str(self.path)

    @property
    def path(self) -> StorePath:
        """The file of the ledger, or its folder in an object store or where several machines share the file system."""
        return _path_in(self.folder)

    @property
    def reader(self) -> LedgerReader | None:
        """The ledger, None where it does not exist yet. It can be used until the end of the process, whoever closes the ledger.

        Raises:
            DamagedError, CheckpointError, ConnectionFailedError: see `StoreAddress.ledger_reader`.
        """
        try:
            _place(self.folder).reader()
        except FileNotFoundError:
            return None
        return _Reader(self.folder)

    @property
    def writer(self) -> Ledger:
        """The ledger that a run of this process has opened for writing.

        Raises:
            RuntimeError: none has, or the run has ended.
            DamagedError: the file was removed or replaced meanwhile.
        """
        written = _place(self.folder).written
        if written is None:
            raise RuntimeError(
                f"{self} is not open for writing: a run opens it at its start and closes it at its end"
            )
        return written

    @property
    def run(self) -> RunLedger | None:
        """The ledger, if a run of this process that lives has it open for writing."""
        written = _place(self.folder).written
        return written if written is not None and written.lives() else None

    def open(
        self,
        lives: Callable[[], bool] = lambda: False,
        on_fenced: Callable[[FencedError], None] = lambda _: None,
    ) -> RunLedger:
        """Open the ledger for writing. The writer before is fenced; the ledger of a run of this process is closed.

        Args:
            lives: whether the run that it is opened for still runs.
            on_fenced: called by the thread whose commit failed because another process has taken over.

        Raises:
            DamagedError, CheckpointError, ConnectionFailedError: see `StoreAddress.ledger`.
        """
        return _place(self.folder).open(lives, on_fenced)

    def owner(self) -> Writer | None:
        """Return who opened the ledger for writing last, unless it has closed it or is known to have ended."""
        reader = self.reader
        writer = None if reader is None else reader.writer()
        if writer is None or writer.is_closed:
            return None
        if writer.is_this_process:
            # what another run of this process had open may be closed and not say so
            return None if _place(self.folder).written is None else writer
        return writer if writer.is_elsewhere or writer.is_running else None

    def close(self) -> None:
        """Close what this process has open of it. It is opened again for reading where it is needed."""
        place = _place(self.folder)
        place.close_reader()
        if place.written is not None:
            place.written.close()


class RunLedger(Ledger):
    """The ledger of a run.

    Args:
        ledger: opened for writing.
        place: what this process has open of it.
        lives: whether the run still runs.
        on_fenced: called when a commit fails because another process has taken over.
    """

    def __init__(
        self,
        ledger: Ledger,
        place: _Place,
        lives: Callable[[], bool],
        on_fenced: Callable[[FencedError], None],
    ) -> None:
        self._ledger = ledger
        self._place = place
        self._file = place.file
        self.lives = lives
        self._on_fenced = on_fenced
        self._epoch = ledger.writer().epoch
        self._opening = threading.Lock()

    @property
    def is_in_place(self) -> bool:
        """Whether the folder still has the file that was opened."""
        try:
            return self._place.file == self._file
        except FileNotFoundError:
            return False

    def get(self, key: Key) -> Document | None:
        return self._ledger.get(key)

    def scan(self, within: Range = ALL, reverse: bool = False) -> Iterator[Entry]:
        return self._ledger.scan(within, reverse)

    def keys(self, within: Range = ALL, reverse: bool = False) -> Iterator[Key]:
        return self._ledger.keys(within, reverse)

    def snapshot(self) -> AbstractContextManager[View]:
        return self._ledger.snapshot()

    def writer(self) -> Writer:
        return self._ledger.writer()

    @property
    def has_failed(self) -> bool:
        return self._ledger.has_failed

    def commit(
        self,
        puts: Mapping[Key, Document] | None = None,
        deletes: Iterable[Key | Range] = (),
        expect: Mapping[Key, Document | None] | None = None,
    ) -> None:
        if not self.is_in_place:
            raise DamagedError(
                str(self._place.path), "(the ledger of the results folder) was removed or replaced"
            )
        ledger = self._ledger
        try:
            ledger.commit(puts, deletes, expect)
        except FencedError as error:
            self._on_fenced(error)
            raise
        except StoreFailedError:
            self._open_again(ledger)
            raise

    def close(self) -> None:
        self._place.leave(self)
        self._ledger.close()

    def _open_again(self, failed: Ledger) -> None:
        """Open the ledger anew after a commit in doubt, which ends it, unless another process has taken over.

        While the store still fails, the next commit tries again.
        """
        with self._opening:
            if self._ledger is not failed or not failed.has_failed:
                return
            with suppress(OSError, PenstockError):
                reader = self._place.address().ledger_reader()
                try:
                    newest = reader.writer()
                finally:
                    reader.close()
                if newest.epoch != self._epoch:
                    self._on_fenced(FencedError(str(self._place.path), newest.name()))
                    return
                ledger = self._place.address().ledger()
                self._epoch = ledger.writer().epoch
                self._ledger = ledger
                failed.close()


@dataclass(slots=True)
class _Place:
    """What this process has open of the ledger of a folder.

    Attributes:
        folder: the folder.
        written: the ledger of a run.
    """

    folder: StorePath
    written: RunLedger | None = None
    _opening: threading.Lock = field(default_factory=threading.Lock)
    #: where the file was last
    _file: Path | None = None
    #: the ledger that is read, and its file
    _read: tuple[LedgerReader, int] | None = None

    @property
    def path(self) -> StorePath:
        return _path_in(self.folder)

    @property
    def file(self) -> int:
        """Number of the file on disk: a folder may be removed and made anew. An object store has one ledger at an address."""
        if not isinstance(self.folder, Path):
            return 0
        with suppress(FileNotFoundError):
            if self._file is not None:
                return self._file.stat().st_ino
        # not looked for yet, or removed
        self._file = ledger_path(self.folder)
        return self._file.stat().st_ino

    def reader(self) -> LedgerReader:
        """Return the ledger, opened where it is not; of a process that writes it the same that is written.

        Raises:
            FileNotFoundError: it does not exist.
        """
        with self._opening:
            if self.written is not None and self.written.is_in_place:
                return self.written
            if self._read is not None and self._read[1] != self.file:
                self._close_reader()
            if self._read is None:
                self._read = self.address().ledger_reader(), self.file
            return self._read[0]

    def open(self, lives: Callable[[], bool], on_fenced: Callable[[FencedError], None]) -> RunLedger:
        """See `LedgerFolder.open`."""
        before = self.written
        if before is not None:
            before.close()
        with self._opening:
            self._close_reader()
            ledger = self.address().ledger()
            self.written = RunLedger(ledger, self, lives, on_fenced)
            return self.written

    def leave(self, written: RunLedger) -> None:
        """Take note that a ledger is about to be closed; that of a later run stays."""
        with self._opening:
            if self.written is written:
                self.written = None

    def close_reader(self) -> None:
        """Close the ledger that is read; what reads it at the moment reads to its end."""
        with self._opening:
            self._close_reader()

    def _close_reader(self) -> None:
        if self._read is not None:
            ledger, self._read = self._read[0], None
            ledger.close()

    def address(self) -> StoreAddress:
        return address_of(self.folder)


@dataclass(frozen=True, slots=True)
class _Reader(LedgerReader):
    """The ledger of a folder, opened again where another thread has closed it."""

    folder: StorePath

    def get(self, key: Key) -> Document | None:
        while True:
            with suppress(ClosedError):
                return self._ledger.get(key)

    def scan(self, within: Range = ALL, reverse: bool = False) -> Iterator[Entry]:
        while True:
            with suppress(ClosedError):
                yield from self._ledger.scan(within, reverse)
                return

    def keys(self, within: Range = ALL, reverse: bool = False) -> Iterator[Key]:
        while True:
            with suppress(ClosedError):
                yield from self._ledger.keys(within, reverse)
                return

    @contextmanager
    def snapshot(self) -> Iterator[View]:
        with ExitStack() as held:
            yield self._snapshot(held)

    def writer(self) -> Writer:
        while True:
            with suppress(ClosedError):
                return self._ledger.writer()

    def close(self) -> None:
        """Do nothing: `LedgerFolder.close` closes the ledger."""

    @property
    def _ledger(self) -> LedgerReader:
        return _place(self.folder).reader()

    def _snapshot(self, held: ExitStack) -> View:
        while True:
            with suppress(ClosedError):
                return held.enter_context(self._ledger.snapshot())


class _Places:
    """What a process has open, by folder."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: dict[StorePath, _Place] = {}

    def of(self, folder: StorePath) -> _Place:
        with self._guard:
            return self._known.setdefault(folder, _Place(folder))

    def opened(self) -> set[StorePath]:
        """The folders of which something is open."""
        with self._guard:
            return {
                folder
                for folder, place in self._known.items()
                if place.written is not None or place._read is not None
            }


_places = _Places()
#: of the processes that this one was forked from: to close theirs would do away with their locks on the files
_inherited: list[_Places] = []


def _path_in(folder: StorePath) -> StorePath:
    return ledger_path(folder) if isinstance(folder, Path) else folder / LEDGER_NAME


def _place(folder: StorePath) -> _Place:
    return _places.of(folder)


@atexit.register
def _close_all() -> None:
    for folder in _places.opened():
        LedgerFolder(folder).close()


def opened_folders() -> set[StorePath]:
    """Return the folders of which this process has the ledger open."""
    return _places.opened()


def _begin_anew() -> None:
    global _places
    _inherited.append(_places)
    _places = _Places()


os.register_at_fork(after_in_child=_begin_anew)
