"""Published rows from a place on: the files that hold them, whatever was merged since.

The files of one query and kind are a feed: rows in the order of their batches. Merging keeps rows and order, so a place in a feed is a
number of rows (docs/decisions/0079).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from penstock.errors import CheckpointError, DamagedError
from penstock.spark.publication.manifests import (
    PUBLISHED,
    ListedFile,
    Merged,
    files_of,
    located,
    read_merged,
    read_published,
    removed_of,
)
from penstock.spark.storage.formats import MANIFEST
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import StorePath

_T = TypeVar("_T")
#: manifests of single batches that are kept for the other followers
_KEPT = 256
#: compressed bytes of a stretch whose rows are limited
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Feed:
    """Published files whose rows are one sequence.

    Attributes:
        query: whose files, as manifests name it.
        kind: of the files.
    """

    query: str
    kind: str


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a feed.

    Attributes:
        batch: the last batch all of whose rows are before it; -1: none.
        base: rows of the batches up to that one.
        rows: rows before it.
    """

    batch: int = -1
    base: int = 0
    rows: int = 0


BEGINNING = Place()


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of a feed that follow each other.

    Attributes:
        feed: the feed.
        begin, end: the places before the first row and behind the last one; `begin` is behind rows that have left by retention.
        first: number of the first row of the first file.
        files: the files that hold the rows, each with its number of rows.
    """

    feed: Feed
    begin: Place
    end: Place
    first: int
    files: tuple[tuple[StorePath, int], ...]

    @property
    def rows(self) -> int:
        """How many rows it has, those of other views too."""
        return self.end.rows - self.begin.rows


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a stretch may be.

    Attributes:
        rows: stored rows; None: a batch is never divided.
        batches: batches with rows; None: any number. Merged batches cannot be told apart.
    """

    rows: int | None = None
    batches: int | None = 1


@dataclass(frozen=True, slots=True)
class _Step:
    """Files of a feed in order.

    Attributes:
        first: number of their first row.
        batch: the last batch whose rows end with them; None where further files have rows of the same batches.
        files: the files.
    """

    first: int
    batch: int | None
    files: tuple[ListedFile, ...]

    @property
    def end(self) -> int:
        """Number of the row behind the last one."""
        return self.first + sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class _Batch:
    """What is published of a batch.

    Attributes:
        files: by kind.
        removed: rows that have left by retention, by kind.
    """

    files: Mapping[str, tuple[ListedFile, ...]]
    removed: Mapping[str, int]


