"""Files on their way: what a task staged, and what a manifest lists."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from penstock.spark.storage.files import checksum_of, sync_file, write_bytes


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file a task wrote into the staging folder.

    Attributes:
        kind: `matches`, `quarantine`, one of the log, or an operator and a window view.
        path: where it lies.
        rows: rows in it.
        pairs: (tuple, view) pairs in it; 0 but for matches.
        size: bytes.
        crc: CRC-32 of its content.
    """

    kind: str
    path: str
    rows: int
    pairs: int
    size: int
    crc: int


def staged_file(kind: str, path: Path, rows: int, pairs: int = 0) -> StagedFile:
    """A file that is written, durable on return but for its name."""
    sync_file(path)
    return StagedFile(kind, str(path), rows, pairs, path.stat().st_size, checksum_of(path))


def stage_content(kind: str, path: Path, rows: int, content: memoryview) -> StagedFile:
    """Writes a file, durable on return but for its name."""
    write_bytes(path, content)
    return StagedFile(kind, str(path), rows, 0, len(content), zlib.crc32(content))


class Staged(Protocol):
    """Files a task staged, and what names them for good.

    Attributes:
        job, partition: unique within the batch, and the same when it is repeated.
        files: one a kind, of tuples for readers of the log as many as there are.
    """

    @property
    def job(self) -> int: ...
    @property
    def partition(self) -> int: ...
    @property
    def files(self) -> Sequence[StagedFile]: ...


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file of the results folder, as a manifest lists it.

    Attributes:
        kind: `matches`, `quarantine`, one of the log, or an operator and a window view.
        name: file name inside the folder of its kind.
        rows, pairs, size: rows, (tuple, view) pairs, bytes.
        crc: CRC-32 of its content.
    """

    kind: str
    name: str
    rows: int
    pairs: int
    size: int
    crc: int
