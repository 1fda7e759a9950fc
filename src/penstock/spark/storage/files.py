"""Files of a run: durable local ones, and the numbered files and lines of Spark's checkpoint on any file system."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from penstock.spark.storage.store_paths import StorePath
from penstock.stores.durable import (
    checksum_of,
    make_folder,
    put_bytes_if_absent,
    replace_bytes,
    sync_file,
    sync_folder,
)

__all__ = [
    "checksum_of",
    "drop_unbegun",
    "last_lines",
    "make_folder",
    "numbered",
    "put_bytes_if_absent",
    "replace_bytes",
    "sync_file",
    "sync_folder",
]

#: bytes of a file's end looked at in one go
_LOOKED_AT = 1 << 16


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
