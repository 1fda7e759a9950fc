"""Files in an object store: S3 and what is compatible with it, Google Cloud Storage, Azure, and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from obstore.exceptions import AlreadyExistsError
from obstore.store import ObjectStore

from penstock.stores.file_cache import FileCache
from penstock.stores.files import Content, Files, StoredFile, checked_name
from penstock.stores.object_failures import failures

if TYPE_CHECKING:
    from obstore import ObjectMeta

Item = TypeVar("Item")

#: requests that are under way at a time
_AT_A_TIME = 16
#: bytes that are read at a time as a copy is made
_READ_BYTES = 8 << 20
#: names that one request deletes at most: S3's limit
_DELETED = 1000


@dataclass(frozen=True, eq=False)
class ObjectFiles(Files):
    """Files in an object store, whole and durable once the store has acknowledged them.

    Args:
        store: the store, its prefix included.
        root: its address, such as `s3://bucket/prefix`.
        cache: where copies, and files to be put, are on this machine.
    """

    store: ObjectStore
    root: str
    cache: FileCache

    def put_all(self, contents: Mapping[str, Content]) -> None:
        for name in contents:
            checked_name(name)
        _each(lambda item: self._put(*item), list(contents.items()))

    def put_new(self, name: str, content: bytes) -> bool:
        with failures(self.address(name), "writing"):
            try:
                self.store.put(checked_name(name), content, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def staging(self, name: str) -> Path:
        checked_name(name)
        return self.cache.staging()

    def get(self, name: str) -> bytes:
        with failures(self.address(name), "reading"):
            return bytes(self.store.get(checked_name(name)).bytes())

    def stat(self, name: str) -> StoredFile:
        with failures(self.address(name), "reading"):
            return _stored(self.store.head(checked_name(name)))

    def open(self, name: str) -> AbstractContextManager[Path]:
        return self.cache.open(checked_name(name), lambda path: self._fetch(name, path))

    def delete(self, names: Iterable[str]) -> None:
        every = [checked_name(name) for name in names]
        for begin in range(0, len(every), _DELETED):
            portion = every[begin : begin + _DELETED]
            with failures(self.address(portion[0]), "deleting"):
                try:
                    self.store.delete(portion)
                except FileNotFoundError:
                    # some stores stop at a name that does not exist
                    _each(self._delete_one, portion)
        for name in every:
            self.cache.drop(name)

    def list(self, prefix: str = "") -> Iterator[StoredFile]:
        # stores list in order of name
        with failures(self.address(prefix), "listing"):
            for portion in self.store.list(prefix or None):
                yield from map(_stored, portion)

    def children(self, folder: str = "") -> tuple[Sequence[str], Sequence[StoredFile]]:
        with failures(self.address(folder), "listing"):
            found = self.store.list_with_delimiter(folder or None)
        return sorted(found["common_prefixes"]), sorted(map(_stored, found["objects"]))

    def sweep(self) -> None:
        self.cache.sweep()

    def address(self, name: str = "") -> str:
        return f"{self.root.rstrip('/')}/{name}" if name else self.root

    def _put(self, name: str, content: Content) -> None:
        with failures(self.address(name), "writing"):
            # obstore takes no memoryview
            self.store.put(name, bytes(content) if isinstance(content, memoryview) else content)
        self.cache.drop(name)
        if isinstance(content, Path):
            content.unlink()

    def _fetch(self, name: str, path: Path) -> None:
        with failures(self.address(name), "reading"):
            found = self.store.get(name)
            with path.open("wb") as file:
                for portion in found.stream(min_chunk_size=_READ_BYTES):
                    file.write(portion)

    def _delete_one(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.store.delete(name)


def _stored(found: ObjectMeta) -> StoredFile:
    return StoredFile(found["path"], found["size"], found["last_modified"].timestamp())


def _each(call: Callable[[Item], None], items: list[Item]) -> None:
    """Call something for each item, some at a time; fails with the first failure, after all have ended."""
    if len(items) == 1:
        call(items[0])
        return
    with ThreadPoolExecutor(_AT_A_TIME, "penstock-files") as beside:
        list(beside.map(call, items))
