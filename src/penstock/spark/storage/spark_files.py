"""The files of Spark's own checkpoint, in a local folder or in an object store: numbered ones, and lines."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from penstock.spark.storage.store_paths import StorePath, replace_content

#: bytes of a file's end looked at in one go
_LOOKED_AT = 1 << 16


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
    replace_content(path, content)


def remove_file(path: StorePath) -> None:
    """Delete a file and Spark's checksum of it; it need not exist."""
    path.unlink(missing_ok=True)
    if isinstance(path, Path):
        _checksum_of(path).unlink(missing_ok=True)


def _checksum_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


def last_lines(path: StorePath) -> Iterator[bytes]:
    """The lines of a file, the last one first; of a local one no more is read than is asked for."""
    if not isinstance(path, Path):
        yield from reversed(path.read_bytes().splitlines())
        return
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


def numbered(folder: StorePath, suffix: str = ".json") -> list[int]:
    """Numbers of the files `<number><suffix>` in a folder, ascending."""
    if not folder.is_dir():
        return []
    stems = (entry.name.removesuffix(suffix) for entry in folder.iterdir() if entry.name.endswith(suffix))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def drop_unbegun(checkpoint: StorePath) -> None:
    """Empties the checkpoint of a streaming query that has planned no batch yet; where its sources begin, stays.

    A process killed before its first batch leaves unfinished files there, and Spark refuses to begin among them.
    """
    if not any(checkpoint.glob("offsets/[0-9]*")):
        for name in ("offsets", "commits", "state"):
            folder = checkpoint / name
            if isinstance(folder, Path):
                shutil.rmtree(folder, ignore_errors=True)
            else:
                folder.remove_below()
