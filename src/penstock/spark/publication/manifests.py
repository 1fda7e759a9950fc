"""Manifests: what readers of a results folder take for published, in its ledger.

A batch has a manifest of its own under its number until its files are merged; one stands for all batches whose files are. One commit
puts that in the place of those. A listed file that is missing or has another size is noticed by whoever asks where it is. A file that
was replaced is kept for a while, for readers that have found it by then (docs/decisions/0070).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from penstock.errors import DamagedError
from penstock.spark.publication.history import Stretch, added
from penstock.spark.publication.kinds import folder_of
from penstock.spark.storage.documents import read_json
from penstock.spark.storage.formats import MANIFEST, MERGED_MANIFEST
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.ledger_documents import StoredDocuments
from penstock.spark.storage.store_paths import StorePath, size_of

#: of a batch in its own manifest: its (tuple, view) pairs by definition of a view, see `counted_as`; merged batches have one sum
VIEW_PAIRS = "view_pairs"
#: how many rows of each kind have left by retention, of a batch or of all merged ones
REMOVED = "removed"
#: of a batch, when it was published; of merged ones, when the last batch of each listed file was
PUBLISHED = "published"
#: the manifest of all batches whose files are merged
MERGED = "merged"


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A published file.

    Attributes:
        kind: `matches`, `quarantine`, a kind of the log's, or an operator and a window view.
        name: file name inside the folder of its kind.
        first, last: the batches whose rows it holds.
        rows, pairs, size: rows, (tuple, view) pairs, bytes.
        crc: CRC-32 of its content.
        level: how often files were merged into it; 0: its batch is not merged yet.
    """

    kind: str
    name: str
    first: int
    last: int
    rows: int
    pairs: int
    size: int
    crc: int
    level: int = 0


@dataclass(frozen=True, slots=True)
class Merged:
    """What is known of the batches whose files are merged.

    Attributes:
        last: number of the last one; -1: none is.
        files: their files but for those of the log, in order of batch within a kind.
        totals: sums over all of them but `batches`, see `history.summed`.
        stretches: the same batches, see `history.lengthened`.
        batches: what the manifests said of the newest ones, which Spark may repeat.
        view_pairs: (tuple, view) pairs of all of them, by definition of a view.
        times: batches that files end with, ascending, each with the seconds since the epoch when it was published; earlier versions of
            Penstock did not keep them.
        removed: rows of them that have left by retention, by kind of file.
    """

    last: int = -1
    files: tuple[ListedFile, ...] = ()
    totals: Mapping[str, Any] = field(default_factory=dict)
    stretches: tuple[Stretch, ...] = ()
    batches: tuple[dict[str, Any], ...] = ()
    view_pairs: Mapping[str, int] = field(default_factory=dict)
    times: tuple[tuple[int, float], ...] = ()
    removed: Mapping[str, int] = field(default_factory=dict)

    def published_at(self, batch: int) -> float | None:
        """When a batch was published, seconds since the epoch, or the next one of which that is known; None: nothing is known."""
        place = bisect_left(self.times, (batch, 0.0))
        return self.times[place][1] if place < len(self.times) else None

    def document(self) -> dict[str, Any]:
        """As it lies on disk; `first`, `last` and `files` as in the manifest of a batch."""
        return {
            "first": 0,
            "last": self.last,
            "files": [_plain(file) for file in self.files],
            "totals": self.totals,
            "stretches": [_plain(stretch) for stretch in self.stretches],
            "batches": self.batches,
            VIEW_PAIRS: self.view_pairs,
            PUBLISHED: self.times,
            REMOVED: self.removed,
        }


@dataclass(frozen=True)
class PublishedBatches:
    """All that is published of one query.

    Attributes:
        merged: the batches whose files are merged.
        single: the manifests of the batches since: `files`, and `batches` with the figures of the one.
    """

    merged: Merged
    single: tuple[dict[str, Any], ...]

    @property
    def last(self) -> int:
        """Number of the last batch; -1: there is none."""
        return self.single[-1]["last"] if self.single else self.merged.last

    @cached_property
    def files(self) -> list[ListedFile]:
        """The files in order of batch within a kind."""
        found = list(self.merged.files)
        for document in self.single:
            found += files_of(document)
        return found

    @cached_property
    def batches(self) -> list[dict[str, Any]]:
        """What the manifests say of the newest batches, in order; of those before see `totals` and `stretches`."""
        return [*self.merged.batches, *(document["batches"][0] for document in self.single)]

    @property
    def totals(self) -> Mapping[str, Any]:
        """Sums over the batches that are not among `batches`; see `history.summed`."""
        return self.merged.totals

    @cached_property
    def stretches(self) -> list[Stretch]:
        """All batches in order, the newest one by one."""
        return [*self.merged.stretches, *map(Stretch.of, self.batches)]

    @cached_property
    def view_pairs(self) -> Mapping[str, int]:
        """(tuple, view) pairs of all batches, by definition of a view; batches of earlier versions have none."""
        return with_view_pairs(self.merged.view_pairs, self.single)

    @property
    def all_removed(self) -> Mapping[str, int]:
        """How many rows have left by retention, by kind."""
        return with_removed(self.merged.removed, self.single)

    def removed(self, kind: str) -> int:
        """How many rows of a kind have left by retention."""
        return self.all_removed.get(kind, 0)

    def paths(self, layout: Layout, name: str, kind: str) -> list[StorePath]:
        """The files of a kind, in order of batch.

        Raises:
            DamagedError: one is missing, or has another size than it was published with.
        """
        return [located(layout, name, file) for file in self.files if file.kind == kind]


