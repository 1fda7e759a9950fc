"""Durable files: synced content and names, atomic replace, put-if-absent, and names that Spark readers skip.

The output and checkpoint folders are paths that the driver and every worker see under the same
name (a local disk for `local[*]`, a shared file system on a cluster).
"""

from __future__ import annotations

import os
import shutil
import sys
import uuid
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

#: bytes of a file's end looked at in one go
_LOOKED_AT = 1 << 16
#: bytes that are in memory as a file's checksum is made
_SUMMED = 1 << 20


def sync_file(path: Path) -> None:
    """Makes a file's content last through a power cut."""
    _sync(path)


def sync_folder(folder: Path) -> None:
    """Makes new names in a folder, and names that are gone, last through a power cut."""
    _sync(folder)


def make_folder(folder: Path) -> None:
    """Creates a folder and those above it unless they are there, durable on return."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: bytes | memoryview, *, is_synced: bool = True) -> None:
    """Writes a file, durable on return unless it is not synced, but for its name."""
    with path.open("wb") as file:
        file.write(content)
        if is_synced:
            file.flush()
            os.fsync(file.fileno())


def _write_beside(path: Path, content: bytes, *, is_synced: bool = True) -> Path:
    make_folder(path.parent)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        write_bytes(beside, content, is_synced=is_synced)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    return beside


def replace_bytes(path: Path, content: bytes, *, is_synced: bool = True) -> None:
    """Writes a file under its final name in one atomic step, durable on return unless it is not synced."""
    beside = _write_beside(path, content, is_synced=is_synced)
    try:
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    if is_synced:
        sync_folder(path.parent)


def put_bytes_if_absent(path: Path, content: bytes) -> bool:
    """Like `replace_bytes`, but leaves an existing file alone and returns False."""
    beside = _write_beside(path, content)
    try:
        os.link(beside, path)
    except FileExistsError:
        return False
    finally:
        beside.unlink()
    sync_folder(path.parent)
    return True


def second_name(source: Path, target: Path) -> None:
    """Gives a file a second name, in one step; a copy where the file system has no such thing, or it is another one."""
    try:
        os.link(source, target)
    except OSError:
        beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            _link_or_copy(source, beside)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        sync_file(target)


def checksum_of(path: Path, size: int | None = None) -> int:
    """The CRC-32 of a file's content.

    Args:
        path: the file.
        size: of its first bytes only; None: of all.
    """
    found, left = 0, sys.maxsize if size is None else size
    with path.open("rb") as file:
        while left and (content := file.read(min(left, _SUMMED))):
            found = zlib.crc32(content, found)
            left -= len(content)
    return found


def last_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, the last one first; no more of it is read than is asked for."""
    with path.open("rb") as file:
        behind = file.seek(0, os.SEEK_END)
        torn = b""
        while behind:
            begin = max(0, behind - _LOOKED_AT)
            file.seek(begin)
            first, *lines = (file.read(behind - begin) + torn).splitlines()
            yield from reversed(lines)
            behind, torn = begin, first
        if torn:
            yield torn


def numbered(folder: Path, suffix: str = ".json") -> list[int]:
    """Numbers of the files `<number><suffix>` in a folder, ascending."""
    if not folder.is_dir():
        return []
    stems = (entry.name.removesuffix(suffix) for entry in folder.iterdir() if entry.name.endswith(suffix))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def newest_first(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder that match a pattern, by the time they were written; those that go meanwhile are left out."""
    found = []
    for each in folder.glob(pattern):
        with suppress(FileNotFoundError):
            found.append((each.stat().st_mtime_ns, each))
    return [path for _, path in sorted(found, reverse=True)]


def drop_unbegun(checkpoint: Path) -> None:
    """Empties the checkpoint of a streaming query that has planned no batch yet; where its sources begin, stays.

    A process killed before its first batch leaves unfinished files there, and Spark refuses to begin among them.
    """
    if not any(checkpoint.glob("offsets/[0-9]*")):
        for name in ("offsets", "commits", "state"):
            shutil.rmtree(checkpoint / name, ignore_errors=True)
