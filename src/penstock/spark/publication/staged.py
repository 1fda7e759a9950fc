"""Files of a batch: written by tasks under their final names, listed by the batch's manifest.

A name begins with the numbers of batch, job and partition, so names have this order. It ends in digits that no other attempt has:
a repeated task, or one that was taken for dead, cannot change a file that may be published.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from penstock.spark.publication.kinds import ending_of, name_of, store_of
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import ObjectPath, StorePath, remove_folder
from penstock.stores.durable import checksum_of
from penstock.stores.files import Files

#: threads that fetch objects
_FETCHERS = 8


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is not stored yet.

    Attributes:
        kind: `matches`, `quarantine`, one of the log, or an operator and a window view.
        content: its bytes, or a file; the store takes a local one away.
        rows: rows in it.
        pairs: (tuple, view) pairs in it; 0 but for matches.
    """

    kind: str
    content: StorePath | memoryview
    rows: int
    pairs: int = 0

    def left(self, folder: StorePath) -> WrittenFile:
        """Leave the content in a folder, where later tasks read it; returns the file there."""
        if not isinstance(self.content, memoryview):
            return self
        path = folder / f"{uuid.uuid4().hex}.parquet"
        if isinstance(path, Path):
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(self.content))
        return replace(self, content=path)

    @property
    def path(self) -> StorePath:
        """Where it lies."""
        assert not isinstance(self.content, memoryview), "it is written to a file"
        return self.content


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of a batch as the manifest lists it, durable under its final name.

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


class Staged(Protocol):
    """Files that a task has stored, and the order in which the manifest lists them.

    Attributes:
        job, partition: of the task.
        files: one a kind, of tuples for readers of the log as many as it has.
    """

    @property
    def job(self) -> int: ...
    @property
    def partition(self) -> int: ...
    @property
    def files(self) -> Sequence[StagedFile]: ...


def files_of_reports(reports: Iterable[Staged]) -> list[StagedFile]:
    """The files of a batch in the order in which its manifest lists them."""
    ordered = sorted(reports, key=lambda each: (each.job, each.partition))
    return [file for report in ordered for file in report.files]


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """Stores the files of one batch of a query; tasks receive it in their arguments.

    Attributes:
        layout: output and checkpoint folders.
        query: the query's name among the manifests.
        owner: ends the names, where other queries may publish into the same folders.
        stem: begins the names: the number of the batch.
        scratch: folder for what tasks leave for later tasks of the batch.
        local: likewise for those of the same worker.
    """

    layout: Layout
    query: str
    owner: str | None
    stem: str
    scratch: StorePath
    local: Path

    @classmethod
    def of(cls, layout: Layout, query: str, owner: str | None, batch: int) -> BatchFiles:
        """The files of a batch by its number."""
        return cls(layout, query, owner, f"{batch:010d}", *layout.staging(query, batch))

    def clean(self) -> None:
        """Delete what tasks have left for later ones."""
        for folder in (self.scratch, self.local):
            remove_folder(folder)

    def staging(self, kind: str) -> Path:
        """Return a fresh local path where a file of a kind may be written, see `Files.staging`."""
        name = f"{self.stem}{ending_of(kind, self.owner)}"
        return store_of(self.layout, kind).staging(name_of(self.layout, self.query, kind, name))

    def put(self, job: int, partition: int, written: Iterable[WrittenFile]) -> list[StagedFile]:
        """Store files of a task, see `put_all`."""
        return self.put_all(partition, [(job, each) for each in written])

    def put_all(self, partition: int, written: Iterable[tuple[int, WrittenFile]]) -> list[StagedFile]:
        """Store files, durable on return.

        Args:
            partition: of the task.
            written: the job of each, and the file.

        Returns:
            They as the manifest lists them, in the same order.

        Raises:
            OSError: the store failed.
        """
        staged: list[StagedFile] = []
        contents: dict[Files, dict[str, Path | memoryview]] = {}
        written = list(written)
        for (job, each), content in zip(written, _contents([each for _, each in written]), strict=True):
            kind = each.kind
            name = f"{self.stem}-{job}-{partition:05d}-{uuid.uuid4().hex[:8]}{ending_of(kind, self.owner)}"
            if isinstance(content, Path):
                size, crc = content.stat().st_size, checksum_of(content)
            else:
                size, crc = len(content), zlib.crc32(content)
            staged.append(StagedFile(kind, name, each.rows, each.pairs, size, crc))
            own = contents.setdefault(store_of(self.layout, kind), {})
            own[name_of(self.layout, self.query, kind, name)] = content
        for store, own in contents.items():
            store.put_all(own)
        return staged

    def discard(self, staged: Iterable[StagedFile]) -> None:
        """Delete files of attempts that are not published."""
        for each in staged:
            store_of(self.layout, each.kind).delete([name_of(self.layout, self.query, each.kind, each.name)])


def _contents(written: Sequence[WrittenFile]) -> list[Path | memoryview]:
    """The contents of files; objects are fetched several at a time, for each waits for the store."""

    def content(each: WrittenFile) -> Path | memoryview:
        return memoryview(each.content.read_bytes()) if isinstance(each.content, ObjectPath) else each.content

    if sum(isinstance(each.content, ObjectPath) for each in written) < 2:
        return [content(each) for each in written]
    with ThreadPoolExecutor(_FETCHERS, "penstock-fetch") as threads:
        return list(threads.map(content, written))
