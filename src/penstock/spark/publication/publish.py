"""Publication: one commit of the ledger makes a batch visible.

The tasks of a batch have stored its files under their final names (`staged.BatchFiles`). The commit puts the manifest, which lists them,
and whatever else becomes true with it. A batch whose manifest exists is published: a replay of it changes nothing.

Several queries may publish into the folder of a view that has moved between streams: the files of window results
end in their stream's name, and each query looks after its own alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any

from penstock.spark.publication.compaction import PATIENCE_SECONDS, Compaction, tidying
from penstock.spark.publication.manifests import PUBLISHED, read_published
from penstock.spark.publication.merging import LEVELS, Levels
from penstock.spark.publication.repair import Leftovers
from penstock.spark.publication.retention import FOREVER, OldRows, Retention
from penstock.spark.publication.staged import BatchFiles, Staged, files_of_reports
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import MANIFEST
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.ledger_documents import StoredDocument, commit
from penstock.spark.storage.replaced import ReplacedFiles


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
        kinds: the kinds of files that its first batch may have; of a query with an owner only those outside `results` and `misses`.
        owner: ends the names of its files, where other queries may publish into the same folders.
        failpoints: what the names of its failpoints begin with.
        levels: how far files of older batches are merged.
        passing: names of figures that only the newest batch is asked for: batches whose files are merged are without.
        grace_seconds: files that were replaced are kept for so long.
        held: gives the names of replaced files in the store that something still needs.
        retention: how long rows are kept.

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
        held: Callable[[], Set[str]] = frozenset,
        retention: Retention = FOREVER,
    ) -> None:
        self._layout = layout
        self._name = name
        self._owner = owner
        self._manifests = layout.manifests(name)
        published = read_published(layout, name)
        self._kinds = {*kinds, *(file.kind for file in published.files)}
        self._leftovers = Leftovers(layout, name, owner)
        replaced = ReplacedFiles(layout.replaced(name), layout.files, grace_seconds, held)
        self._leftovers.repair(published, self._kinds, replaced.listed())
        replaced.remove()
        self._compaction = Compaction(
            layout, name, owner, published.merged.last, replaced, failpoints, levels, passing, retention
        )
        self._old_rows = OldRows(layout, name, retention, replaced)
        #: the newest batch that was begun; None: a commit may have published its files
        self._begun: int | None = None

    def begin(self, batch: int) -> BatchFiles:
        """Return what stores the files of a batch; what an attempt before has left of it is deleted."""
        files = BatchFiles.of(self._layout, self._name, self._owner, batch)
        # fails if another run has taken over: who reads the folder without its ledger would see both runs' files of the batch
        self._layout.ledger.writer.commit()
        files.clean()
        if self._begun == batch and self.published(batch) is None:
            self._leftovers.remove(batch, self._kinds)
        self._begun = batch
        return files

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

    def publish(
        self,
        batch: int,
        reports: Sequence[Staged],
        figures: dict[str, Any],
        puts: Mapping[StoredDocument, Mapping[str, Any]] | None = None,
        deletes: Iterable[StoredDocument] = (),
        expect: Mapping[StoredDocument, bytes | None] | None = None,
    ) -> list[dict[str, Any]]:
        """Makes a batch visible.

        Args:
            batch: its number.
            reports: what its tasks stored.
            figures: what else the manifest says of the batch.
            puts, deletes, expect: what the same commit changes beside, see `ledger_documents.commit`.

        Returns:
            The published files, as the manifest lists them (fields of StagedFile).

        Raises:
            UnexpectedDocumentError: something else than `expect` is stored; nothing is changed.
        """
        files = files_of_reports(reports)
        listed = [asdict(file) for file in files]
        self._begun = None
        document = {
            "first": batch,
            "last": batch,
            "files": listed,
            "batches": [figures],
            PUBLISHED: time.time(),
        }
        commit({self._manifests[batch]: MANIFEST.stamped(document), **(puts or {})}, deletes, expect)
        self._kinds.update(file.kind for file in files)
        BatchFiles.of(self._layout, self._name, self._owner, batch).clean()
        return listed

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
            if self._old_rows.is_due:
                self.remove_old(events, time.time())
            if every and batch and batch % every == 0:
                return self._compaction.compact(batch - 1, PATIENCE_SECONDS)
            return self._compaction.advance()
        return None

    def compact(self, last: int) -> tuple[int, int] | None:
        """Merges the files of batches up to `last`, see `Compaction.compact`."""
        return self._compaction.compact(last)

    def remove_old(self, events: EventLog, now: float) -> None:
        """Let rows leave that are older than their retention at a time, see `OldRows.remove`; not while files are being merged."""
        if not self._compaction.is_writing:
            self._old_rows.remove(events, now)

    def close(self) -> None:
        """Waits until no file is being written and what was merged is listed."""
        self._compaction.close()
