"""The ledger of an object store, or of a folder that several machines share: a database of SlateDB.

SlateDB writes each commit as one object, by put-if-absent under the next number. A writer that opens the database takes the
number after the last one, so the writer before meets an object where it would write: it is fenced. SlateDB merges and deletes
objects in the background. Damage is found by the checksums of its blocks and the numbers of its objects.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

import slatedb.uniffi as slate

from penstock.errors import DamagedError, PenstockError, UnexpectedDocumentError
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
from penstock.stores.slate_place import SlatePlace, absent, begun

#: version of what a ledger has beside its documents; a ledger of another version is refused
LAYOUT = 1
#: keys that no document has: no kind of part of a key begins with a zero byte
_LAYOUT_KEY, _WRITER_KEY = b"\0layout", b"\0writer"
_FIRST_KEY = b"\1"
#: who opens the ledger replays the commits since the last flush, an object each
_FLUSH_EVERY = 32
#: entries that are read in one go
_READ_AT_A_TIME = 256
#: what is read is what was acknowledged
_READ = slate.ReadOptions(durability_filter=slate.DurabilityLevel.REMOTE, dirty=False, cache_blocks=True)


class SlateView(View):
    """What a database, a snapshot of one or a reader reads.

    Args:
        database: it.
        place: of the ledger.
    """

    def __init__(self, database: Any, place: SlatePlace) -> None:
        self._database = database
        self._place = place

    def get(self, key: Key) -> Document | None:
        return self.raw(encoded_key(key))

    def raw(self, key: bytes) -> bytes | None:
        """Return what is stored under an encoded key, or None."""
        with self._place.failures():
            found: bytes | None = self._place.completed(self._database.get_with_options(key, _READ))
        return found

    def scan(self, within: Range = ALL, reverse: bool = False) -> Iterator[Entry]:
        for key, document in self.raw_scan(within, reverse):
            yield Entry(decoded_key(key), document)

    def keys(self, within: Range = ALL, reverse: bool = False) -> Iterator[Key]:
        # SlateDB reads keys and documents together
        for key, _ in self.raw_scan(within, reverse):
            yield decoded_key(key)

    def raw_scan(self, within: Range, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield the encoded keys of a range and their documents."""
        options = slate.ScanOptions(
            durability_filter=slate.DurabilityLevel.REMOTE,
            dirty=False,
            read_ahead_bytes=1 << 20,
            cache_blocks=True,
            max_fetch_tasks=4,
            order=slate.IterationOrder.DESCENDING if reverse else slate.IterationOrder.ASCENDING,
        )
        keys = slate.KeyRange(
            start=max(within.begin, _FIRST_KEY), start_inclusive=True, end=within.end, end_inclusive=False
        )
        if keys.start >= keys.end:
            return
        with self._place.failures():
            rows = self._place.completed(self._database.scan_with_options(keys, options))
            while portion := self._place.completed(rows.next_batch(_READ_AT_A_TIME)):
                for row in portion:
                    yield row.key, row.value

    def writer(self) -> Writer:
        """Return who opened the ledger for writing last."""
        content = self.raw(_WRITER_KEY)
        if content is None:
            raise DamagedError(self._place.address, "(the ledger) is damaged: it does not name its writer")
        return Writer(**json.loads(content))

    def check_layout(self) -> None:
        """Make sure that this is a ledger of this version.

        Raises:
            FileNotFoundError: its writer was stopped before the first commit.
            DamagedError: it is no ledger.
            CheckpointError: it is of another version.
        """
        content = self.raw(_LAYOUT_KEY)
        if content is None:
            if next(self.raw_scan(ALL), None) is None:
                raise absent(self._place.address)
            raise DamagedError(self._place.address, "(the ledger) is damaged: it does not name its layout")
        found = json.loads(content)
        if found != LAYOUT:
            raise other_layout(self._place.address, found, LAYOUT)


