"""One process a checkpoint: a lock on a file in it, where the file system has locks."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from pathlib import Path
from typing import IO

from penstock.errors import CheckpointError, ConnectionFailedError

# a record lock belongs to the process and goes with the first of its descriptors that is closed: one for all runs
_files: dict[Path, IO[str]] = {}
_runs: dict[Path, int] = {}
_guard = threading.Lock()


class CheckpointLock:
    """Keeps other processes from a checkpoint until it is released, or this process has ended.

    Args:
        checkpoint: the folder.

    Raises:
        CheckpointError: another process has it.
        ConnectionFailedError: it cannot be written.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._path = checkpoint / "lock"
        self._held = True
        with _guard:
            if self._path not in _files:
                _files[self._path] = _locked(self._path)
            _runs[self._path] = _runs.get(self._path, 0) + 1

    def release(self) -> None:
        """Lets others have it once the last run of this process has released it; more than once does nothing."""
        with _guard:
            if not self._held:
                return
            self._held = False
            _runs[self._path] -= 1
            if not _runs[self._path]:
                del _runs[self._path]
                _files.pop(self._path).close()


def lock_holder(checkpoint: Path) -> int | None:
    """The process that runs on a checkpoint, None where none does; the lock stays untouched."""
    path = checkpoint / "lock"
    with _guard:
        # a record lock goes with the first descriptor that its process closes: do not look at one's own
        if path in _files:
            return os.getpid()
        try:
            with path.open("rb") as file:
                asked = struct.pack("@hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                answer = fcntl.fcntl(file, fcntl.F_GETLK, asked)
        except OSError:
            return None
    kind, _, _, _, holder = struct.unpack("@hhqqi", answer)
    return holder if kind != fcntl.F_UNLCK else None


def _locked(path: Path) -> IO[str]:
    try:
        file = path.open("a+")
    except OSError as error:
        raise ConnectionFailedError(
            f"cannot write to {path}: {error.strerror}; the checkpoint folder must be writable"
        ) from error
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            return file
        file.seek(0)
        holder = file.read() or "unknown"
        file.close()
        raise CheckpointError(
            f"the checkpoint {path.parent} is in use by process {holder}; stop that first, or name another "
            "output folder and checkpoint"
        ) from None
    file.truncate(0)
    print(os.getpid(), end="", file=file, flush=True)
    return file
