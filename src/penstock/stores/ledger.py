"""The ledger: documents by key in one transactional store with one writer.

What a run publishes becomes visible by one commit. Only the driver writes; a task that reads a ledger of a local folder closes it at once.
Other processes read beside the writer. Opening the ledger for writing fences the writer before: its next commit fails.
The shape follows Materialize's `Consensus` (`src/persist/src/location.rs`), the fencing SlateDB's manifest.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, TypeAlias

from penstock.errors import CheckpointError
from penstock.stores.keys import BENEATH, BEYOND, Key, encoded_prefix
from penstock.stores.processes import is_running

Document: TypeAlias = bytes
#: what `expect` says of a key that must not exist
ABSENT = None


class Entry(NamedTuple):
    """A key and its document."""

    key: Key
    document: Document


@dataclass(frozen=True, slots=True)
class Range:
    """The key `prefix` and all keys beneath it; with a bound, those beneath it whose next part is within the bounds.

    Attributes:
        prefix: what every key of the range begins with; empty: all keys.
        after: the part behind `prefix` is greater than this; None: no bound.
        before: the part behind `prefix` is less than this; None: no bound.
    """

    prefix: Key = ()
    after: str | int | None = None
    before: str | int | None = None

    @property
    def begin(self) -> bytes:
        """The first key of the range, encoded."""
        if self.after is not None:
            return encoded_prefix((*self.prefix, self.after)) + BEYOND
        return encoded_prefix(self.prefix) + (b"" if self.before is None else BENEATH)

    @property
    def end(self) -> bytes:
        """The first key behind the range, encoded."""
        if self.before is not None:
            return encoded_prefix((*self.prefix, self.before))
        return encoded_prefix(self.prefix) + BEYOND


#: every key
ALL = Range()


@dataclass(frozen=True, slots=True)
class Writer:
    """Who opened a ledger for writing last.

    Attributes:
        epoch: how often it was opened for writing.
        host, process: where, and the process id.
        since: when, seconds since the epoch.
        is_closed: whether the writer has closed it since.
    """

    epoch: int
    host: str
    process: int
    since: float
    is_closed: bool = False

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is a process of another host."""
        return self.host != socket.gethostname()

    @property
    def is_this_process(self) -> bool:
        """Whether it is the calling process, or one before it that had the same number."""
        return (self.host, self.process) == (socket.gethostname(), os.getpid())

    @property
    def is_running(self) -> bool:
        """Whether it has not closed the ledger and its process still runs; False of a process of another host."""
        return not (self.is_closed or self.is_elsewhere) and is_running(self.process, self.since)

    def name(self) -> str:
        """Return who it is, for messages."""
        moment = datetime.fromtimestamp(self.since, UTC)
        if self.is_this_process:
            return f"another run of this process since {moment:%Y-%m-%d %H:%M:%S} UTC"
        return f"process {self.process} of host {self.host} since {moment:%Y-%m-%d %H:%M:%S} UTC"


class ClosedError(ValueError):
    """A ledger was used that its own process has closed.

    Args:
        ledger: where the ledger is.
    """

    def __init__(self, ledger: str) -> None:
        super().__init__(f"{ledger} (the ledger) is closed")


class View(Protocol):
    """One state of a ledger: later commits do not change what it reads."""

    def get(self, key: Key) -> Document | None:
        """Return the document of a key, or None.

        Raises:
            DamagedError: it is not what was committed.
        """
        ...

    def scan(self, within: Range = ALL, reverse: bool = False) -> Iterator[Entry]:
        """Yield the entries of a range in order of key; who stops early has read no more than a few beyond.

        Args:
            within: the range.
            reverse: from the last to the first.

        Raises:
            DamagedError: one is not what was committed.
        """
        ...

    def keys(self, within: Range = ALL, reverse: bool = False) -> Iterator[Key]:
        """Yield the keys of a range in order; as `scan`, without reading and checking the documents."""
        ...


class LedgerReader(View, Protocol):
    """A ledger that is read, also while another process writes it; any thread may call it.

    `get` sees every commit that ended before it, or at most a second before it in another process. A scan sees one state.

    Every method raises an OSError (`StoreFailedError`) if the store did not answer after the usual retries.
    """

    def snapshot(self) -> AbstractContextManager[View]:
        """Give one state of the ledger for several reads, inside the `with` block.

        A reader of an object store copies all documents into memory for it.
        """
        ...

    def writer(self) -> Writer:
        """Return who opened the ledger for writing last."""
        ...

    def close(self) -> None:
        """Release what reading holds. A scan or snapshot in use is read to its end; further calls are a `ClosedError`.

        Closing again does nothing.
        """
        ...


class Ledger(LedgerReader, Protocol):
    """A ledger that is written. Its own reads see all its commits."""

    @property
    def has_failed(self) -> bool:
        """Whether the outcome of a commit is in doubt, so that no later one is possible."""
        return False

    def commit(
        self,
        puts: Mapping[Key, Document] | None = None,
        deletes: Iterable[Key | Range] = (),
        expect: Mapping[Key, Document | None] | None = None,
    ) -> None:
        """Change documents: all of the changes or none, durable on return. Any thread may call it; commits have an order.

        Without changes it makes sure that nobody has taken over.

        Args:
            puts: documents by key; a key that exists gets the new one.
            deletes: keys and ranges, deleted before `puts` are stored; those that do not exist are ignored.
            expect: what must be stored before: the document, or None for a key that must not exist.

        Raises:
            UnexpectedDocumentError: something else than `expect` is stored; nothing is changed.
            FencedError: another process, or another run of this one, has opened the ledger since; nothing is changed.
            StoreFailedError: the store failed. If the outcome is in doubt, every later commit fails as well: open the ledger
                anew to see which it was.
        """
        ...

    def close(self) -> None:
        """Release the ledger, also one that was fenced or has failed. Closing again does nothing."""
        ...


def other_layout(address: str, found: int, read: int) -> CheckpointError:
    """Return the error of a ledger of another layout.

    Args:
        address: where it is.
        found, read: its layout, and the one that this version of Penstock reads.
    """
    return CheckpointError(
        f"{address} (the ledger) has layout {found}; this version of Penstock reads layout {read}. Use the version of Penstock "
        "that wrote it, or start with a new checkpoint and a new output folder"
    )