class CopiedView(View):
    """Documents in memory.

    Args:
        rows: encoded keys and documents, in order of key.
    """

    def __init__(self, rows: Sequence[tuple[bytes, Document]]) -> None:
        self._keys = [key for key, _ in rows]
        self._documents = [document for _, document in rows]

    def get(self, key: Key) -> Document | None:
        encoded = encoded_key(key)
        place = bisect_left(self._keys, encoded)
        found = place < len(self._keys) and self._keys[place] == encoded
        return self._documents[place] if found else None

    def scan(self, within: Range = ALL, reverse: bool = False) -> Iterator[Entry]:
        for place in self._places(within, reverse):
            yield Entry(decoded_key(self._keys[place]), self._documents[place])

    def keys(self, within: Range = ALL, reverse: bool = False) -> Iterator[Key]:
        for place in self._places(within, reverse):
            yield decoded_key(self._keys[place])

    def _places(self, within: Range, reverse: bool) -> Iterator[int]:
        places = range(bisect_left(self._keys, within.begin), bisect_left(self._keys, within.end))
        return iter(reversed(places) if reverse else places)


class SlateReader(LedgerReader):
    """Reads a ledger beside the process that writes it.

    Args:
        place: where it is.

    Raises:
        FileNotFoundError: no ledger is there.
        DamagedError: it is damaged.
        CheckpointError: another version of Penstock wrote it.
        StoreFailedError: the store does not answer.
    """

    def __init__(self, place: SlatePlace) -> None:
        self._place = place
        self._closing = threading.Lock()
        self._is_closed = False
        #: calls that are reading now
        self._reading = 0
        with self._failures():
            self._database = self._opened()
        self._view = SlateView(self._database, place)
        try:
            self._view.check_layout()
        except BaseException:
            self._shut()
            raise

    def get(self, key: Key) -> Document | None:
        with self._in_use(), self._failures():
            return self._view.get(key)

    def scan(self, within: Range = ALL, reverse: bool = False) -> Iterator[Entry]:
        with self._in_use():
            yield from self._view.scan(within, reverse)

    def keys(self, within: Range = ALL, reverse: bool = False) -> Iterator[Key]:
        with self._in_use():
            yield from self._view.keys(within, reverse)

    @contextmanager
    def snapshot(self) -> Iterator[View]:
        # a reader moves on by itself, and only a scan sees one state
        with self._in_use():
            rows = list(self._view.raw_scan(ALL))
        yield CopiedView(rows)

    def writer(self) -> Writer:
        with self._in_use():
            return self._view.writer()

    def close(self) -> None:
        with self._closing:
            is_idle, self._is_closed = not (self._is_closed or self._reading), True
        if is_idle:
            self._shut()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """The database stays open during the `with` block, also where the ledger is closed meanwhile."""
        with self._closing:
            if self._is_closed:
                raise ClosedError(self._place.address)
            self._reading += 1
        try:
            yield
        finally:
            with self._closing:
                self._reading -= 1
                is_last = self._is_closed and not self._reading
            if is_last:
                self._shut()

    def _opened(self) -> Any:
        return self._place.reader()

    def _failures(self) -> AbstractContextManager[None]:
        return self._place.failures()

    def _shut(self) -> None:
        self._place.shut(self._database.shutdown())


