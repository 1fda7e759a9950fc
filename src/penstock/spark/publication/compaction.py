"""Compaction: files of many batches become few, whatever the age of the run.

Merged files are synced under names of their own, then `merged.json` is replaced by one that lists them, then what they
stand for is removed. What a crash leaves half done is mended at the next start, what a failure does before the next
attempt: of merged batches there is what `merged.json` lists, and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import CheckpointError
from penstock.spark.publication.folders import PublishedFolders
from penstock.spark.publication.history import Stretch, lengthened, summed
from penstock.spark.publication.manifests import (
    MERGED,
    ListedFile,
    Merged,
    files_of,
    read_merged,
)
from penstock.spark.publication.merging import LEVELS, Levels, Run, merge, runs_of
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.files import numbered, sync_folder
from penstock.spark.storage.formats import MANIFEST, MERGED_MANIFEST
from penstock.spark.storage.layout import is_of_log
from penstock.spark.storage.offsets import REMEDY

_log = logging.getLogger(__name__)
#: batches whose figures are kept: Spark may repeat them
KEPT_BATCHES = 256
#: what may go wrong where files are merged or removed: a full disk, a damaged file
FAILURES = (OSError, ValueError, CheckpointError, pa.ArrowException)
#: what ends the names of merged files until they are whole
_MERGING = ".merging"


class Compaction:
    """Merges the files of one query's batches; the query's publisher owns it.

    Args:
        manifests: the folder of the query's manifests.
        folders: the folders of its files.
        prefix: begins the names of its failpoints.
        levels: how far they are merged.
    """

    def __init__(
        self,
        manifests: Path,
        folders: PublishedFolders,
        prefix: str = "",
        levels: Levels = LEVELS,
    ) -> None:
        self._manifests = manifests
        self._folders = folders
        self._prefix = prefix
        self._levels = levels
        #: the last batch whose files are merged
        self.last = -1
        self._is_mended = False
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
            f"batch {batch} of {self._manifests.name} is published, and Spark wants to answer it again; what was read "
            f"for it is known of batch {first} and later ones only: the checkpoint was set back to an old copy; {REMEDY}"
        )

    def compact(self, last: int) -> tuple[int, int] | None:
        """Merges the files of the batches up to `last` that are not merged yet, and older ones in levels.

        Returns:
            The range of batches, or None where there are not two of them.

        Raises:
            OSError: a file could not be written or removed, as on a full disk, or not be read, as it is damaged; what was
                published is as it was, and the next call tries again.
        """
        if not self._is_mended:
            self._mend()
        batches = [batch for batch in numbered(self._manifests) if self.last < batch <= last]
        if len(batches) < 2:
            return None
        read = (MANIFEST.read(self._manifests / f"{batch}.json") for batch in batches)
        documents = [document for document in read if document is not None]
        self._is_mended = False
        try:
            replaced = self._merge(documents)
        except BaseException:
            self._try_to_mend()
            raise
        failpoint(f"{self._prefix}compaction_listed", last)
        for path in replaced:
            path.unlink(missing_ok=True)
        for batch in batches:
            (self._manifests / f"{batch}.json").unlink()
        self._is_mended = True
        return batches[0], batches[-1]

    def _merge(self, documents: Sequence[Mapping[str, Any]]) -> list[Path]:
        """Lists the merged files in the place of those of further batches; returns what they replace."""
        before = read_merged(self._manifests)
        last = documents[-1]["last"]
        added: dict[str, list[ListedFile]] = {}
        for document in documents:
            for file in files_of(document):
                added.setdefault(file.kind, []).append(file)
        known: dict[str, list[ListedFile]] = {}
        for file in before.files:
            known.setdefault(file.kind, []).append(file)
        made: list[Path] = []
        replaced: list[Path] = []
        for kind in sorted(kind for kind in added if not is_of_log(kind)):
            runs = self._levels.arranged(runs_of([*known.get(kind, ()), *added[kind]]))
            files: list[ListedFile] = []
            for run in runs:
                target = self._target(kind, run)
                if len(run.files) == 1 or not self._levels.fits(run):
                    files += [replace(file, level=run.level) for file in run.files]
                elif (size := self._merged(kind, run, target)) is not None:
                    made.append(target)
                    replaced += [self._folders[kind] / file.name for file in run.files]
                    files.append(_listed(run, target.name, size))
            known[kind] = files
        failpoint(f"{self._prefix}compaction_merged", last)
        for target in made:
            _merging(target).replace(target)
        for folder in {target.parent for target in made}:
            sync_folder(folder)
        failpoint(f"{self._prefix}compaction_named", last)
        every = [*before.batches, *(document["batches"][0] for document in documents)]
        kept, folded = every[-KEPT_BATCHES:], every[:-KEPT_BATCHES]
        totals = before.totals
        for figures in folded:
            totals = summed(totals, figures)
        merged = Merged(
            last,
            tuple(file for kind in known for file in known[kind]),
            totals,
            tuple(lengthened(before.stretches, map(Stretch.of, folded))),
            tuple(kept),
        )
        MERGED_MANIFEST.replace(self._manifests / MERGED, merged.document())
        self.last = last
        return replaced

    def _merged(self, kind: str, run: Run, target: Path) -> int | None:
        """Writes the one file of a run, under no name yet; its size, or None where all of it was cleaned up."""
        sources = [self._folders[kind] / file.name for file in run.files]
        if kind == "quarantine":
            # whoever has seen to the records may remove them
            sources = [path for path in sources if path.exists()]
        return merge(sources, _merging(target)) if sources else None

    def _target(self, kind: str, run: Run) -> Path:
        span = f"{run.files[0].first:010d}-to-{run.files[-1].last:010d}"
        operator, slash, _ = kind.partition("/")
        # files of several operators may share a folder
        return self._folders[kind] / f"{span}{f'-{operator}' if slash else ''}{self._folders.ending}"

    def _try_to_mend(self) -> None:
        try:
            self._mend()
        except OSError as error:
            _log.info("what a compaction left is removed later: %s", error)

    def _mend(self) -> None:
        """Removes what merged batches have left that is not listed; their manifests last."""
        merged = read_merged(self._manifests)
        self.last = merged.last
        listed = {self._folders[file.kind] / file.name for file in merged.files}
        left = [batch for batch in numbered(self._manifests) if batch <= merged.last]
        if left:
            # what made the manifest may have ended before its name was sure to last
            sync_folder(self._manifests)
        for folder in self._folders.merged:
            for unfinished in self._folders.own(folder, r"\d+-to-\d+(?:-\d+)?", _MERGING):
                unfinished.unlink()
            for path in self._folders.own(folder, r"\d+-to-\d+(?:-\d+)?"):
                if path not in listed:
                    path.unlink()
            for path in self._folders.own(folder, r"\d+-\d+-\d+"):
                if int(path.name[:10]) <= merged.last and path not in listed:
                    path.unlink()
        for batch in left:
            (self._manifests / f"{batch}.json").unlink()
        self._is_mended = True


def _listed(run: Run, name: str, size: int) -> ListedFile:
    rows, pairs = (sum(getattr(file, count) for file in run.files) for count in ("rows", "pairs"))
    first, last = run.files[0], run.files[-1]
    return ListedFile(first.kind, name, first.first, last.last, rows, pairs, size, run.level)


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
        _log.warning("the files of %s could not be merged at batch %s: %s", stream, batch, error)
        events.record("compaction_failed", stream=stream, batch=batch, error=str(error))
