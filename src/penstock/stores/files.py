"""The store of files: immutable contents by name, on a local folder or an object store.

A file is written once and read often. What exists is recorded in the ledger, so nothing here is listed to be followed, and
nothing is renamed. A task that is repeated may put a name again: readers find the whole old or the whole new content.
The shape follows Materialize's `Blob` (`src/persist/src/location.rs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

#: no file system has the one, and some object stores take the other for a slash
_FORBIDDEN = frozenset("\0\\")
#: what a file is made of; a path is that of a local file, which the store takes away
Content = bytes | memoryview | Path


class StoredFile(NamedTuple):
    """A file as the store lists it.

    Attributes:
        name: its name.
        size: bytes.
        modified: when it was put, seconds since the epoch by the store's clock.
    """

    name: str
    size: int
    modified: float


class Files(Protocol):
    """Immutable contents by name.

    Names are relative paths such as `matches/flights/0-1.parquet`. Threads and processes may share a store, and all methods
    may be called from any of them. A store can be pickled: tasks receive it in their arguments.

    Every method raises an OSError if the store failed: that of the system for a local file, else `StoreFailedError` after
    the usual retries. It raises `ConnectionFailedError` where a retry cannot help: no bucket, wrong credentials, no permission.
    """

    def put(self, name: str, content: Content) -> None:
        """Store one file, see `put_all`."""
        self.put_all({name: content})

    def put_all(self, contents: Mapping[str, Content]) -> None:
        """Store files, each durable and whole on return; after a failure any of them may be stored.

        Args:
            contents: the files by name. A local file given as a path no longer exists afterwards: the store moves it where
                it can (see `staging`). A name that exists gets the new content in one atomic step.
        """
        ...

    def put_new(self, name: str, content: bytes) -> bool:
        """Store a file unless it exists; returns False where it does. Of several at one moment one succeeds."""
        ...

    def staging(self, name: str) -> Path:
        """Return a fresh local path where the content of a file may be written, to be put from there without a copy.

        Args:
            name: the name that the file will have.
        """
        ...

    def get(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: no such file.
        """
        ...

    def stat(self, name: str) -> StoredFile:
        """Return what the store says of a file.

        Raises:
            FileNotFoundError: no such file.
        """
        ...

    def open(self, name: str) -> AbstractContextManager[Path]:
        """Give a local path of a file, to be opened or mapped inside the `with` block.

        The path is that of the file itself where it is local, else of a copy on this machine's disk. The copy may be
        deleted after the block; what was opened or mapped inside it remains readable.

        Raises:
            FileNotFoundError: no such file.
        """
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; names that do not exist are ignored."""
        ...

    def list(self, prefix: str = "") -> Iterator[StoredFile]:
        """List files for a repair or a check, in order of name; who stops early has asked for a few more.

        Args:
            prefix: a folder such as `matches/flights`; empty: all files.
        """
        ...

    def children(self, folder: str = "") -> tuple[Sequence[str], Sequence[StoredFile]]:
        """List one level: the names of the folders that are directly in a folder, and the files, in order of name.

        Args:
            folder: such as `matches/flights`; empty: the store. One that does not exist is empty.
        """
        ...

    def sweep(self) -> None:
        """Delete what puts that were killed have left behind. No put of another process may be under way."""
        ...

    def address(self, name: str = "") -> str:
        """Return the full address of a file, or of the store, for messages and other readers."""
        ...


def checked_name(name: str) -> str:
    """Return a name of a file if it is one.

    Raises:
        ValueError: it is not a relative path, or a part of it is empty or begins with a dot.
    """
    if (
        not name
        or any(not part or part.startswith(".") for part in name.split("/"))
        or _FORBIDDEN & set(name)
    ):
        raise ValueError(
            f"'{name}' is not the name of a file: no part may be empty, begin with a dot or have a backslash"
        )
    return name
