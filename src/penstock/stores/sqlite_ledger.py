"""The ledger of a local folder: a SQLite database in WAL mode, each commit synced.

One table has the documents by encoded key, each with the checksum of key and document. One row has who writes, and the number
and sum of all checksums: a copy that was made while the ledger was in use does not add up, and is refused when it is opened
for writing. Never open the file in another way within a process that has it open: closing it would drop SQLite's locks.
"""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.errors import (
    DamagedError,
    FencedError,
    StoreFailedError,
    UnexpectedDocumentError,
)
from penstock.stores.keys import Key, decoded_key, encoded_key
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
    other_layout,
)
from penstock.stores.sqlite_connections import (
    Immutable,
    configure,
    connected,
    connected_to_read,
    create_missing,
)
from penstock.stores.sqlite_failures import failures

#: version of the tables; a ledger of another version is refused
LAYOUT = 1
#: tells a ledger from other databases of SQLite: "Pstk"
_APPLICATION = 0x5073746B
_KIND = "the ledger"


class SqliteReader(LedgerReader):
    """Reads a ledger in a local file, beside the process that writes it.

    Args:
        path: the file.

    Raises:
        FileNotFoundError: no such file.
        DamagedError: it is damaged, or something else than a ledger.
        CheckpointError: another version of Penstock wrote it.
        ConnectionFailedError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        #: connections that nobody reads with at the moment
        self._idle: list[sqlite3.Connection] = []
        self._is_closed = False
        if not path.exists():
            raise FileNotFoundError(errno.ENOENT, f"{_KIND} does not exist", str(path))
        with self.snapshot() as view:
            view.check_layout()

    def get(self, key: Key) -> Document | None:
        with self.snapshot() as view:
            return view.get(key)

    def scan(self, within: Range = ALL, reverse: bool = False) -> Iterator[Entry]:
        with self.snapshot() as view:
            yield from view.scan(within, reverse)

    def keys(self, within: Range = ALL, reverse: bool = False) -> Iterator[Key]:
        with self.snapshot() as view:
            yield from view.keys(within, reverse)

    @contextmanager
    def snapshot(self) -> Iterator[SqliteView]:
        with failures(self._path):
            connection = self._connection()
            try:
                connection.execute("BEGIN")
                yield SqliteView(connection, self._path)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self._return(connection)

    def writer(self) -> Writer:
        with self.snapshot() as view:
            return view.writer()

    def close(self) -> None:
        with self._guard:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _connection(self) -> sqlite3.Connection:
        with self._guard:
            if self._is_closed:
                raise ClosedError(str(self._path))
            if self._idle:
                return self._idle.pop()
        return connected_to_read(self._path)

    def _return(self, connection: sqlite3.Connection) -> None:
        with self._guard:
            if not self._is_closed and not isinstance(connection, Immutable):
                self._idle.append(connection)
                return
        connection.close()


class SqliteView(View):
    """What one transaction of a connection reads.

    Args:
        connection: in a transaction.
        path: of the ledger, for messages.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def get(self, key: Key) -> Document | None:
        encoded = encoded_key(key)
        row = self._row("SELECT crc, document FROM documents WHERE key = ?", encoded)
        return None if row is None else self._checked(encoded, *row)

    def scan(self, within: Range = ALL, reverse: bool = False) -> Iterator[Entry]:
        rows = self._rows("key, crc, document", within, reverse)
        for key, crc, document in rows:
            yield Entry(decoded_key(key), self._checked(key, crc, document))

    def keys(self, within: Range = ALL, reverse: bool = False) -> Iterator[Key]:
        for (key,) in self._rows("key", within, reverse):
            yield decoded_key(key)

    def writer(self) -> Writer:
        """Return who opened the ledger for writing last."""
        epoch, host, process, since, is_closed = self._row(
            "SELECT epoch, host, process, since, is_closed FROM writer"
        )
        return Writer(epoch, host, process, since, bool(is_closed))

    def check_layout(self) -> None:
        """Make sure that this is a ledger of this version.

        Raises:
            DamagedError: it is no ledger.
            CheckpointError: it is of another version.
        """
        (application,) = self._row("PRAGMA application_id")
        (found,) = self._row("PRAGMA user_version")
        if application != _APPLICATION:
            raise DamagedError(
                str(self._path), f"({_KIND}) is damaged: it is another database, or an empty one"
            )
        if found != LAYOUT:
            raise other_layout(str(self._path), found, LAYOUT)

    def check_sums(self) -> None:
        """Make sure that all documents exist that were committed, and no others.

        Raises:
            DamagedError: they do not.
        """
        wanted = self._row("SELECT documents, crc_sum FROM writer")
        found = self._row("SELECT count(*), coalesce(sum(crc), 0) FROM documents")
        if found != wanted:
            raise DamagedError(
                str(self._path),
                f"({_KIND}) is damaged: it has {found[0]:,} documents where {wanted[0]:,} were committed, or others than these. "
                "It may have been copied while a run was using it",
            )

    def _rows(self, columns: str, within: Range, reverse: bool) -> Iterator[Any]:
        rows = self._connection.execute(
            f"SELECT {columns} FROM documents WHERE key >= ? AND key < ? "
            f"ORDER BY key {'DESC' if reverse else 'ASC'}",
            (within.begin, within.end),
        )
        with closing(rows), failures(self._path):
            yield from rows

    def _row(self, query: str, *parameters: object) -> Any:
        return self._connection.execute(query, parameters).fetchone()

    def _checked(self, key: bytes, crc: int, document: Document) -> Document:
        if crc != _checksum(key, document):
            raise DamagedError(
                str(self._path),
                f"({_KIND}) is damaged: the content of {decoded_key(key)} does not match its checksum",
            )
        return document


