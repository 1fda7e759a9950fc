"""Spark's own checkpoint files: Hadoop leaves the checksums of each in a hidden file beside it; batches have no gap."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import DamagedError
from penstock.spark.storage.spark_files import numbered
from penstock.spark.storage.store_paths import StorePath

#: of a file of checksums: what it begins with, and how many bytes each checksum is of
_HEAD = struct.Struct(">4sI")
_MAGIC = b"crc\x00"
#: so many of the newest batches Spark keeps, and both files of each
_RETAINED = 100
_KIND = "of Spark's checkpoint"


def summed_files(folder: StorePath) -> Iterator[Path]:
    """The files below a folder that have checksums, those that are gone among them; in an object store none has."""
    if not isinstance(folder, Path):
        return
    for beside in sorted(folder.rglob(".*.crc")):
        yield beside.with_name(beside.name[1:].removesuffix(".crc"))


def missing_batches(folder: StorePath) -> Iterator[StorePath]:
    """The offsets and commits of batches that Spark has committed and not removed since, which are gone.

    Args:
        folder: Spark's checkpoint of one query.
    """
    batches = {log: set(numbered(folder / log, "")) for log in ("offsets", "commits")}
    last = max(batches["commits"], default=-1)
    first = max(
        min((number for found in batches.values() for number in found), default=0), last + 1 - _RETAINED
    )
    for log, found in batches.items():
        for number in range(first, last + 1):
            if number not in found:
                yield folder / log / str(number)


def check_metadata(folder: StorePath) -> None:
    """Makes sure that the checkpoint of a query that has planned a batch has whole metadata: else Spark refuses to begin.

    Args:
        folder: Spark's checkpoint of one query.

    Raises:
        DamagedError: they are missing or damaged.
    """
    path = folder / "metadata"
    if not path.exists():
        if numbered(folder / "offsets", ""):
            raise DamagedError(str(path), f"({_KIND}) is missing")
        return
    if isinstance(path, Path) and path.with_name(f".{path.name}.crc").exists():
        check_summed(path)
    try:
        whole = isinstance(json.loads(path.read_bytes())["id"], str)
    except (ValueError, LookupError, TypeError):
        whole = False
    if not whole:
        raise DamagedError(str(path), f"({_KIND}) is damaged: it does not name the query")


def check_summed(path: Path) -> None:
    """Reads a file and its checksums.

    Raises:
        DamagedError: it is missing, or is not what Spark has written.
    """
    checksums = path.with_name(f".{path.name}.crc").read_bytes()
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DamagedError(str(path), f"({_KIND}) is missing") from None
    try:
        magic, step = _HEAD.unpack_from(checksums)
    except struct.error:
        magic, step = b"", 0
    if magic != _MAGIC or not step:
        raise DamagedError(str(path), f"({_KIND}) cannot be checked: its checksums are damaged")
    pieces = (content[start : start + step] for start in range(0, len(content), step))
    found = b"".join(struct.pack(">I", zlib.crc32(piece)) for piece in pieces)
    if found != checksums[_HEAD.size :]:
        raise DamagedError(str(path), f"({_KIND}) is damaged: its content does not match its checksums")
