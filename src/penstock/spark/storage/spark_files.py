"""Spark's own checkpoint, in a local folder or in an object store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from penstock.spark.storage.files import last_lines as last_lines_of
from penstock.spark.storage.files import numbered, replace_bytes
from penstock.spark.storage.store_paths import StorePath


def last_lines(path: StorePath) -> Iterator[bytes]:
    """Yield the lines of a file, the last one first; of a local one no more is read than is asked for."""
    if isinstance(path, Path):
        return last_lines_of(path)
    return reversed(path.read_bytes().splitlines())


def numbered_files(folder: StorePath) -> list[int]:
    """Return the numbers of the files in a folder whose names are numbers, ascending."""
    if isinstance(folder, Path):
        return numbered(folder, "")
    return sorted(int(each.name) for each in folder.iterdir() if each.name.isdigit())


def sources_of(logs: StorePath) -> list[StorePath]:
    """Return the folders of a query's sources, in order of name.

    Args:
        logs: the folder `sources` of Spark's checkpoint.
    """
    found: list[StorePath] = list(logs.glob("[0-9]*"))
    return sorted(found, key=str)


def replace_file(path: StorePath, content: bytes) -> None:
    """Give a file another content in one step, durable on return; Spark's checksum of the old one is deleted before."""
    if isinstance(path, Path):
        _checksum_of(path).unlink(missing_ok=True)
        replace_bytes(path, content)
    else:
        path.write_bytes(content)


def remove_file(path: StorePath) -> None:
    """Delete a file and Spark's checksum of it; it need not exist."""
    path.unlink(missing_ok=True)
    if isinstance(path, Path):
        _checksum_of(path).unlink(missing_ok=True)


def drop_unbegun(checkpoint: StorePath) -> None:
    """Empty the checkpoint of a streaming query that has planned no batch yet; where its sources begin, stays.

    A process killed before its first batch leaves unfinished files there, and Spark refuses to begin among them.
    """
    if any(checkpoint.glob("offsets/[0-9]*")):
        return
    for name in ("offsets", "commits", "state"):
        folder = checkpoint / name
        if isinstance(folder, Path):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            folder.remove_below()


def _checksum_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")
