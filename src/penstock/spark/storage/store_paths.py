"""Files and folders of a run on any file system: a `Path` where it is local, else an `ObjectPath`, which reads alike."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Self

from penstock.stores.address import StoreAddress
from penstock.stores.durable import replace_bytes
from penstock.stores.files import Files, StoredFile
from penstock.stores.local_files import LocalFiles

#: in a part of a pattern: it is no name
_WILD = re.compile(r"[*?\[]")
#: one client of each address in a process, and one cache of copies
_stores: dict[tuple[str, tuple[tuple[str, str], ...]], Files] = {}
_guard = threading.Lock()


def _opened(root: StoreAddress) -> Files:
    # with renewed credentials it is another client
    key = str(root), tuple(sorted(root.options.items()))
    with _guard:
        if key not in _stores:
            _stores[key] = root.files()
        return _stores[key]


def _begin_anew() -> None:
    global _guard
    _guard = threading.Lock()
    _stores.clear()


os.register_at_fork(after_in_child=_begin_anew)


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """A file or folder in an object store, with what `pathlib.Path` has for reading it; it can be pickled.

    Each method but `/`, `glob` and the names is one request, or one for each thousand names. A folder exists as long as a file is in it. Files that are not
    finished, whose names begin with a dot, are passed over.

    Attributes:
        root: the store.
        place: within it, without slashes at its ends.
    """

    root: StoreAddress
    place: str = ""

    def __str__(self) -> str:
        return str(self.address)

    def __truediv__(self, name: str) -> Self:
        return type(self)(self.root, f"{self.place}/{name}".strip("/"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def address(self) -> StoreAddress:
        """Its address."""
        return self.root / self.place if self.place else self.root

    @property
    def files(self) -> Files:
        """The store."""
        return _opened(self.root)

    @property
    def parent(self) -> Self:
        """The folder that has it."""
        return type(self)(self.root, self.place.rpartition("/")[0])

    @property
    def name(self) -> str:
        """The last part."""
        return self.place.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The last part without its ending."""
        return Path(self.name).stem

    def with_name(self, name: str) -> Self:
        """Return the path of another file in the same folder."""
        return self.parent / name

    def read_bytes(self) -> bytes:
        """Return a file's content.

        Raises:
            FileNotFoundError: no such file.
            StoreFailedError: the store failed.
        """
        return self.files.get(self.place)

    def open(self) -> AbstractContextManager[Path]:
        """Give a local copy inside the `with` block, see `Files.open`."""
        return self.files.open(self.place)

    def read_text(self) -> str:
        """Return a file's content as text, see `read_bytes`."""
        return self.read_bytes().decode()

    def exists(self) -> bool:
        """Return whether a file has this path, or is below it."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Return whether a file has this path."""
        with suppress(FileNotFoundError):
            return bool(self.place) and self.size() >= 0
        return False

    def size(self) -> int:
        """Return the bytes of a file.

        Raises:
            FileNotFoundError: no such file.
        """
        return self.files.stat(self.place).size

    def is_dir(self) -> bool:
        """Return whether a file is below this path."""
        return next(self._below(), None) is not None

    def iterdir(self) -> Iterator[Self]:
        """Yield what is in a folder, in order of name: files, and folders with files."""
        yield from self.glob("*")

    def glob(self, pattern: str) -> Iterator[Self]:
        """Yield the files and folders below this one whose path from here on matches a pattern, part by part.

        Each folder that is looked into is one request.
        """
        part, _, rest = pattern.partition("/")
        if rest and not _WILD.search(part):
            yield from (self / part).glob(rest)
            return
        folders, files = self.files.children(self.place)
        found = {*folders, *(() if rest else _finished(files))}
        for name in sorted(each.rpartition("/")[2] for each in found):
            if fnmatchcase(name, part):
                place = self / name
                yield from place.glob(rest) if rest else (place,)

    def modified(self) -> float:
        """Return when a file was written, seconds since the epoch.

        Raises:
            FileNotFoundError: no such file.
        """
        return self.files.stat(self.place).modified

    def write_bytes(self, content: bytes) -> None:
        """Store a file, durable and whole on return."""
        self.files.put(self.place, content)

    def unlink(self, missing_ok: bool = True) -> None:  # noqa: ARG002 - a store does not tell
        """Delete a file; one that does not exist is ignored."""
        self.files.delete([self.place])

    def remove_below(self) -> None:
        """Delete all files in a folder."""
        self.files.delete([(self / name).place for name in self._below()])

    def _below(self) -> Iterator[str]:
        """Names of the files below this folder, seen from here."""
        begin = len(self.place) + 1 if self.place else 0
        found = _finished(self.files.list(self.place))
        return (name[begin:] for name in found if name[:begin].rstrip("/") == self.place)


