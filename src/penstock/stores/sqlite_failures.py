"""What failures of SQLite mean for a ledger."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import ConnectionFailedError, DamagedError, StoreFailedError

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_INACCESSIBLE = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
}


@contextmanager
def failures(path: Path) -> Iterator[None]:
    """Turn what SQLite raises for a ledger into conditions of Penstock.

    Args:
        path: of the ledger.

    Raises:
        DamagedError: the file is damaged or no database.
        ConnectionFailedError: it cannot be read or written.
        StoreFailedError: the disk is full or failed, or another process has had the ledger locked for long.
    """
    try:
        yield
    except sqlite3.Error as error:
        # the low byte is the kind of failure
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _DAMAGED or (code == sqlite3.SQLITE_ERROR and "no such" in str(error)):
            raise DamagedError(str(path), f"(the ledger) is damaged: {error}") from error
        if code in _INACCESSIBLE:
            raise ConnectionFailedError(
                f"{path} (the ledger) may not be read or not be written: {error}. Make it, its folder and the files "
                "beside it readable and writable"
            ) from error
        if code == sqlite3.SQLITE_FULL:
            raise StoreFailedError(errno.ENOSPC, "the disk is full", str(path)) from error
        if code == sqlite3.SQLITE_BUSY:
            raise StoreFailedError(
                errno.EBUSY, "another process has had the ledger locked for a minute", str(path)
            ) from error
        if code == sqlite3.SQLITE_ERROR or isinstance(error, sqlite3.ProgrammingError):
            raise
        raise StoreFailedError(errno.EIO, str(error), str(path)) from error
