"""Local copies of files that lie elsewhere, in a folder with a bound, shared by threads and processes.

A link names the newest copy of a file. A copy in use has a shared lock, which ends with its process; only a copy without one
is deleted. A copy is whole before it has its name. The folder is for one store during one life of it: names that a later life gives again are other files.
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
from typing import NamedTuple

from penstock.errors import StoreFailedError
from penstock.stores.durable import sync_file

#: processes that fetch the same file wait for each other; these many files are fetched at a time
_LANES = 64
_STAGED, _COPIES, _LOCKS = "staged", "copies", "locks"


#: names of what is not a copy yet end so
_UNFINISHED = (".half", ".link")


class _Lease(NamedTuple):
    """A copy that nobody deletes until the descriptor, which holds its lock, is closed."""

    descriptor: int
    copy: Path


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
        newest = self._newest(name)
        lease = _leased(newest)
        if lease is None:
            with self._fetching(newest):
                # another one may have fetched it meanwhile
                lease = _leased(newest) or self._fetched(newest, fetch)
        try:
            yield lease.copy
        finally:
            os.close(lease.descriptor)

    def drop(self, name: str) -> None:
        """Fetch a file anew when it is opened next; who has its copy open keeps that."""
        self._newest(name).unlink(missing_ok=True)

    def staging(self) -> Path:
        """Return a fresh path for a file that is to be put."""
        folder = self.folder / _STAGED
        folder.mkdir(parents=True, exist_ok=True)
        return folder / uuid.uuid4().hex

    def sweep(self) -> None:
        """Delete what was to be put, or was fetched half."""
        for path in [
            *(self.folder / _STAGED).glob("*"),
            *(self.folder / _COPIES).glob("*.half"),
            *(self.folder / _COPIES).glob("*.link"),
        ]:
            path.unlink(missing_ok=True)

    def _newest(self, name: str) -> Path:
        """The link to the newest copy of a file."""
        return self.folder / _COPIES / hashlib.sha256(name.encode()).hexdigest()

    @contextmanager
    def _fetching(self, newest: Path) -> Iterator[None]:
        folder = self.folder / _LOCKS
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / str(int(newest.name, 16) % _LANES), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _fetched(self, newest: Path, fetch: Callable[[Path], None]) -> _Lease:
        """Make a copy, kept before anybody can delete it."""
        newest.parent.mkdir(parents=True, exist_ok=True)
        copy = newest.with_name(f"{newest.name}.{uuid.uuid4().hex}")
        half, link = copy.with_suffix(".half"), copy.with_suffix(".link")
        try:
            try:
                fetch(half)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                self._evict(0)
                fetch(half)
            sync_file(half)
            lease = _Lease(os.open(half, os.O_RDONLY), copy)
            fcntl.flock(lease.descriptor, fcntl.LOCK_SH)
            _mark_used(lease.descriptor)
            half.replace(copy)
            link.symlink_to(copy.name)
            link.replace(newest)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise StoreFailedError(
                    errno.ENOSPC, "the disk has no space for copies of remote files", str(self.folder)
                ) from error
            raise
        finally:
            half.unlink(missing_ok=True)
        self._evict(self.bytes)
        return lease

    def _evict(self, most: int) -> None:
        """Delete the copies that were used least recently, and are not in use, until the rest has at most so many bytes."""
        found = []
        for path in (self.folder / _COPIES).iterdir():
            if not path.is_symlink():
                with suppress(FileNotFoundError):
                    stat = path.stat()
                    found.append((stat.st_mtime_ns, stat.st_size, path))
        held = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if held <= most:
                return
            if path.suffix not in _UNFINISHED and _deleted_unused(path):
                held -= size


def _leased(newest: Path) -> _Lease | None:
    """Keep a copy from being deleted; None where there is no copy."""
    try:
        copy = newest.with_name(newest.readlink().name)
        descriptor = os.open(copy, os.O_RDONLY)
    except FileNotFoundError:
        return None
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    if os.fstat(descriptor).st_nlink:
        _mark_used(descriptor)
        return _Lease(descriptor, copy)
    # it was deleted in between
    os.close(descriptor)
    return None


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
        link = path.with_suffix("")
        with suppress(FileNotFoundError):
            if link.readlink().name == path.name:
                link.unlink()
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
