"""Files in a folder of this machine, or in one that every machine sees under the same name."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.stores.durable import (
    beside,
    make_folder,
    put_bytes_if_absent,
    sync_file,
    sync_folder,
    write_bytes,
)
from penstock.stores.files import Content, Files, StoredFile, checked_name

#: threads that store several files
_WRITERS = 8
#: how the hidden names of `durable.beside` look, and those that SQLite adds to them
_BESIDE = re.compile(r"\..+\.[0-9a-f]{32}(-journal|-wal|-shm)?")


@dataclass(frozen=True)
class LocalFiles(Files):
    """Files in a folder, each synced with its name.

    Args:
        folder: created with the first file.
    """

    folder: Path

    def put_all(self, contents: Mapping[str, Content]) -> None:
        targets = {self._path(name): content for name, content in contents.items()}
        folders = {target.parent for target in targets}
        for folder in folders:
            make_folder(folder)
        if len(targets) <= 1:
            for target, content in targets.items():
                _put(target, content)
                sync_folder(target.parent)
            return
        # each waits for the disk, which syncs what is asked for at once together
        with ThreadPoolExecutor(min(_WRITERS, len(targets)), "penstock-files") as threads:
            for _ in threads.map(_put, targets.keys(), targets.values()):
                pass
            for _ in threads.map(sync_folder, folders):
                pass

    def put_new(self, name: str, content: bytes) -> bool:
        path = self._path(name)
        make_folder(path.parent)
        return put_bytes_if_absent(path, content)

    def staging(self, name: str) -> Path:
        path = self._path(name)
        make_folder(path.parent)
        return beside(path)

    def get(self, name: str) -> bytes:
        return self._path(name).read_bytes()

    def stat(self, name: str) -> StoredFile:
        return self._stored(self._path(name))

    @contextmanager
    def open(self, name: str) -> Iterator[Path]:
        path = self._path(name)
        path.stat()
        yield path

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._path(name).unlink(missing_ok=True)

    def list(self, prefix: str = "") -> Iterator[StoredFile]:
        yield from self._whole(self._walk(prefix))

    def children(self, folder: str = "") -> tuple[Sequence[str], Sequence[StoredFile]]:
        place = self.folder / folder
        inside = list(place.iterdir()) if place.is_dir() else []
        folders = {path for path in inside if path.is_dir()}
        names = sorted(path.relative_to(self.folder).as_posix() for path in folders)
        return names, self._whole(path for path in inside if path not in folders)

    def sweep(self) -> None:
        for path in self._walk(""):
            if _BESIDE.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def address(self, name: str = "") -> str:
        return str(self.folder / name)

    def _whole(self, paths: Iterable[Path]) -> Sequence[StoredFile]:
        """Those files that are whole and still exist, in order of name."""
        found = []
        for path in paths:
            if not _BESIDE.fullmatch(path.name):
                with suppress(FileNotFoundError):
                    found.append(self._stored(path))
        return sorted(found)

    def _stored(self, path: Path) -> StoredFile:
        stat = path.stat()
        return StoredFile(path.relative_to(self.folder).as_posix(), stat.st_size, stat.st_mtime)

    def _path(self, name: str) -> Path:
        return self.folder / checked_name(name)

    def _walk(self, prefix: str) -> Iterator[Path]:
        for folder, _, names in os.walk(self.folder / prefix):
            for name in names:
                yield Path(folder) / name


def _put(target: Path, content: Content) -> None:
    """Give a content its final name in one step; the content is durable before, the name is not yet."""
    staged = content if isinstance(content, Path) else beside(target)
    try:
        if not isinstance(content, Path):
            write_bytes(staged, content)
        else:
            sync_file(staged)
        try:
            staged.replace(target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _put_copy(target, staged)
    except OSError:
        if not isinstance(content, Path):
            staged.unlink(missing_ok=True)
        raise


def _put_copy(target: Path, source: Path) -> None:
    """Move a file from another file system."""
    copied = beside(target)
    try:
        shutil.copyfile(source, copied)
        sync_file(copied)
        copied.replace(target)
    finally:
        copied.unlink(missing_ok=True)
    source.unlink()