def _finished(files: Iterable[StoredFile]) -> Iterator[str]:
    """Names of those that are finished; empty ones mark folders."""
    return (each.name for each in files if each.size and not each.name.rpartition("/")[2].startswith("."))


#: a file or folder of a run
StorePath = Path | ObjectPath


def store_path(text: str | StorePath) -> StorePath:
    """Return the place that a user has named.

    Args:
        text: a path, or the address of an object store, see `StoreAddress.of`.

    Raises:
        InputError: it is neither.
    """
    if isinstance(text, ObjectPath):
        return text
    address = StoreAddress.of(str(text))
    return Path(address.path).resolve() if address.is_local else ObjectPath(address.pinned())


def address_of(place: StorePath) -> StoreAddress:
    """Return the address of a place."""
    return place.address if isinstance(place, ObjectPath) else StoreAddress("file", "", str(place.absolute()))


def name_below(folder: StorePath, place: StorePath) -> str:
    """Return the name of a file in the store of a folder.

    Raises:
        ValueError: it is not below that.
    """
    if isinstance(place, Path) and isinstance(folder, Path):
        return place.relative_to(folder).as_posix()
    name = str(place).removeprefix(f"{folder}/")
    if name == str(place):
        raise ValueError(f"{place} is not below {folder}")
    return name


def files_in(folder: StorePath) -> Files:
    """Return the files of a folder."""
    return _opened(folder.address) if isinstance(folder, ObjectPath) else LocalFiles(folder)


def modified_at(path: StorePath) -> float:
    """Return when a file was written, seconds since the epoch.

    Raises:
        OSError: no such file.
    """
    return path.stat().st_mtime if isinstance(path, Path) else path.modified()


def by_time(folder: StorePath, pattern: str) -> list[StorePath]:
    """Return the files of a folder that match a pattern, the newest first; those that are deleted meanwhile are left out."""
    found: list[tuple[float, StorePath]] = []
    for each in folder.glob(pattern):
        with suppress(FileNotFoundError):
            found.append((modified_at(each), each))
    return [path for _, path in sorted(found, key=lambda each: each[0], reverse=True)]


def remove_folder(folder: StorePath) -> None:
    """Delete a folder with all that is in it; what cannot be deleted remains."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(OSError):
        folder.remove_below()


def remove_empty(folder: StorePath) -> bool:
    """Remove a folder if nothing is in it, and return whether it does not exist any more."""
    if isinstance(folder, Path):
        with suppress(OSError):
            folder.rmdir()
        return not folder.exists()
    return not folder.is_dir()


def replace_content(place: StorePath, content: bytes) -> None:
    """Give a file a content in one step, durable on return."""
    if isinstance(place, ObjectPath):
        place.write_bytes(content)
    else:
        replace_bytes(place, content)


def put_written(folder: StorePath, name: str, write: Callable[[Path], None]) -> None:
    """Store a file, durable and whole on return.

    Args:
        folder: whose.
        name: of the file in the folder.
        write: writes the content to a local path.

    Raises:
        OSError: the store failed; whatever `write` raises. The file is not stored then.
    """
    files = files_in(folder)
    path = files.staging(name)
    try:
        write(path)
        files.put(name, path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def opened(place: StorePath) -> AbstractContextManager[Path]:
    """Give a local path of a file inside the `with` block: the file itself, or a copy.

    What is opened or mapped inside the block remains readable.

    Raises:
        FileNotFoundError: no such file in the object store; a local one is found out by who opens it.
    """
    return place.open() if isinstance(place, ObjectPath) else nullcontext(place)


def size_of(place: StorePath) -> int:
    """Return the bytes of a file.

    Raises:
        FileNotFoundError: no such file.
    """
    return place.size() if isinstance(place, ObjectPath) else place.stat().st_size
