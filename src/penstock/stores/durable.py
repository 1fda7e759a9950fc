"""Durable local files: synced content and names, atomic replace and put-if-absent."""

from __future__ import annotations

import os
import sys
import uuid
import zlib
from pathlib import Path

#: bytes that are in memory as a file's checksum is made
_SUMMED = 1 << 20
#: characters of a file's name in a hidden one: no file system takes more than 255 bytes
_SHOWN = 32


def sync_file(path: Path) -> None:
    """Make a file's content last through a power cut."""
    _sync(path)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder, and names that are gone, last through a power cut."""
    _sync(folder)


def make_folder(folder: Path) -> None:
    """Create a folder and those above it unless they exist, durable on return."""
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


def beside(path: Path) -> Path:
    """Return a fresh hidden path in the folder of a file, for what becomes that file."""
    return path.with_name(f".{path.name[:_SHOWN]}.{uuid.uuid4().hex}")


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file, durable on return but for its name."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _write_beside(path: Path, content: bytes) -> Path:
    make_folder(path.parent)
    written = beside(path)
    try:
        write_bytes(written, content)
    except OSError:
        written.unlink(missing_ok=True)
        raise
    return written


def replace_bytes(path: Path, content: bytes) -> None:
    """Write a file under its final name in one atomic step, durable on return."""
    written = _write_beside(path, content)
    try:
        written.replace(path)
    except OSError:
        written.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def put_bytes_if_absent(path: Path, content: bytes) -> bool:
    """Like `replace_bytes`, but leave an existing file alone and return False."""
    written = _write_beside(path, content)
    try:
        os.link(written, path)
    except FileExistsError:
        return False
    finally:
        written.unlink()
    sync_folder(path.parent)
    return True


def checksum_of(path: Path, size: int | None = None) -> int:
    """Return the CRC-32 of a file's content.

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