def read_published(layout: Layout, name: str) -> PublishedBatches:
    """What is published of a query.

    Args:
        layout: the results folder.
        name: the query's name among the manifests.

    Raises:
        CheckpointError: the folder was written by another version.
        DamagedError: a manifest is missing or damaged.
    """
    return read_manifests(layout.manifests(name))


def read_manifests(documents: StoredDocuments) -> PublishedBatches:
    """Likewise, given the manifests of the query."""
    found = documents.all(MANIFEST.kind)
    merged = _merged(documents, found.pop(MERGED, None))
    single = tuple(MANIFEST.opened(document, documents[number]) for number, document in found.items())
    for number, document in enumerate(single, merged.last + 1):
        if document["first"] != number:
            raise DamagedError(str(documents[number]), f"({MANIFEST.kind}) is missing")
    return PublishedBatches(merged, single)


def read_merged(documents: StoredDocuments) -> Merged:
    """What is known of the batches whose files are merged.

    Args:
        documents: the manifests of a query.

    Raises:
        CheckpointError: the folder was written by another version.
        DamagedError: it is damaged.
    """
    return _merged(documents, read_json(documents[MERGED], MERGED_MANIFEST.kind))


def _merged(documents: StoredDocuments, found: Mapping[str, Any] | None) -> Merged:
    if found is None:
        return Merged()
    document = MERGED_MANIFEST.opened(found, documents[MERGED])
    try:
        return Merged(
            document["last"],
            tuple(ListedFile(**file) for file in document["files"]),
            document["totals"],
            tuple(Stretch(**stretch) for stretch in document["stretches"]),
            tuple(document["batches"]),
            document.get(VIEW_PAIRS, {}),
            tuple((batch, time) for batch, time in document.get(PUBLISHED, ())),
            document.get(REMOVED, {}),
        )
    except TypeError as error:
        raise DamagedError(str(documents[MERGED]), f"({MERGED_MANIFEST.kind}) is damaged: {error}") from error


def with_view_pairs(known: Mapping[str, int], documents: Iterable[Mapping[str, Any]]) -> Mapping[str, int]:
    """Add the (tuple, view) pairs of batches, by their manifests, to those of the batches before."""
    total = dict(known)
    for document in documents:
        for view, pairs in document["batches"][0].get(VIEW_PAIRS, {}).items():
            total[view] = total.get(view, 0) + pairs
    return total


def with_times(
    known: Iterable[tuple[int, float]], documents: Iterable[Mapping[str, Any]], listed: Iterable[ListedFile]
) -> tuple[tuple[int, float], ...]:
    """When the last batch of each listed file was published: see `Merged.times`, and the manifests of later batches."""
    times = dict(known)
    times.update((each["last"], each[PUBLISHED]) for each in documents if PUBLISHED in each)
    ends = {file.last for file in listed}
    return tuple((batch, time) for batch, time in times.items() if batch in ends)


def with_removed(known: Mapping[str, int], documents: Iterable[Mapping[str, Any]]) -> Mapping[str, int]:
    """Add the rows of batches that have left by retention, by their manifests, to those of the batches before."""
    total = known
    for document in documents:
        total = added(total, removed_of(document))
    return total


def files_of(document: Mapping[str, Any]) -> list[ListedFile]:
    """The files of a batch, by its manifest."""
    batch = document["first"]
    return [ListedFile(**file, first=batch, last=batch) for file in document["files"]]


def removed_of(document: Mapping[str, Any]) -> Mapping[str, int]:
    """How many rows of a batch have left by retention, by kind of file, by its manifest."""
    found: Mapping[str, int] = document.get(REMOVED, {})
    return found


def located(layout: Layout, name: str, file: ListedFile) -> StorePath:
    """Where a published file of a query lies.

    Args:
        layout: the results folder.
        name: the query's name among the manifests.
        file: as they list it.

    Raises:
        DamagedError: it is missing, or has another size than it was published with.
    """
    path = folder_of(layout, name, file.kind) / file.name
    try:
        size = size_of(path)
    except FileNotFoundError:
        raise DamagedError(
            str(path), f"is missing: the manifests in {layout.manifests(name)} list it"
        ) from None
    if size != file.size:
        raise DamagedError(
            str(path), f"is damaged: it has {size:,} bytes, and {file.size:,} when it was published"
        )
    return path


def published_files(layout: Layout, name: str, kind: str = "matches") -> list[tuple[StorePath, int]]:
    """The files of a kind in order of batch, each with its number of rows; raises what `located` raises."""
    listed = [file for file in read_published(layout, name).files if file.kind == kind]
    return [(located(layout, name, file), file.rows) for file in listed]


def published_paths(layout: Layout, name: str, kind: str = "matches") -> Iterator[StorePath]:
    """The files a reader that follows manifests reads, in order of batch; raises what `located` raises."""
    yield from read_published(layout, name).paths(layout, name, kind)


def _plain(record: Any) -> dict[str, Any]:
    return {each.name: getattr(record, each.name) for each in fields(record)}
