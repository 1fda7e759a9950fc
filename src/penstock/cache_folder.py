"""The folder in which an installation keeps what its later processes execute: compiled kernels and Java's classes.

Loads nothing else, so that a JVM starts before numba is loaded.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path

_log = logging.getLogger(__name__)
#: folders of other versions are removed this long after they were last used
_UNUSED_SECONDS = 30 * 24 * 3600


def cache_folder(kind: str, *version: str) -> Path | None:
    """A folder for what later processes of this installation will execute; None where none can be used or trusted.

    It lies below `NUMBA_CACHE_DIR`, else `XDG_CACHE_HOME`, else `~/.cache`. It and each folder between must belong to this
    user or to root, and nobody else may write to them; in the folder it lies below nobody else may rename it.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    try:
        root = Path(chosen) if chosen else Path.home() / ".cache"
    except RuntimeError:
        return None
    folder = root
    try:
        root.mkdir(parents=True, exist_ok=True)
        above = root.stat().st_mode
        if above & stat.S_IWOTH and not above & stat.S_ISVTX:
            raise PermissionError(f"others may write to {root}")
        for part in ("penstock", kind, *version):
            folder = folder / part
            if part in version and not folder.is_dir():
                _remove_unused(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
            _require_own(folder)
    except OSError as error:
        tell_once(root.joinpath("penstock", kind, *version), error)
        return None
    with suppress(OSError):
        os.utime(folder)
    return folder


def _require_own(folder: Path) -> None:
    """Raises PermissionError where others may change what a folder holds."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise PermissionError(f"{folder} is a link, not a folder")
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"others may write to {folder}")


def tell_once(folder: Path, error: OSError) -> None:
    """Warns that nothing can be kept in a folder, once in a process."""
    if not _Told.yet:
        _Told.yet = True
        _log.warning(
            "cannot cache compiled code in %s (%s); every process compiles it again, about 10 seconds. "
            "Set NUMBA_CACHE_DIR to a writable folder",
            folder,
            error.strerror or error,
        )


def _remove_unused(root: Path) -> None:
    now = time.time()
    for folder in root.iterdir():
        with suppress(OSError):
            if now - folder.stat().st_mtime > _UNUSED_SECONDS:
                shutil.rmtree(folder)


class _Told:
    """Whether this process has said that nothing can be kept."""

    yet = False
