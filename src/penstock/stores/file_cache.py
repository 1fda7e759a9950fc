"""Local copies of files that lie elsewhere, in a folder with a bound, shared by threads and processes.

A copy in use has a shared lock, which ends with its process; only a copy without one is deleted. A copy is whole before it
has its name. The folder is for one store during one life of it: names that a later life gives again are other files.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import StoreFailedError
from penstock.stores.durable import sync_file

#: processes that fetch the same file wait for each other; these many files are fetched at a time
_LANES = 64
_STAGED, _COPIES, _LOCKS = "staged", "copies", "locks"


@dataclass(frozen=True)
class FileCache:
    """A folder of copies.

    Args:
        folder: created when it is needed.
        bytes: the copies have at most so many, those in use aside.
    """

    folder: Path
    bytes: int = 4 << 30

    @contextmanager
    def open(self, name: str, fetch: Callable[[Path], None]) -> Iterator[Path]:
        """Give the path of a copy that nobody deletes inside the `with` block.

        Args:
            name: of the file.
            fetch: writes the file to a path.
        """
        copy = self._copy(name)
        descriptor = self._leased(copy)
        if descriptor is None:
            with self._fetching(copy):
                # another one may have fetched it meanwhile
                descriptor = self._leased(copy)
                if descriptor is None:
                    descriptor = self._fetched(copy, fetch)
        try:
            yield copy
        finally:
            os.close(descriptor)

    def drop(self, name: str) -> None:
        """Forget the copy of a file that has changed or is gone."""
        self._copy(name).unlink(missing_ok=True)

    def staging(self) -> Path:
        """Return a fresh path for a file that is to be put."""
        folder = self.folder / _STAGED
        folder.mkdir(parents=True, exist_ok=True)
        return folder / uuid.uuid4().hex

    def sweep(self) -> None:
        """Delete what was to be put, or was fetched half."""
        for path in [*(self.folder / _STAGED).glob("*"), *(self.folder / _COPIES).glob("*.half")]:
            path.unlink(missing_ok=True)

    def _copy(self, name: str) -> Path:
        return self.folder / _COPIES / hashlib.sha256(name.encode()).hexdigest()

    def _leased(self, copy: Path) -> int | None:
        """A descriptor whose lock keeps a copy; None where there is no copy."""
        try:
            descriptor = os.open(copy, os.O_RDONLY)
        except FileNotFoundError:
            return None
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.fstat(descriptor).st_nlink:
            _mark_used(descriptor)
            return descriptor
        # it was deleted in between
        os.close(descriptor)
        return None

    @contextmanager
    def _fetching(self, copy: Path) -> Iterator[None]:
        folder = self.folder / _LOCKS
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / str(int(copy.name, 16) % _LANES), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _fetched(self, copy: Path, fetch: Callable[[Path], None]) -> int:
        """Make a copy, and keep it before anybody can delete it; the descriptor, see `_leased`."""
        copy.parent.mkdir(parents=True, exist_ok=True)
        half = copy.with_name(f"{copy.name}.{uuid.uuid4().hex}.half")
        try:
            try:
                fetch(half)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                self._evict(0)
                fetch(half)
            sync_file(half)
            descriptor = os.open(half, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            _mark_used(descriptor)
            half.replace(copy)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise StoreFailedError(
                    errno.ENOSPC, "the disk has no space for copies of remote files", str(self.folder)
                ) from error
            raise
        finally:
            half.unlink(missing_ok=True)
        self._evict(self.bytes)
        return descriptor

    def _evict(self, most: int) -> None:
        """Delete the copies that were used least recently, and are not in use, until the rest has at most so many bytes."""
        found = []
        for path in (self.folder / _COPIES).iterdir():
            with suppress(FileNotFoundError):
                stat = path.stat()
                found.append((stat.st_mtime_ns, stat.st_size, path))
        held = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if held <= most:
                return
            if path.suffix != ".half" and _deleted_unused(path):
                held -= size


def _mark_used(descriptor: int) -> None:
    # the file system's own clock ticks too seldom to tell which came first
    now = time.time_ns()
    os.utime(descriptor, ns=(now, now))


def _deleted_unused(path: Path) -> bool:
    """Delete a copy unless somebody uses it; whether it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
