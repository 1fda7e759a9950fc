"""Spark's own checkpoint on any file system: a `Path` where it is local, else an object of the class here, which reads alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Self

from penstock.stores.address import StoreAddress
from penstock.stores.durable import replace_bytes
from penstock.stores.files import Files

#: files that Spark has not given their names yet
_UNFINISHED = re.compile(r"\..*")


class ObjectPath:
    """A file or folder of Spark's checkpoint in an object store, with what `pathlib.Path` has for reading it.

    Each method but `/` and the names is one request. A folder exists as long as a file is in it. Files that Spark has not
    finished, whose names begin with a dot, are passed over.

    Args:
        files: the store.
        place: within it, without slashes at its ends.
    """

    def __init__(self, files: Files, place: str = "") -> None:
        self._files = files
        self._place = place

    def __str__(self) -> str:
        return self._files.address(self._place)

    def __truediv__(self, name: str) -> Self:
        return type(self)(self._files, f"{self._place}/{name}".lstrip("/"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def name(self) -> str:
        """The last part."""
        return self._place.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The last part without its ending."""
        return Path(self.name).stem

    def with_name(self, name: str) -> Self:
        """Return the path of another file in the same folder."""
        folder = self._place.rpartition("/")[0]
        return type(self)(self._files, f"{folder}/{name}".lstrip("/"))

    def read_bytes(self) -> bytes:
        """Return a file's content.

        Raises:
            FileNotFoundError: no such file.
            StoreFailedError: the store failed.
        """
        return self._files.get(self._place)

    def read_text(self) -> str:
        """Return a file's content as text, see `read_bytes`."""
        return self.read_bytes().decode()

    def exists(self) -> bool:
        """Return whether a file has this path, or is below it."""
        below = f"{self._place}/"
        return any(each == self._place or each.startswith(below) for each in self._names(self.with_name("")))

    def is_dir(self) -> bool:
        """Return whether a file is below this path."""
        return next(self._below(), None) is not None

    def iterdir(self) -> Iterator[Self]:
        """Yield what is in a folder, in order of name: files, and folders with files."""
        for name in dict.fromkeys(name.partition("/")[0] for name in self._below()):
            yield self / name

    def glob(self, pattern: str) -> Iterator[Self]:
        """Yield the files and folders below this one whose path from here on matches a pattern, part by part."""
        depth = pattern.count("/") + 1
        found = (name.split("/")[:depth] for name in self._below())
        for parts in dict.fromkeys(tuple(each) for each in found if len(each) == depth):
            if all(map(fnmatchcase, parts, pattern.split("/"))):
                yield self / "/".join(parts)

    def modified(self) -> float:
        """Return when a file was written, seconds since the epoch.

        Raises:
            FileNotFoundError: no such file.
        """
        for each in self._files.list(self.with_name("")._place):
            if each.name == self._place:
                return each.modified
        raise FileNotFoundError(str(self))

    def write_bytes(self, content: bytes) -> None:
        """Store a file, durable and whole on return."""
        self._files.put(self._place, content)

    def unlink(self, missing_ok: bool = True) -> None:  # noqa: ARG002 - a store does not tell
        """Delete a file; one that does not exist is ignored."""
        self._files.delete([self._place])

    def remove_below(self) -> None:
        """Delete all files in a folder."""
        self._files.delete([(self / name)._place for name in self._below()])

    def _below(self) -> Iterator[str]:
        begin = len(self._place) + 1 if self._place else 0
        return (name[begin:] for name in self._names(self) if name[:begin].rstrip("/") == self._place)

    def _names(self, folder: ObjectPath) -> Iterator[str]:
        """Names of the files below a folder, those that mark folders left out."""
        for each in self._files.list(folder._place.rstrip("/")):
            if each.size and not _UNFINISHED.fullmatch(each.name.rpartition("/")[2]):
                yield each.name


#: a folder or file of Spark's checkpoint
SparkPath = Path | ObjectPath


def spark_path(address: StoreAddress) -> SparkPath:
    """Return where Spark's files at an address are read."""
    return Path(address.path) if address.is_local else ObjectPath(address.files())


def modified_at(path: SparkPath) -> float:
    """Return when a file was written, seconds since the epoch.

    Raises:
        OSError: no such file.
    """
    return path.stat().st_mtime if isinstance(path, Path) else path.modified()


def sources_of(logs: SparkPath) -> list[SparkPath]:
    """Return the folders of a query's sources, in order of name.

    Args:
        logs: the folder `sources` of Spark's checkpoint.
    """
    found: list[SparkPath] = list(logs.glob("[0-9]*"))
    return sorted(found, key=str)


def replace_file(path: SparkPath, content: bytes) -> None:
    """Give a file another content in one step, durable on return; Spark's checksum of the old one is deleted before."""
    if isinstance(path, Path):
        _checksum_of(path).unlink(missing_ok=True)
        replace_bytes(path, content)
    else:
        path.write_bytes(content)


def remove_file(path: SparkPath) -> None:
    """Delete a file and Spark's checksum of it; it need not exist."""
    path.unlink(missing_ok=True)
    if isinstance(path, Path):
        _checksum_of(path).unlink(missing_ok=True)


def _checksum_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")
