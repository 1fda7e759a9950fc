"""One process a checkpoint, and one run of it: a lock on a file in it, where the file system has locks."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

from penstock.errors import CheckpointError, ConnectionFailedError
from penstock.spark.storage.files import make_folder

# a record lock belongs to the process and goes with the first of its descriptors that is closed: one for all runs
_files: dict[Path, IO[str]] = {}
_holders: dict[Path, list[CheckpointLock]] = {}
_guard = threading.Lock()


class CheckpointLock:
    """Keeps other processes, and other runs of this one, from a checkpoint until it is released.

    Args:
        checkpoint: the folder, created unless it exists.
        lives: whether the run that it is for still runs; None where it is for no run, as before one.
        at_end: called once no run of this process has the checkpoint any more, before another process can have it.

    Raises:
        CheckpointError: another process has it, or a run of this process that lives.
        ConnectionFailedError: it cannot be written.
    """

    def __init__(
        self,
        checkpoint: Path,
        lives: Callable[[], bool] | None = None,
        at_end: Callable[[], None] | None = None,
    ) -> None:
        self._path = _file(checkpoint)
        self._lives = lives
        self._at_end = at_end
        with _guard:
            if self._path not in _files:
                _files[self._path] = _locked(self._path)
            holders = _holders.setdefault(self._path, [])
            if lives is not None and any(each._lives is not None and each._lives() for each in holders):
                raise CheckpointError(
                    f"the checkpoint {self._path.parent} is in use by another run of this process; stop that "
                    "first, or name another output folder and checkpoint"
                )
            holders.append(self)

    def release(self) -> None:
        """Lets others have it once the last of this process has released it; more than once does nothing."""
        with _guard:
            holders = _holders.get(self._path, [])
            if self not in holders:
                return
            holders.remove(self)
            try:
                if self._at_end is not None and all(each._lives is None for each in holders):
                    self._at_end()
            finally:
                if not holders:
                    del _holders[self._path]
                    _files.pop(self._path).close()


def lock_holder(checkpoint: Path) -> int | None:
    """The process that runs on a checkpoint, None where none does; the lock stays untouched."""
    path = _file(checkpoint)
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


def _file(checkpoint: Path) -> Path:
    return checkpoint.resolve() / "lock"


def _locked(path: Path) -> IO[str]:
    try:
        make_folder(path.parent)
        file = path.open("a+")
    except OSError as error:
        raise ConnectionFailedError(
            f"cannot write to {path}: {error.strerror}; make the checkpoint folder writable"
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
            f"the checkpoint {path.parent} is in use by process {holder}. Stop that process, or name another "
            "output folder and checkpoint"
        ) from None
    file.truncate(0)
    print(os.getpid(), end="", file=file, flush=True)
    return file
