"""Spark's own checkpoint files: Hadoop leaves the checksums of each in a hidden file beside it."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import DamagedError

#: of a file of checksums: what it begins with, and how many bytes each checksum is of
_HEAD = struct.Struct(">4sI")
_MAGIC = b"crc\x00"
_KIND = "of Spark's checkpoint"


def summed_files(folder: Path) -> Iterator[Path]:
    """The files below a folder that have checksums, those that are gone among them."""
    for beside in sorted(folder.rglob(".*.crc")):
        yield beside.with_name(beside.name[1:].removesuffix(".crc"))


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