class SqliteLedger(SqliteReader, Ledger):
    """Writes a ledger in a local file, created unless it exists; the writer before is fenced.

    Args:
        path: the file.

    Raises:
        DamagedError: it is damaged, something else than a ledger, or a copy that was made while it was in use.
        CheckpointError: another version of Penstock wrote it.
        ConnectionFailedError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        with failures(path):
            create_missing(path, _APPLICATION, LAYOUT)
            super().__init__(path)
            self._writing = threading.Lock()
            self._write = connected(path)
            try:
                configure(self._write, path)
                self._epoch = self._take_over()
            except BaseException:
                self._write.close()
                super().close()
                raise

    def commit(
        self,
        puts: Mapping[Key, Document] | None = None,
        deletes: Iterable[Key | Range] = (),
        expect: Mapping[Key, Document | None] | None = None,
    ) -> None:
        stored = {encoded_key(key): document for key, document in (puts or {}).items()}
        removed = [each if isinstance(each, Range) else encoded_key(each) for each in deletes]

        with self._writing, failures(self._path), self._transaction() as view:
            self._refuse_fenced(view)
            for key, document in (expect or {}).items():
                if view.get(key) != document:
                    raise UnexpectedDocumentError(str(self._path), key)
            changes = _Changes(self._write)
            for each in removed:
                changes.delete(each)
            for encoded, document in stored.items():
                changes.put(encoded, document)
            changes.add_up()

    def close(self) -> None:
        # all that was acknowledged is durable, whether or not this can be told
        with self._writing, suppress(StoreFailedError), failures(self._path):
            if self._is_closed:
                return
            try:
                with self._transaction():
                    self._write.execute("UPDATE writer SET is_closed = 1 WHERE epoch = ?", (self._epoch,))
                # the file alone has everything then, whoever still reads
                self._write.execute("PRAGMA busy_timeout = 1000")
                self._write.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                super().close()
                self._write.close()

    @contextmanager
    def _transaction(self) -> Iterator[SqliteView]:
        """All that is done in the `with` block is durable after it, or none of it is."""
        if self._is_closed:
            raise ClosedError(str(self._path))
        self._write.execute("BEGIN IMMEDIATE")
        try:
            yield SqliteView(self._write, self._path)
            self._write.execute("COMMIT")
        except BaseException:
            if self._write.in_transaction:
                self._write.execute("ROLLBACK")
            raise

    def _take_over(self) -> int:
        """Become the writer; the epoch."""
        with self._transaction() as view:
            view.check_sums()
            epoch = view.writer().epoch + 1
            self._write.execute(
                "UPDATE writer SET epoch = ?, host = ?, process = ?, since = ?, is_closed = 0",
                (epoch, socket.gethostname(), os.getpid(), time.time()),
            )
        return epoch

    def _refuse_fenced(self, view: SqliteView) -> None:
        writer = view.writer()
        if writer.epoch != self._epoch:
            raise FencedError(str(self._path), writer.name())


class _Changes:
    """Changes of documents in a transaction, with the number and sum of the checksums."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._documents = self._crc_sum = 0

    def delete(self, deleted: bytes | Range) -> None:
        """Delete a document by its encoded key, or those of a range."""
        if isinstance(deleted, Range):
            where, values = "key >= ? AND key < ?", [deleted.begin, deleted.end]
        else:
            where, values = "key = ?", [deleted]
        for (crc,) in self._connection.execute(f"DELETE FROM documents WHERE {where} RETURNING crc", values):
            self._count(-1, -crc)

    def put(self, key: bytes, document: Document) -> None:
        """Store a document by its encoded key."""
        self.delete(key)
        crc = _checksum(key, document)
        self._connection.execute("INSERT INTO documents VALUES (?, ?, ?)", (key, crc, document))
        self._count(1, crc)

    def add_up(self) -> None:
        """Store the number and sum of the checksums."""
        if not (self._documents or self._crc_sum):
            return
        self._connection.execute(
            "UPDATE writer SET documents = documents + ?, crc_sum = crc_sum + ?",
            (self._documents, self._crc_sum),
        )

    def _count(self, documents: int, crc: int) -> None:
        self._documents += documents
        self._crc_sum += crc


def _checksum(key: bytes, document: Document) -> int:
    return zlib.crc32(document, zlib.crc32(key))