class Publications:
    """Finds stretches of feeds; any thread may ask.

    Args:
        layout: output and checkpoint folders.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._lock = threading.Lock()
        #: single batches by query and batch
        self._known: OrderedDict[tuple[str, int], _Batch] = OrderedDict()
        #: what was last read of merged batches, by query
        self._merged: dict[str, Merged] = {}

    def last(self, query: str) -> int:
        """The newest published batch of a query; -1: there is none."""
        manifests = self._layout.manifests(query)
        newest = manifests.last
        return newest if newest >= 0 else read_merged(manifests).last

    def published_at(self, query: str, batch: int) -> float | None:
        """When a batch was published, seconds since the epoch; of a merged one, the newest batch of its file. None: not known."""
        document = MANIFEST.read(self._layout.manifests(query)[batch])
        if document is not None:
            time: float | None = document.get(PUBLISHED)
            return time
        with self._lock:
            merged = self._merged.get(query)
        if merged is None or merged.last < batch:
            merged = self._read_merged(query)
        return merged.published_at(batch)

    def oldest(self, feed: Feed) -> Place:
        """The place before the first row of a feed that has not left by retention."""
        return Place(rows=read_published(self._layout, feed.query).removed(feed.kind))

    def newest(self, feed: Feed) -> Place:
        """The place behind the last row of a feed."""
        published = read_published(self._layout, feed.query)
        rows = sum(file.rows for file in published.files if file.kind == feed.kind)
        rows += published.removed(feed.kind)
        return Place(published.last, rows, rows)

    def after(self, feed: Feed, begin: Place, limits: Limits) -> Stretch | None:
        """The stretch behind a place, which has no rows where further batches brought none; None where no batch follows.

        Raises:
            CheckpointError: fewer rows are published than the place says.
            DamagedError: a file is not there as it was published.
        """
        return self._surely(feed, lambda: self._after(feed, begin, limits))

    def _after(self, feed: Feed, begin: Place, limits: Limits) -> Stretch | None:
        files: list[ListedFile] = []
        end, first, batches = begin, None, 0
        size = 0
        for step in self._steps(feed, begin):
            if not files:
                # rows before have left
                begin = replace(begin, rows=max(begin.rows, step.first))
                first = step.first
            if step.end > max(step.first, begin.rows):
                batches += 1
            files += step.files
            size += sum(file.size for file in step.files)
            batch, base = (end.batch, end.base) if step.batch is None else (step.batch, step.end)
            most = limits.rows
            if most is not None and step.end - begin.rows > most:
                rows = begin.rows + most
                end = Place(batch, base, rows) if rows == step.end else Place(end.batch, end.base, rows)
                break
            end = Place(max(batch, end.batch), base, step.end)
            if batches == limits.batches or (most is not None and size > _MOST_BYTES):
                break
        if first is None:
            return None
        if end.rows < begin.rows:
            raise _too_few(feed, end.rows, begin.rows)
        return self._stretch(feed, begin, end, first, files)

    def between(self, feed: Feed, begin: Place, end: Place) -> Stretch:
        """The stretch between two places; raises as `after`."""
        return self._surely(feed, lambda: self._between(feed, begin, end))

    def _between(self, feed: Feed, begin: Place, end: Place) -> Stretch:
        files: list[ListedFile] = []
        first, reached = None, begin.rows
        for step in self._steps(feed, begin):
            if not files:
                begin = replace(begin, rows=min(end.rows, max(begin.rows, step.first)))
                first = step.first
            elif step.first >= end.rows:
                break
            files += step.files
            reached = step.end
        if reached < end.rows:
            raise _too_few(feed, reached, end.rows)
        return self._stretch(feed, begin, end, begin.rows if first is None else first, files)

    def forget(self, query: str) -> None:
        """Forget which files the batches of a query had: they were merged meanwhile."""
        with self._lock:
            for key in [key for key in self._known if key[0] == query]:
                del self._known[key]

    def _surely(self, feed: Feed, find: Callable[[], _T]) -> _T:
        """What is found; a second time where known files were merged and deleted meanwhile."""
        try:
            return find()
        except DamagedError:
            self.forget(feed.query)
            return find()

    def _stretch(self, feed: Feed, begin: Place, end: Place, first: int, files: list[ListedFile]) -> Stretch:
        needed, start = [], first
        for file in files:
            if begin.rows < start + file.rows and start < end.rows:
                needed.append((start, file))
            start += file.rows
        begins = needed[0][0] if needed else begin.rows
        found = tuple((located(self._layout, feed.query, file), file.rows) for _, file in needed)
        return Stretch(feed, begin, end, begins, found)

    def _steps(self, feed: Feed, begin: Place) -> Iterator[_Step]:
        """The files of a feed from the one on that has the row behind a place."""
        number, first = begin.batch + 1, begin.base
        if self._single(feed.query, number) is None:
            merged = self._read_merged(feed.query)
            if merged.last < number:
                return
            own = [file for file in merged.files if file.kind == feed.kind]
            first = merged.removed.get(feed.kind, 0)
            for place, file in enumerate(own):
                following = own[place + 1].first if place + 1 < len(own) else merged.last + 1
                step = _Step(first, following - 1 if following > file.last else None, (file,))
                first = step.end
                if first > begin.rows:
                    yield step
            if first < begin.rows:
                raise _too_few(feed, first, begin.rows)
            yield _Step(first, merged.last, ())
            number = merged.last + 1
        while (known := self._single(feed.query, number)) is not None:
            step = _Step(first + known.removed.get(feed.kind, 0), number, known.files.get(feed.kind, ()))
            yield step
            number, first = number + 1, step.end

    def _read_merged(self, query: str) -> Merged:
        merged = read_merged(self._layout.manifests(query))
        with self._lock:
            self._merged[query] = merged
        return merged

    def _single(self, query: str, batch: int) -> _Batch | None:
        """A batch that is not merged; None where it is, or is not published."""
        with self._lock:
            if (known := self._known.get((query, batch))) is not None:
                return known
        document = MANIFEST.read(self._layout.manifests(query)[batch])
        if document is None:
            return None
        files: dict[str, tuple[ListedFile, ...]] = {}
        for file in files_of(document):
            files[file.kind] = (*files.get(file.kind, ()), file)
        found = _Batch(files, removed_of(document))
        with self._lock:
            self._known[query, batch] = found
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return found


def _too_few(feed: Feed, published: int, wanted: int) -> CheckpointError:
    return CheckpointError(
        f"{feed.query} has {published:,} published rows of kind {feed.kind}, and a sink was given {wanted:,}: the results folder was "
        "restored from an older copy, or files were removed. Put them back, or give the sink another name to begin with the first row"
    )
