"""Publication: staged files become visible under names fixed by batch, job and partition.

Order: every file, synced by the task that wrote it, takes its final name by atomic replace and a second one in the folder
that anybody may list, surplus files of the batch are removed, the folders are synced, and the batch's manifest is written last. A batch whose manifest exists is
published: a replay of it changes nothing.

Several queries may publish into the folder of a view that has moved between streams: the files of window results
end in their stream's name, and each query looks after its own alone.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.spark.publication.compaction import PATIENCE_SECONDS, Compaction, tidying
from penstock.spark.publication.folders import PublishedFolders
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.merging import LEVELS, Levels
from penstock.spark.publication.staged import PublishedFile, Staged
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.files import sync_folder
from penstock.spark.storage.formats import MANIFEST
from penstock.spark.storage.layout import Layout

#: folders that are synced at a time
_SYNCS = 8


@dataclass(frozen=True, slots=True)
class Published:
    """What is known of a published batch.

    Attributes:
        figures: what its manifest says of it.
        files: its files, as its manifest lists them; None where they were merged with those of other batches.
    """

    figures: dict[str, Any]
    files: list[dict[str, Any]] | None


class Publisher:
    """Publishes the batches of one query into the results folder.

    Args:
        layout: output and checkpoint folders.
        name: the query's name among the manifests; a stream's for its ingest.
        kinds: the kinds of files it always looks after; others are known once one was staged.
        owner: ends the names of its files, where other queries may publish into the same folders.
        failpoints: what the names of its failpoints begin with.
        levels: how far files of older batches are merged.
        passing: names of figures that only the newest batch is asked for: batches whose files are merged are without.
        grace_seconds: files that were replaced live on for so long.

    Raises:
        DamagedError: what was published is not there as it was published; nothing is changed then.
    """

    def __init__(
        self,
        layout: Layout,
        name: str,
        kinds: Sequence[str] = ("matches", "quarantine"),
        owner: str | None = None,
        failpoints: str = "",
        levels: Levels = LEVELS,
        passing: Collection[str] = (),
        grace_seconds: float = 0.0,
    ) -> None:
        self._layout = layout
        self._name = name
        self._prefix = failpoints
        self._manifests = layout.manifests(name)
        self._folders = PublishedFolders(layout, name, owner)
        listed = (file.kind for file in read_published(layout, name).files)
        for kind in (*kinds, *listed):
            self._folders.follow(kind)
        if "matches" in kinds:
            self._folders.make("matches")
        self._compaction = Compaction(
            self._manifests, self._folders, self._prefix, levels, passing, grace_seconds
        )
        #: the batch that nobody can have begun to publish; None: any may have been
        self._untouched: int | None = None

    def published(self, batch: int) -> Published | None:
        """What is known of a batch that Spark may repeat, or None where it is not published.

        Raises:
            CheckpointError: it is published, so long ago that nobody can tell whether Spark repeats the same.
        """
        document = MANIFEST.read(self._manifests[batch])
        if document is not None:
            return Published(document["batches"][0], document["files"])
        figures = self._compaction.figures(batch) if batch <= self._compaction.last else None
        return None if figures is None else Published(figures, None)

    def publish(self, batch: int, reports: Sequence[Staged], figures: dict[str, Any]) -> list[dict[str, Any]]:
        """Makes a batch visible.

        Args:
            batch: its number.
            reports: what its tasks staged.
            figures: what else the manifest says of the batch.

        Returns:
            The published files, as the manifest lists them (fields of PublishedFile).
        """
        # a run that was taken over would overwrite the files of the other one
        self._layout.ledger.writer.commit()
        is_untouched, self._untouched = batch == self._untouched, None
        files: list[PublishedFile] = []
        for kind in sorted({staged.kind for report in reports for staged in report.files}):
            self._folders.make(kind)
        for report in sorted(reports, key=lambda each: (each.job, each.partition)):
            seen: Counter[str] = Counter()
            for staged in report.files:
                name = f"{batch:010d}-{report.job}-{report.partition:05d}"
                # a task may have several of a kind, each worth a file
                name += f"-{seen[staged.kind]}" * (seen[staged.kind] > 0) + self._folders.ending_of(
                    staged.kind
                )
                seen[staged.kind] += 1
                Path(staged.path).replace(self._folders[staged.kind] / name)
                self._folders.show(staged.kind, name)
                if not files:
                    failpoint(f"{self._prefix}half_published", batch)
                files.append(
                    PublishedFile(staged.kind, name, staged.rows, staged.pairs, staged.size, staged.crc)
                )
        changed = {self._folders[file.kind] for file in files}
        if not is_untouched:
            changed |= self._remove_surplus(batch, files)
        with ThreadPoolExecutor(_SYNCS, "penstock-sync") as beside:
            list(beside.map(sync_folder, changed))
        listed = [asdict(file) for file in files]
        MANIFEST.replace(
            self._manifests[batch],
            {"first": batch, "last": batch, "files": listed, "batches": [figures], "published": time.time()},
        )
        for staging in (
            self._layout.staging(self._name, batch),
            self._layout.staged_envelopes(self._name, batch),
        ):
            shutil.rmtree(staging, ignore_errors=True)
        self._untouched = batch + 1
        return listed

    def _remove_surplus(self, batch: int, files: Sequence[PublishedFile]) -> set[Path]:
        """Removes what an earlier attempt has published of a batch beside what it consists of; gives the folders."""
        published = {self._folders[file.kind] / file.name for file in files}
        published |= {self._folders.shown(file.kind) / file.name for file in files}
        changed = set()
        for folder in self._folders:
            for surplus in self._folders.own(folder, rf"{batch:010d}-\d+-\d+(?:-\d+)?"):
                if surplus not in published:
                    surplus.unlink()
                    changed.add(folder)
        return changed

    def compact_if_due(self, batch: int, every: int, events: EventLog) -> tuple[int, int] | None:
        """Merges the files of the batches before one if its number is a multiple; that this fails is told alone.

        Args:
            batch: the newest one.
            every: so many batches after each other are merged; 0: none are.
            events: where a failure is told.

        Returns:
            The range of batches whose files were merged by now, or None; where there is much to write, the batches after it do not
            wait for that.
        """
        with tidying(events, self._name, batch):
            if every and batch and batch % every == 0:
                return self._compaction.compact(batch - 1, PATIENCE_SECONDS)
            return self._compaction.advance()
        return None

    def compact(self, last: int) -> tuple[int, int] | None:
        """Merges the files of batches up to `last`, see `Compaction.compact`."""
        return self._compaction.compact(last)

    def close(self) -> None:
        """Waits until no file is being written; merged files that are not listed are removed at the next start."""
        self._compaction.close()
