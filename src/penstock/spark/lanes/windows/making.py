"""What a cut publishes of staged results. Those that only Spark can make are made by one job; those of a view for which that fails wait.

What waits is raw files, see `window_staging`, in the lane's folder of the checkpoint. The commit of a cut lists them. Once they can be made, the
commit that publishes their results lists them no more. Neighbours in size are merged, as in a log-structured merge tree.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from penstock.spark.lanes.cells import CellJobs
from penstock.spark.lanes.stopped import Place, Settled, StoppedViews, divided
from penstock.spark.publication.kinds import view_kind
from penstock.spark.publication.staged import BatchFiles, Staged, WrittenFile
from penstock.spark.recovery.causes import Cause
from penstock.spark.results.window_rows import MadeResults, make_results
from penstock.spark.results.window_staging import SaidWindows, StagedResults, ViewCounts, written
from penstock.spark.storage.formats import WAITING_ROWS
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.ledger_documents import StoredDocument
from penstock.spark.storage.store_paths import name_below, opened
from penstock.sql.windows.bind import BoundWindow

#: files up to so many times as large as what follows them are merged with it
_RATIO = 4


class _File(NamedTuple):
    """A raw file that waits: its name, rows and bytes."""

    name: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits of one view.

    Attributes:
        files: raw files, the oldest first.
        counts: what they say; of a view with HAVING its rows are not known yet.
        progress: how far the view was answered before, as `Progress`; None: nobody read it.
    """

    files: tuple[_File, ...]
    counts: ViewCounts
    progress: Mapping[str, Any] | None

    @property
    def rows(self) -> int:
        """How many groups wait, each revision counted."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class Made:
    """What a cut publishes.

    Attributes:
        files: the files.
        counts: what they say by view.
        progress: of the views that wait how far they are answered, as `Progress`; None: nobody read it before.
        puts, deletes: what the commit puts and deletes.
        committed: to be called behind it.
    """

    files: Sequence[Staged]
    counts: Mapping[str, ViewCounts]
    progress: Mapping[str, Mapping[str, Any] | None]
    puts: Mapping[StoredDocument, Mapping[str, Any]]
    deletes: Sequence[StoredDocument]
    committed: Callable[[], None]

    def progress_of(self, views: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """How far views are answered, given how far they are where nothing waits."""
        found = {**views, **{view: self.progress[view] for view in views.keys() & self.progress.keys()}}
        return {view: each for view, each in found.items() if each is not None}


@dataclass(slots=True)
class _Attempted:
    """What came of the raw files of a cut."""

    made: list[MadeResults] = field(default_factory=list)
    failed: dict[Place, Cause] = field(default_factory=dict)


class ResultMaking:
    """Makes the results of one lane's views; its thread calls it.

    Args:
        spark: the session.
        layout: output and checkpoint folders.
        lane: the lane's name.
        jobs: the lane's.
        stopped: its views that cannot be answered.
        views: gives the views of an operator.
    """

    def __init__(
        self,
        spark: SparkSession,
        layout: Layout,
        lane: str,
        jobs: CellJobs,
        stopped: StoppedViews,
        views: Callable[[int], Mapping[str, BoundWindow]],
    ) -> None:
        self._spark = spark
        self._layout = layout
        self._jobs = jobs
        self._stopped = stopped
        self._views = views
        self._document = layout.waiting(lane)
        self._folder = layout.waiting_rows(lane)
        #: as the ledger has it
        self._waiting: Mapping[Place, Waiting] = {}

    def recover(self) -> None:
        """Goes by what the ledger has, and deletes files that attempts before have left.

        Raises:
            CheckpointError: another version of Penstock wrote it, or it is damaged.
        """
        document = WAITING_ROWS.read(self._document)
        self._waiting = {} if document is None else dict(map(_read, document["views"]))
        self._stopped.retain(self._waiting.keys())
        for place, each in self._waiting.items():
            if place not in self._stopped:
                self._stopped.remember(place, each.rows)
        store = self._layout.log_store
        listed = {file.name for each in self._waiting.values() for file in each.files}
        below = name_below(self._layout.checkpoint, self._folder)
        gone = [each.name for each in store.list(below) if each.name.rpartition("/")[2] not in listed]
        if gone:
            # fails if another run has taken over, whose files these may be
            self._layout.ledger.writer.commit()
            store.delete(gone)

    def leave(self) -> None:
        """Forgets what waits: nobody will answer it."""
        self._document.remove()
        self._delete(file.name for each in self._waiting.values() for file in each.files)
        self._waiting = {}

    def made(
        self,
        staged: Sequence[StagedResults],
        store: BatchFiles,
        wanted: Collection[Place],
        progress: Callable[[str], Mapping[str, Any] | None],
        *,
        was_tried: bool,
    ) -> Made:
        """Makes what a cut publishes.

        Args:
            staged: what its tasks have staged.
            store: stores the files.
            wanted: the operators and views that are answered; what waits of others is dropped.
            progress: how far a view was answered before this cut, as `Progress`.
            was_tried: whether the attempt before failed.

        Raises:
            Exception: Spark failed for a cause that has nothing to do with views.
        """
        before = {place: each for place, each in self._waiting.items() if place in wanted}
        raw: dict[Place, list[StagedResults]] = {}
        for each in staged:
            if each.raw:
                raw.setdefault(Place(each.operator, each.view), []).append(each)
        tried = {place for place in (*raw, *before) if self._stopped.is_due(place)}
        attempted = self._attempt(raw, before, tried, store, was_tried=was_tried)
        left = {place for place in (*raw, *before) if place not in tried or place in attempted.failed}
        waits = left.intersection(wanted)
        counts = _counted(
            [each for each in staged if not (each.raw and Place(each.operator, each.view) in left)],
            [before[place] for place in before if place not in waits],
            [place.view for place in before if place not in waits],
            attempted.made,
        )
        now = {
            place: self._kept(place, before.get(place), raw.get(place, ()), store, progress)
            for place in sorted(waits)
        }
        settled = Settled(
            replaced=self._waiting.keys() - before.keys(),
            answered=tried - left,
            failed={place: cause for place, cause in attempted.failed.items() if place in waits},
            kept_rows={place: each.rows for place, each in now.items()},
        )
        names = {file.name for each in now.values() for file in each.files}
        gone = [file.name for each in self._waiting.values() for file in each.files if file.name not in names]
        is_changed = bool(now or self._waiting)
        listed = [_written(place, each) for place, each in now.items()]
        return Made(
            files=[*(each for each in staged if not each.raw), *attempted.made],
            counts=counts,
            progress={place.view: each.progress for place, each in now.items()},
            puts={self._document: WAITING_ROWS.stamped({"views": listed})} if is_changed and now else {},
            deletes=[self._document] if is_changed and not now else [],
            committed=partial(self._committed, now, gone, settled),
        )

    def _attempt(
        self,
        raw: Mapping[Place, Sequence[StagedResults]],
        before: Mapping[Place, Waiting],
        tried: Collection[Place],
        store: BatchFiles,
        *,
        was_tried: bool,
    ) -> _Attempted:
        """Makes results, of views that wait each by itself: they cost no other view a second job."""
        found = _Attempted()
        if not tried:
            return found
        self._jobs.own()

        def make(places: Sequence[Place]) -> list[MadeResults]:
            files = [self._stored(place, file) for place in places for file in _files(before, place)]
            files += [each for place in places for each in raw.get(place, ()) if each.left]
            return make_results(self._spark, files, lambda each: self._views(each.operator)[each.view], store)

        sound = [place for place in raw if place in tried and place not in self._stopped]
        for places in ([sound] if sound else []) + [[place] for place in tried if place not in sound]:
            answers, failed = divided(make, places, was_tried=was_tried)
            found.made += [each for answer in answers for each in answer]
            found.failed |= dict(failed)
        return found

    def _stored(self, place: Place, file: _File) -> StagedResults:
        """A file that waits, as a task has staged it."""
        left = WrittenFile(view_kind(*place), self._folder / file.name, file.rows)
        return StagedResults(*place, 0, True, left, SaidWindows())

    def _kept(
        self,
        place: Place,
        before: Waiting | None,
        raw: Sequence[StagedResults],
        store: BatchFiles,
        progress: Callable[[str], Mapping[str, Any] | None],
    ) -> Waiting:
        """What waits of a view behind a cut, its files durable on return."""
        said = SaidWindows()
        for each in raw:
            said.add(each.said)
        new = said.counts()
        counts = new if before is None else _sum(before.counts, new)
        files = list(before.files) if before is not None else []
        kept = progress(place.view) if before is None else before.progress
        added = [file.path for each in raw for file in each.left]
        if added:
            tables = [_table(path) for path in added]
            size = sum(table.nbytes for table in tables)
            while files and files[-1].size <= _RATIO * size:
                last = files.pop()
                tables.insert(0, _table(self._folder / last.name))
                size += last.size
            content = written("", pa.concat_tables(tables)).content
            assert isinstance(content, memoryview), "just written"
            name = f"{store.stem}-{place.operator}-{uuid.uuid4().hex[:8]}.parquet"
            self._layout.log_store.put(name_below(self._layout.checkpoint, self._folder / name), content)
            files.append(_File(name, sum(table.num_rows for table in tables), len(content)))
        return Waiting(tuple(files), counts, kept)

    def _committed(self, now: Mapping[Place, Waiting], gone: Sequence[str], settled: Settled) -> None:
        self._waiting = now
        self._delete(gone)
        self._stopped.settle(settled)

    def _delete(self, names: Any) -> None:
        self._layout.log_store.delete(
            name_below(self._layout.checkpoint, self._folder / name) for name in names
        )


def _files(before: Mapping[Place, Waiting], place: Place) -> Sequence[_File]:
    return before[place].files if place in before else ()


def _table(path: Any) -> pa.Table:
    with opened(path) as local:
        return pq.ParquetFile(local).read()


def _counted(
    staged: Sequence[StagedResults],
    waited: Sequence[Waiting],
    names: Sequence[str],
    made: Sequence[MadeResults],
) -> dict[str, ViewCounts]:
    """What is said of views: of those that are made in this cut, and of what waited and is made with it."""
    said: dict[str, SaidWindows] = {}
    for each in staged:
        said.setdefault(each.view, SaidWindows()).add(each.said)
    counts = {name: own.counts() for name, own in said.items()}
    for name, own_waiting in zip(names, waited, strict=True):
        counts[name] = _sum(counts.get(name, ViewCounts()), own_waiting.counts)
    for result in (each for each in made if each.view):
        # the groups before HAVING are no rows of the view
        rows = sum(file.rows for file in result.files)
        counts[result.view] = replace(counts[result.view], rows=rows, revised_rows=rows - result.more)
    return counts


def _sum(one: ViewCounts, other: ViewCounts) -> ViewCounts:
    return ViewCounts(
        *(mine + its for mine, its in zip(asdict(one).values(), asdict(other).values(), strict=True))
    )


def _written(place: Place, waiting: Waiting) -> dict[str, Any]:
    return {
        "operator": place.operator,
        "view": place.view,
        "files": [list(file) for file in waiting.files],
        "counts": asdict(waiting.counts),
        "progress": waiting.progress,
    }


def _read(document: Mapping[str, Any]) -> tuple[Place, Waiting]:
    files = tuple(_File(*file) for file in document["files"])
    waiting = Waiting(files, ViewCounts(**document["counts"]), document["progress"])
    return Place(document["operator"], document["view"]), waiting