class SlateLedger(SlateReader, Ledger):
    """Writes a ledger, created unless it exists; the writer before is fenced.

    Args:
        place: where it is.

    Raises:
        DamagedError: it is damaged.
        CheckpointError: another version of Penstock wrote it; the writer before is not fenced then.
        FencedError: another process is opening it at the same time.
        StoreFailedError: the store does not answer.
    """

    def __init__(self, place: SlatePlace) -> None:
        self._writing = threading.Lock()
        self._commits = 0
        #: why no commit is possible any more
        self._failed: PenstockError | None = None
        try:
            # one that is damaged or newer is left alone
            reader = SlateReader(place)
        except FileNotFoundError:
            epoch = 1
        else:
            epoch = reader.writer().epoch + 1
            reader.close()
        self._own = Writer(epoch, socket.gethostname(), os.getpid(), time.time())
        super().__init__(place)

    @property
    def has_failed(self) -> bool:
        return self._failed is not None

    def commit(
        self,
        puts: Mapping[Key, Document] | None = None,
        deletes: Iterable[Key | Range] = (),
        expect: Mapping[Key, Document | None] | None = None,
    ) -> None:
        with self._writing, self._failures():
            if self._is_closed:
                raise ClosedError(self._place.address)
            if self._failed is not None:
                raise self._failed
            for key, document in (expect or {}).items():
                if self._view.get(key) != document:
                    raise UnexpectedDocumentError(self._place.address, key)
            changes: dict[bytes, bytes | None] = {}
            for each in deletes:
                if isinstance(each, Range):
                    changes.update((key, None) for key, _ in self._view.raw_scan(each))
                else:
                    changes[encoded_key(each)] = None
            changes.update((encoded_key(key), document) for key, document in (puts or {}).items())
            # SlateDB writes nothing for no change, and so would not notice that it is fenced
            self._store(self._database, changes or {_WRITER_KEY: _encoded(self._own)})

    @contextmanager
    def snapshot(self) -> Iterator[View]:
        with self._in_use():
            # a commit that is not acknowledged yet would appear in it later
            with self._writing, self._failures():
                database = self._place.completed(self._database.snapshot())
            yield SlateView(database, self._place)

    def close(self) -> None:
        # all that was acknowledged is durable; who was fenced or failed has been told so
        with self._writing, suppress(PenstockError):
            try:
                if not self._is_closed and self._failed is None:
                    self._store(self._database, {_WRITER_KEY: _encoded(replace(self._own, is_closed=True))})
            finally:
                super().close()

    def _shut(self) -> None:
        if self._failed is None:
            super()._shut()
        else:
            self._place.shut(_shut_without_flush(self._database))

    def _opened(self) -> Any:
        database = self._place.writer()
        try:
            self._store(
                database, {_LAYOUT_KEY: json.dumps(LAYOUT).encode(), _WRITER_KEY: _encoded(self._own)}
            )
        except PenstockError:
            self._place.shut(_shut_without_flush(database))
            raise
        return database

    def _store(self, database: Any, changes: Mapping[bytes, bytes | None]) -> None:
        """Write changes by encoded key, None for what is deleted; durable on return."""
        batch = slate.WriteBatch()
        for key, document in changes.items():
            if document is None:
                batch.delete(key)
            else:
                batch.put(key, document)
        try:
            with self._failures():
                self._place.completed(_written(database, batch))
        except PenstockError as error:
            # the store may have it all the same
            self._failed = error
            raise
        self._commits += 1
        if self._commits % _FLUSH_EVERY == 0:
            begun(_flushed(database))

    def _failures(self) -> AbstractContextManager[None]:
        return self._place.failures(self._successor)

    def _successor(self) -> str:
        try:
            reader = SlateReader(self._place)
        except (PenstockError, OSError):
            return "another process"
        try:
            return reader.writer().name()
        finally:
            reader.close()


async def _written(database: Any, batch: slate.WriteBatch) -> None:
    handle = await database.write_with_options(batch, slate.WriteOptions())
    await database.flush_with_options(slate.FlushOptions(flush_type=slate.FlushType.WAL))
    await handle.await_durable()


async def _shut_without_flush(database: Any) -> None:
    await database.shutdown_with_options(slate.CloseOptions(flush_type=None))


async def _flushed(database: Any) -> None:
    # the next one tries again; what it would have spared is time
    with suppress(slate.Error):
        await database.flush_with_options(slate.FlushOptions(flush_type=slate.FlushType.MEM_TABLE))


def _encoded(writer: Writer) -> bytes:
    return json.dumps(asdict(writer)).encode()
