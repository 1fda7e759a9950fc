"""Where a ledger of SlateDB is, how it is opened, and what its failures mean."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, TypeVar

import slatedb.uniffi as slate

from penstock.errors import DamagedError, FencedError, StoreFailedError
from penstock.stores.ledger import ClosedError

Result = TypeVar("Result")

#: seconds that a store may take to answer, repetitions of requests included
PATIENCE = 60.0
#: ... when it is closed: all that was acknowledged is durable
_LAST_SECONDS = 3.0
#: bytes of blocks that are kept in memory
_CACHE_BYTES = 64 << 20
#: a reader looks for new commits so often
_POLL_MS = 500
#: a reader has no checkpoint of its own that would end
_LIFETIME_MS = 1 << 40
#: objects that nobody needs live so long for those who read them
_GRACE = "1800s"
_SETTINGS = {
    # requests of a writer that does nothing cost money
    "manifest_poll_interval": "10s",
    "compactor_options.poll_interval": "20s",
    "compactor_options.worker.compactions_poll_interval": "20s",
    # the ledger flushes each commit itself
    "flush_interval": "1s",
    "garbage_collector_options.compacted_options.min_age": _GRACE,
    "garbage_collector_options.wal_options.min_age": _GRACE,
    "garbage_collector_options.manifest_options.min_age": _GRACE,
}


class SlatePlace:
    """Where a ledger is.

    Args:
        store: the object store.
        path: of the ledger within it.
        address: the whole of it, for messages.
        patience: seconds that the store may take to answer, repetitions of requests included.
    """

    def __init__(self, store: slate.ObjectStore, path: str, address: str, patience: float = PATIENCE) -> None:
        self._store = store
        self._path = path
        self.address = address
        self._patience = patience

    def writer(self) -> Any:
        """Return the database, opened for writing: the writer before is fenced."""
        settings = slate.Settings.default()
        for name, value in _SETTINGS.items():
            settings.set(name, json.dumps(value))
        builder = slate.DbBuilder(self._path, self._store)
        builder.with_settings(settings)
        builder.with_db_cache(_blocks(), 0)
        return self.completed(builder.build())

    def reader(self) -> Any:
        """Return the database, opened for reading.

        Raises:
            FileNotFoundError: no ledger is there.
        """
        builder = slate.DbReaderBuilder(self._path, self._store)
        builder.with_reader_mode(slate.ReaderMode.FOLLOW_LATEST())
        builder.with_options(
            slate.ReaderOptions(
                manifest_poll_interval_ms=_POLL_MS,
                checkpoint_lifetime_ms=_LIFETIME_MS,
                max_memtable_bytes=_CACHE_BYTES,
                skip_wal_replay=False,
            )
        )
        builder.with_db_cache(_blocks(), 0)
        try:
            return self.completed(builder.build())
        except slate.Error.Data as error:
            if "failed to find latest" not in str(error):
                raise
        raise absent(self.address)

    def shut(self, shutdown: Coroutine[Any, Any, None]) -> None:
        """Wait for the end of a database, but not for long: a fenced one waits half a minute for its compactor."""
        with suppress(slate.Error, TimeoutError):
            begun(shutdown).result(_LAST_SECONDS)

    def completed(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Wait for a call of SlateDB.

        Raises:
            StoreFailedError: it takes too long.
        """
        future = begun(call)
        try:
            return future.result(self._patience)
        except TimeoutError:
            future.cancel()
            raise StoreFailedError(
                errno.ETIMEDOUT, f"the store did not answer within {self._patience:g} s", self.address
            ) from None

    @contextmanager
    def failures(self, successor: Callable[[], str] = lambda: "another process") -> Iterator[None]:
        """Turn what SlateDB raises into conditions of Penstock.

        Args:
            successor: says who has taken over.

        Raises:
            FencedError: another writer has opened the ledger.
            DamagedError: objects are missing or not what was written.
            StoreFailedError: the store failed.
        """
        try:
            yield
        except slate.Error.Closed as error:
            if error.reason == slate.CloseReason.FENCED:
                raise FencedError(self.address, successor()) from None
            if error.reason == slate.CloseReason.CLEAN:
                raise ClosedError(self.address) from None
            raise StoreFailedError(errno.EIO, str(error), self.address) from error
        except slate.Error as error:
            told = str(error)
            if "version already exists" in told:
                # two processes create it at once
                raise FencedError(self.address, successor()) from None
            failed = "object store error" in told and "not found" not in told
            if not failed and (isinstance(error, slate.Error.Data) or "CallbackError" in told):
                raise DamagedError(self.address, f"(the ledger) is damaged: {told}") from error
            raise StoreFailedError(errno.EIO, told, self.address) from error


def absent(address: str) -> FileNotFoundError:
    """Return the error of a place without a ledger."""
    return FileNotFoundError(errno.ENOENT, "the ledger does not exist", address)


def begun(call: Coroutine[Any, Any, Result]) -> Future[Result]:
    """Begin a call of SlateDB, whose calls are coroutines, on the thread that all of them share."""
    return asyncio.run_coroutine_threadsafe(call, _loop())


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="penstock-ledger", daemon=True).start()
    return loop


# the thread of the loop does not exist in a child
os.register_at_fork(after_in_child=_loop.cache_clear)


def _blocks() -> slate.DbCache:
    return slate.DbCache.new_moka_cache(
        slate.MokaCacheOptions(max_capacity=_CACHE_BYTES, time_to_live=None, time_to_idle=None)
    )
