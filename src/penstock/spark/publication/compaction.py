"""Compaction: files of many batches become few, whatever the age of the run.

Merged files are synced under names of their own, then one commit lists them in the place of what they stand for, then they take the
place of what they stand for in the folders that anybody may list. The names that readers of manifests know live on for a
while: such a file goes when nothing lists it and its time stamp, which says when it was replaced, is old enough.

What a crash leaves half done is mended at the next start, what a failure does before the next attempt. That removes
leftovers of batches whose files are known, so every manifest and every file that they list is looked for before.

Writing takes seconds where rows are many, and batches must not wait so long: it is done in a thread that touches nothing but
files nobody knows of yet; all else is the publisher's own.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import CheckpointError
from penstock.spark.publication.folders import PublishedFolders
from penstock.spark.publication.history import Stretch, lengthened, summed
from penstock.spark.publication.kinds import is_kept
from penstock.spark.publication.manifests import (
    MERGED,
    VIEW_PAIRS,
    ListedFile,
    Merged,
    files_of,
    located,
    read_manifests,
    read_merged,
    with_view_pairs,
)
from penstock.spark.publication.merging import LEVELS, Levels, Run, merge, runs_of
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.files import checksum_of, make_folder, second_name, sync_folder
from penstock.spark.storage.formats import MANIFEST, MERGED_MANIFEST
from penstock.spark.storage.layout import is_of_log
from penstock.spark.storage.ledger_documents import StoredDocuments
from penstock.spark.storage.offsets import REMEDY
from penstock.spark.storage.replaced import ReplacedFiles

_log = logging.getLogger(__name__)
#: batches whose figures are kept: Spark may repeat them
KEPT_BATCHES = 256
#: what may go wrong where files are merged or removed: a full disk, a damaged file
FAILURES = (OSError, ValueError, CheckpointError, pa.ArrowException)
#: names of files of one batch, and of merged ones
_SINGLE, _SPAN = r"\d+-\d+-\d+", r"\d+-to-\d+(?:-\d+)?"
#: what ends the names of merged files until they are whole
_MERGING = ".merging"
#: so long a batch waits for files to be merged; most are by then, as all of a small stream are
PATIENCE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class _Merge:
    """One file to be written.

    Attributes:
        kind: of the files.
        run: the files whose rows it is to hold.
        sources: where they are.
        target: where it is to be.
    """

    kind: str
    run: Run
    sources: tuple[Path, ...]
    target: Path

    def write(self) -> ListedFile | None:
        """Writes it under no name yet; how it is to be listed, or None where all of it was cleaned up."""
        sources = self.sources
        if self.kind == "quarantine":
            # whoever has seen to the records may remove them
            sources = tuple(path for path in sources if path.exists())
        if not sources:
            return None
        merging = _merging(self.target)
        merge(sources, merging)
        return _listed(self.run, self.target.name, merging.stat().st_size, checksum_of(merging))


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
        """Writes the files that are to be written."""
        listed: list[ListedFile] = []
        made: list[_Merge] = []
        for each in self.files:
            if isinstance(each, ListedFile):
                listed.append(each)
            elif (file := each.write()) is not None:
                listed.append(file)
                made.append(each)
        return _Written(tuple(listed), tuple(made))


class Compaction:
    """Merges the files of one query's batches; the query's publisher owns it.

    Args:
        manifests: of the query.
        folders: the folders of its files.
        prefix: begins the names of its failpoints.
        levels: how far they are merged.
        passing: names of figures that merged batches are without.
        grace_seconds: files that were replaced live on for so long.
    """

    def __init__(
        self,
        manifests: StoredDocuments,
        folders: PublishedFolders,
        prefix: str = "",
        levels: Levels = LEVELS,
        passing: Collection[str] = (),
        grace_seconds: float = 0.0,
    ) -> None:
        self._manifests = manifests
        self._folders = folders
        self._prefix = prefix
        self._levels = levels
        self._passing = passing
        #: the last batch whose files are merged
        self.last = -1
        self._replaced = ReplacedFiles(grace_seconds)
        self._is_mended = False
        self._writer = ThreadPoolExecutor(1, "penstock-compaction")
        #: what is being written, and not yet listed
        self._writing: tuple[_Task, Future[_Written]] | None = None
        self._mend()

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
            f"Spark repeats batch {batch} of {self._folders.name}, which was published before batch {first}, the oldest that "
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
        if not self._is_mended:
            self._mend()
        task = self._arranged(last)
        if task is None:
            return None
        self._is_mended = False
        self._writing = task, self._writer.submit(task.write)
        return self.advance(patience_seconds)

    def advance(self, patience_seconds: float | None = 0.0) -> tuple[int, int] | None:
        """Lists the merged files that are being written, if they are by now; see `compact`."""
        self._replaced.remove()
        if self._writing is None:
            return None
        task, writing = self._writing
        if not wait([writing], patience_seconds).done:
            return None
        self._writing = None
        try:
            self._list(task, writing.result())
        except BaseException:
            self._try_to_mend()
            raise
        failpoint(f"{self._prefix}compaction_listed", self.last)
        made = writing.result().made
        for each in made:
            self._folders.show(each.kind, each.target.name)
        failpoint(f"{self._prefix}compaction_shown", self.last)
        for each in made:
            for path in each.sources:
                (self._folders.shown(each.kind) / path.name).unlink(missing_ok=True)
            self._replaced.add(each.sources, time.time())
        batches = [document["first"] for document in task.documents]
        self._is_mended = True
        return batches[0], batches[-1]

    def close(self) -> None:
        """Waits until nothing is being written."""
        if self._writing is not None:
            wait([self._writing[1]])

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
            runs = self._levels.arranged(runs_of([*known.get(kind, ()), *added[kind]]))
            files[kind] = [each for run in runs for each in self._planned(kind, run)]
        return _Task(before, documents, tuple(each for own in files.values() for each in own))

    def _planned(self, kind: str, run: Run) -> list[ListedFile] | list[_Merge]:
        """The files of a run from now on."""
        if len(run.files) == 1 or not self._levels.fits(run):
            return [replace(file, level=run.level) for file in run.files]
        sources = tuple(self._folders[kind] / file.name for file in run.files)
        return [_Merge(kind, run, sources, self._target(kind, run))]

    def _list(self, task: _Task, written: _Written) -> None:
        """Lists the written files in the place of those of the batches."""
        before, last = task.before, task.documents[-1]["last"]
        targets = [each.target for each in written.made]
        failpoint(f"{self._prefix}compaction_merged", last)
        self._replaced.keep(targets)
        for target in targets:
            _merging(target).replace(target)
        for folder in {target.parent for target in targets}:
            sync_folder(folder)
        failpoint(f"{self._prefix}compaction_named", last)
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
        )
        for path in (path for each in written.made for path in each.sources):
            with suppress(FileNotFoundError):  # a cleaned up quarantine
                os.utime(path)
        self._manifests.change(
            {MERGED: MERGED_MANIFEST.stamped(merged.document())},
            [document["first"] for document in task.documents],
        )
        self.last = last

    def _target(self, kind: str, run: Run) -> Path:
        span = f"{run.files[0].first:010d}-to-{run.files[-1].last:010d}"
        operator, slash, _ = kind.partition("/")
        # files of several operators may share a folder
        return self._folders[kind] / f"{span}{f'-{operator}' if slash else ''}{self._folders.ending}"

    def _try_to_mend(self) -> None:
        try:
            self._mend()
        except FAILURES as error:
            _log.info("files left by a compaction are deleted later: %s", error)

    def _mend(self) -> None:
        """Finishes what was left half done of published batches.

        Raises:
            DamagedError: a manifest, or a file that one lists, is missing or damaged; nothing is changed then.
        """
        published = read_manifests(self._manifests)
        listed: dict[Path, ListedFile] = {}
        for file in published.files:
            if is_kept(file.kind):
                listed[located(self._folders.layout, self._folders.name, file)] = file
        self.last = published.merged.last
        for path, file in listed.items():
            self._name_twice(path, file)
        names = {(self._folders[file.kind], file.name) for file in published.files}
        for kind in self._folders.merged:
            own = {name for folder, name in names if folder == self._folders[kind]}
            self._remove_unlisted(kind, own, published.last)
        self._is_mended = True

    def _name_twice(self, path: Path, file: ListedFile) -> None:
        """Lets a listed file have the name that the manifests mean and the one that anybody may list."""
        kept, shown = self._folders[file.kind] / file.name, self._folders.shown(file.kind) / file.name
        if path != kept:
            make_folder(kept.parent)
            second_name(path, kept)
            sync_folder(kept.parent)
        elif not shown.exists():
            make_folder(shown.parent)
            self._folders.show(file.kind, file.name)

    def _remove_unlisted(self, kind: str, listed: Collection[str], last: int) -> None:
        """Removes files of published batches that no manifest lists, those that were replaced when their time is over.

        Args:
            kind: one of those that share a folder.
            listed: names of its files that manifests list.
            last: the last published batch.
        """
        folder, shown = self._folders[kind], self._folders.shown(kind)
        for unfinished in self._folders.own(folder, _SPAN, _MERGING):
            unfinished.unlink()
        for each in dict.fromkeys((shown, folder)):
            for path in self._folders.own(each, f"(?:{_SPAN}|{_SINGLE})"):
                if path.name in listed or _last_of(path) > last:
                    continue
                if each == shown:
                    path.unlink()
                else:
                    self._replaced.add([path], path.stat().st_mtime)


def _last_of(path: Path) -> int:
    """The last batch whose rows a file holds, by its name."""
    first, _, last = path.name.partition("-to-")
    return int(re.split(r"\D", last or first, maxsplit=1)[0])


def _listed(run: Run, name: str, size: int, crc: int) -> ListedFile:
    rows, pairs = (sum(getattr(file, count) for file in run.files) for count in ("rows", "pairs"))
    first, last = run.files[0], run.files[-1]
    return ListedFile(first.kind, name, first.first, last.last, rows, pairs, size, crc, run.level)


def _merging(target: Path) -> Path:
    """Where a merged file is written before it takes its name."""
    return target.with_name(target.name + _MERGING)


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
