"""Compaction: files of many batches become few, whatever the age of the run.

A merged file is stored under a name of its own. One commit lists it in place of the files that it replaces, and puts the names of these,
which are deleted once whoever has found them has had time to read them.

Writing takes seconds where rows are many, and batches must not wait so long: a thread does it. The publisher's thread does all else.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.errors import CheckpointError
from penstock.spark.publication.history import Stretch, lengthened, summed
from penstock.spark.publication.kinds import ending_of, folder_of, name_of
from penstock.spark.publication.manifests import (
    MERGED,
    PUBLISHED,
    VIEW_PAIRS,
    ListedFile,
    Merged,
    files_of,
    read_merged,
    with_removed,
    with_times,
    with_view_pairs,
)
from penstock.spark.publication.merging import LEVELS, Levels, Run, merge, runs_of
from penstock.spark.publication.retention import FOREVER, PARTS, Retention
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.formats import MANIFEST, MERGED_MANIFEST
from penstock.spark.storage.layout import Layout, is_of_log
from penstock.spark.storage.ledger_documents import commit
from penstock.spark.storage.offsets import REMEDY
from penstock.spark.storage.replaced import ReplacedFiles
from penstock.spark.storage.store_paths import StorePath
from penstock.stores.durable import checksum_of

_log = logging.getLogger(__name__)
#: batches whose figures are kept: Spark may repeat them
KEPT_BATCHES = 256
#: what may go wrong where files are merged or removed: a full disk, a damaged file
FAILURES = (OSError, ValueError, CheckpointError, pa.ArrowException)
#: so long a batch waits for files to be merged; most are by then, as all of a small stream are
PATIENCE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class _Merge:
    """One file to be written.

    Attributes:
        kind: of the files.
        run: the files whose rows it is to hold.
        sources: where they are.
        layout: of the folders.
        name: of the file in the store.
    """

    kind: str
    run: Run
    sources: tuple[StorePath, ...]
    layout: Layout
    name: str

    def write(self) -> ListedFile | None:
        """Store the file; returns how it is to be listed, None if users have removed all sources."""
        sources = self.sources
        if self.kind == "quarantine":
            sources = tuple(path for path in sources if path.exists())
        if not sources:
            return None
        path = self.layout.files.staging(self.name)
        try:
            merge(sources, path)
            size, crc = path.stat().st_size, checksum_of(path)
            self.layout.files.put(self.name, path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return _listed(self.run, self.name.rpartition("/")[2], size, crc)


@dataclass(frozen=True, slots=True)
class _Written:
    """What has been written for a task.

    Attributes:
        listed: what there is of merged batches from now on.
        made: of these, the new ones.
    """

    listed: tuple[ListedFile, ...]
    made: tuple[_Merge, ...]


@dataclass(frozen=True, slots=True)
class _Task:
    """Batches whose files are to be merged.

    Attributes:
        before: what was merged until now.
        documents: the manifests of the batches.
        files: what is to be listed: files that stay, and those to be written.
    """

    before: Merged
    documents: tuple[Mapping[str, Any], ...]
    files: tuple[ListedFile | _Merge, ...]

    def write(self) -> _Written:
        """Writes the files that are to be written: all of them, or none."""
        listed: list[ListedFile] = []
        made: list[_Merge] = []
        try:
            for each in self.files:
                if isinstance(each, ListedFile):
                    listed.append(each)
                elif (file := each.write()) is not None:
                    listed.append(file)
                    made.append(each)
        except BaseException:
            for each in made:
                with suppress(OSError):
                    each.layout.files.delete([each.name])
            raise
        return _Written(tuple(listed), tuple(made))


class Compaction:
    """Merges the files of one query's batches; the query's publisher owns it.

    Args:
        layout: output and checkpoint folders.
        query: the query's name among the manifests.
        owner: ends the names of its files, where other queries may publish into the same folders.
        last: the last batch whose files are merged.
        replaced: keeps the files that were replaced for a while.
        prefix: begins the names of its failpoints.
        levels: how far they are merged.
        passing: names of figures that merged batches are without.
        retention: how long rows are kept.
    """

    def __init__(
        self,
        layout: Layout,
        query: str,
        owner: str | None,
        last: int,
        replaced: ReplacedFiles,
        prefix: str = "",
        levels: Levels = LEVELS,
        passing: Collection[str] = (),
        retention: Retention = FOREVER,
    ) -> None:
        self._layout = layout
        self._query = query
        self._retention = retention
        self._owner = owner
        self._manifests = layout.manifests(query)
        self._prefix = prefix
        self._levels = levels
        self._passing = passing
        #: the last batch whose files are merged
        self.last = last
        self._replaced = replaced
        self._writer = ThreadPoolExecutor(1, "penstock-compaction")
        #: what is being written, and not yet listed
        self._writing: tuple[_Task, Future[_Written]] | None = None

    def figures(self, batch: int) -> dict[str, Any] | None:
        """What the manifest of a batch up to the last merged one said; None where it had none.

        Raises:
            CheckpointError: that is not known any more.
        """
        merged = read_merged(self._manifests)
        first = merged.batches[0]["batch"]
        if batch >= first:
            return next((figures for figures in merged.batches if figures["batch"] == batch), None)
        raise CheckpointError(
            f"Spark repeats batch {batch} of {self._query}, which was published before batch {first}, the oldest that "
            f"can be repeated. The checkpoint was restored from an old copy; {REMEDY}"
        )

    def compact(self, last: int, patience_seconds: float | None = None) -> tuple[int, int] | None:
        """Merges the files of the batches up to `last` that are not merged yet, and older ones in levels.

        Args:
            last: number of a batch.
            patience_seconds: how long it may wait for files to be written; those that take longer are listed by `advance`. None:
                however long that takes.

        Returns:
            The range of batches, or None where there are not two of them, or their files are still being written.

        Raises:
            OSError: a file could not be written or removed, as on a full disk, or not be read, as it is damaged; what was
                published is as it was, and the next call tries again.
        """
        self.advance(None)
        task = self._arranged(last)
        if task is None:
            return None
        self._writing = task, self._writer.submit(task.write)
        return self.advance(patience_seconds)

    @property
    def is_writing(self) -> bool:
        """Whether files are being written that no manifest lists yet."""
        return self._writing is not None

    def advance(self, patience_seconds: float | None = 0.0) -> tuple[int, int] | None:
        """Lists the merged files that are being written, if they are by now; see `compact`."""
        self._replaced.remove()
        if self._writing is None:
            return None
        task, writing = self._writing
        if not wait([writing], patience_seconds).done:
            return None
        self._writing = None
        # if the commit fails, nobody knows whether it lists the files: the next start deletes them if it does not
        self._list(task, writing.result())
        failpoint(f"{self._prefix}compaction_listed", self.last)
        self._replaced.remove()
        return task.documents[0]["first"], task.documents[-1]["first"]

    def close(self) -> None:
        """Lists what is being written, once it is; where that fails, the next start deletes it."""
        try:
            self.advance(None)
        except Exception as error:
            _log.warning("cannot list the merged files of %s: %s", self._query, error)

    def _arranged(self, last: int) -> _Task | None:
        """What is to be merged up to a batch; None where there are not two of them."""
        batches = [batch for batch in self._manifests.numbers() if self.last < batch <= last]
        if len(batches) < 2:
            return None
        read = (MANIFEST.read(self._manifests[batch]) for batch in batches)
        documents = tuple(document for document in read if document is not None)
        before = read_merged(self._manifests)
        added: dict[str, list[ListedFile]] = {}
        for document in documents:
            for file in files_of(document):
                added.setdefault(file.kind, []).append(file)
        known: dict[str, list[ListedFile]] = {}
        for file in before.files:
            known.setdefault(file.kind, []).append(file)
        files: dict[str, Sequence[ListedFile | _Merge]] = dict(known)
        for kind in sorted(kind for kind in added if not is_of_log(kind)):
            own = runs_of([*known.get(kind, ()), *added[kind]])
            runs = self._levels.arranged(own, self._part(kind, before, documents))
            files[kind] = [each for run in runs for each in self._planned(kind, run)]
        return _Task(before, documents, tuple(each for own in files.values() for each in own))

    def _part(
        self, kind: str, before: Merged, documents: Sequence[Mapping[str, Any]]
    ) -> Callable[[Run], int] | None:
        """The part of the retention in which the newest rows of a run were published; None: they never leave."""
        seconds = self._retention.seconds(self._query, kind)
        if seconds is None:
            return None
        times = {document["last"]: document.get(PUBLISHED) for document in documents}

        def part(run: Run) -> int:
            last = run.files[-1].last
            time = times.get(last) if last > before.last else before.published_at(last)
            return -1 if time is None else int(time * PARTS / seconds)

        return part

    def _planned(self, kind: str, run: Run) -> list[ListedFile] | list[_Merge]:
        """The files of a run from now on."""
        if len(run.files) == 1 or not self._levels.fits(run):
            return [replace(file, level=run.level) for file in run.files]
        folder = folder_of(self._layout, self._query, kind)
        sources = tuple(folder / file.name for file in run.files)
        return [_Merge(kind, run, sources, self._layout, self._target(kind, run))]

    def _list(self, task: _Task, written: _Written) -> None:
        """Lists the written files in the place of those of the batches."""
        before, last = task.before, task.documents[-1]["last"]
        failpoint(f"{self._prefix}compaction_merged", last)
        every = [
            {name: told for name, told in figures.items() if name not in (*self._passing, VIEW_PAIRS)}
            for figures in (*before.batches, *(document["batches"][0] for document in task.documents))
        ]
        kept, folded = every[-KEPT_BATCHES:], every[:-KEPT_BATCHES]
        totals = before.totals
        for figures in folded:
            totals = summed(totals, figures)
        merged = Merged(
            last,
            written.listed,
            totals,
            tuple(lengthened(before.stretches, map(Stretch.of, folded))),
            tuple(kept),
            with_view_pairs(before.view_pairs, task.documents),
            with_times(before.times, task.documents, written.listed),
            with_removed(before.removed, task.documents),
        )
        names = [
            name_of(self._layout, self._query, each.kind, file.name)
            for each in written.made
            for file in each.run.files
        ]
        replaced = self._replaced.document(last, names)
        commit(
            {self._manifests[MERGED]: MERGED_MANIFEST.stamped(merged.document()), **replaced},
            [self._manifests[document["first"]] for document in task.documents],
        )
        self._replaced.committed(replaced)
        self.last = last

    def _target(self, kind: str, run: Run) -> str:
        span = f"{run.files[0].first:010d}-to-{run.files[-1].last:010d}"
        operator, slash, _ = kind.partition("/")
        # files of several operators may share a folder
        own = f"-{operator}" if slash and operator.isdigit() else ""
        name = f"{span}{own}-{uuid.uuid4().hex[:8]}{ending_of(kind, self._owner)}"
        return name_of(self._layout, self._query, kind, name)


def _listed(run: Run, name: str, size: int, crc: int) -> ListedFile:
    rows, pairs = (sum(getattr(file, count) for file in run.files) for count in ("rows", "pairs"))
    first, last = run.files[0], run.files[-1]
    return ListedFile(first.kind, name, first.first, last.last, rows, pairs, size, crc, run.level)


@contextmanager
def tidying(events: EventLog, stream: str, batch: int) -> Iterator[None]:
    """What only tidies may fail: that is told, nothing that is published is touched, and it is tried again later.

    Args:
        events: where it is told.
        stream: whose files.
        batch: the newest batch.
    """
    try:
        yield
    except FAILURES as error:
        _log.warning("cannot merge the files of %s at batch %s: %s", stream, batch, error)
        events.record("compaction_failed", stream=stream, batch=batch, error=str(error))
