"""Connections to the file of a ledger: how it is created, and opened by those who write and those who read it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from penstock.errors import ConnectionFailedError, DamagedError
from penstock.stores.durable import beside, make_folder, sync_folder

#: seconds that a commit waits for one of another process
_PATIENCE = 60.0
#: failures where what lies beside the ledger cannot be created
_UNWRITABLE = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
#: bytes of a page: documents have some hundred bytes to some thousand
_PAGE = 8192
#: bytes that the write-ahead log keeps on disk between two checkpoints
_LOG_BYTES = 16 << 20

_TABLES = """
CREATE TABLE documents (key BLOB PRIMARY KEY, crc INTEGER NOT NULL, document BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE writer (
    epoch INTEGER NOT NULL, host TEXT NOT NULL, process INTEGER NOT NULL, since REAL NOT NULL, is_closed INTEGER NOT NULL,
    documents INTEGER NOT NULL, crc_sum INTEGER NOT NULL
);
INSERT INTO writer VALUES (0, '', 0, 0, 1, 0, 0);
"""


class Immutable(sqlite3.Connection):
    """A connection that takes for granted that nobody writes: it serves one state, as a writer may begin after it."""


def connected(
    path: Path, mode: str = "rw", kind: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    """Return a connection that any thread may use, one at a time.

    Args:
        path: of a ledger that exists.
        mode: as SQLite's addresses have it.
        kind: of the connection.
    """
    address = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(
        address, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, factory=kind
    )
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def connected_to_read(path: Path) -> sqlite3.Connection:
    """Return a connection that reads; SQLite writes where it can, as it recovers what a killed writer left."""
    try:
        connection = connected(path)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in _UNWRITABLE or _log(path).exists():
            raise
        # nobody writes it, and SQLite cannot create its files in a folder that is read-only
        connection = connected(path, "ro&immutable=1", Immutable)
    connection.execute("PRAGMA query_only = ON")
    return connection


def configure(connection: sqlite3.Connection, path: Path) -> None:
    """Make the commits of a connection atomic and durable.

    Raises:
        ConnectionFailedError: the file system cannot do so.
    """
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise ConnectionFailedError(
            f"{path} (the ledger): the file system has no shared memory between processes; name a checkpoint on a local disk"
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")


def create_missing(path: Path, application: int, layout: int) -> None:
    """Create an empty ledger unless it exists. It gets its name once it is whole: an empty file is damaged, never new.

    Args:
        path: of the ledger.
        application, layout: what the file says it is.

    Raises:
        DamagedError: the file is gone and its log is left.
    """
    if path.exists():
        return
    if _log(path).exists():
        raise DamagedError(str(path), f"(the ledger) is missing, but {_log(path).name} beside it exists")
    make_folder(path.parent)
    new = beside(path)
    try:
        with closing(sqlite3.connect(new, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size = {_PAGE}")
            connection.execute(f"PRAGMA application_id = {application}")
            connection.execute(f"PRAGMA user_version = {layout}")
            connection.executescript(f"BEGIN; {_TABLES} COMMIT;")
        with suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)
    sync_folder(path.parent)


def _log(path: Path) -> Path:
    """The write-ahead log of a database."""
    return path.with_name(f"{path.name}-wal")
