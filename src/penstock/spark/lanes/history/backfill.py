"""Makes windows whole that were open when their view began: the map stage once more, over the earlier batches.

A job of its own beside the stream computes the partials of the earlier batches for the operators that lack them, with
the code that computes those of live tuples, and gives them to the window lane by one entry of the log.
Without the entry nothing has happened, and the next start does it again; with it, it is done.
"""

from __future__ import annotations

import logging
import pickle
import shutil
import threading
import time
import uuid
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from penstock.errors import StreamFailedError
from penstock.monitor.figures import counted
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.settings import Settings
from penstock.spark.ingest.query import IngestQuery
from penstock.spark.publication.history import Stretch
from penstock.spark.publication.kinds import folder_of
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.staged import BatchFiles, files_of_reports
from penstock.spark.recovery.messages import first_line
from penstock.spark.recovery.retries import Retries
from penstock.spark.sources.source import BoundBatch
from penstock.spark.storage.bindings import Beginning, PlanLog
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.formats import BACKFILL
from penstock.spark.storage.layout import LOG_KINDS, Layout, is_of_log
from penstock.spark.storage.past import CannotReadAgainError, Past
from penstock.spark.tasks.worker import TaskReport

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class _Missing:
    """Operators that lack the tuples of the batches before their first one, which is the same for all.

    Attributes:
        version: a plan version that has them.
        operators: their ids.
        views: names of their views.
        beginning: where they begin.
        first: windows of theirs hold no tuples that are older, microseconds.
    """

    version: int
    operators: tuple[int, ...]
    views: tuple[str, ...]
    beginning: Beginning
    first: int


def never_whole(layout: Layout, stream: str) -> set[int]:
    """The operators of a stream that lack tuples for good: the batches before their first one cannot be read again.

    Args:
        layout: output and checkpoint folders.
        stream: the stream's name.
    """
    marks = layout.backfilled(stream)
    told = {number: BACKFILL.read(marks[number]) for number in marks.numbers()}
    return {number for number, mark in told.items() if mark is not None and mark["impossible"] is not None}


class Backfill:
    """Follows the log of one stream in a thread of its own and makes whole what is not.

    Args:
        spark: the session; jobs run in a copy of it.
        ingest: the stream's ingest query.
        layout: output and checkpoint folders.
        events: the event log.
        settings: how often and after what wait is tried again what can pass; then the next start does.
    """

    def __init__(
        self,
        spark: SparkSession,
        ingest: IngestQuery,
        layout: Layout,
        events: EventLog,
        settings: Settings,
    ) -> None:
        self._spark = spark
        self._ingest = ingest
        self._layout = layout
        self._events = events
        self._settings = settings
        self._stream = ingest.stream
        self._marks = layout.backfilled(ingest.stream)
        self._staged = layout.staged_backfill(ingest.stream)
        self._plans = PlanLog(layout, ingest.stream)
        self._group = f"penstock-backfill-{uuid.uuid4().hex}"
        self._settled: set[int] = set()
        #: the first operators of backfills that this process has begun
        self._begun: set[int] = set()
        self._looked_at = -1
        self._stopping = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True, name="penstock-backfill")

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def finish(self) -> None:
        """Waits until everything is whole, or is known never to be; the ingest query has ended.

        Views that no batch has come for begin behind the last one.
        """
        last = read_published(self._layout, self._stream).last
        if last >= 0:
            version = self._ingest.plans.begin(last + 1)
            if version is not None:
                self._ingest.log.put_views(last, version)
        self._ending.set()
        self._thread.join()

    def stop(self) -> None:
        """Breaks off; the next start begins anew what was not done."""
        self._stopping.set()
        self._ending.set()
        if self._thread.ident is not None:
            try:
                self._spark.sparkContext.cancelJobGroup(self._group)
            except Exception as error:
                _log.info("nothing to cancel, the Spark session has ended: %s", first_line(error))
            self._thread.join()

    def _follow(self) -> None:
        self._try(self._look_until_told)

    def _try(self, attempt: Callable[[], None], views: Sequence[str] = ()) -> bool:
        """Makes attempts until one goes well; False where none did, which is told, and the next start begins anew."""
        retries = Retries(
            self._stream,
            "backfill",
            self._settings,
            self._events,
            details=lambda: {"views": list(views)},
        )
        try:
            retries.run(attempt, self._stopping)
        except StreamFailedError as error:
            _log.info("%s", error)
            return False
        return True

    def _look_until_told(self) -> None:
        self._spark.sparkContext.setJobGroup(self._group, f"penstock backfill {self._stream}", True)
        self._looked_at = -1
        ended = False
        while not ended and not self._stopping.is_set():
            # what is in the log when the end is told is looked at once more
            ended = self._ending.wait(_LOOK_SECONDS)
            for missing in self._missing():
                if not self._try(partial(self._attempt, missing), missing.views):
                    self._settled.update(missing.operators)

    def _missing(self) -> list[_Missing]:
        """What the newest plan version in the log lacks; one that has been looked at lacks nothing any more."""
        last = self._ingest.log.last
        if last is None or last.plan == self._looked_at:
            return []
        program = self._ingest.log.program(last.plan)
        register = self._plans.load_windows(last.plan)
        self._looked_at = last.plan
        self._forget_all_but({window.operator for window in register.windows})
        begun: dict[Beginning, list[int]] = {}
        floors: dict[int, int] = {}
        for window in register.windows:
            where = window.beginning
            if (
                where is None
                or where.newest is None
                or where.floor is None
                or window.operator in self._settled
            ):
                continue
            floor = floors.get(window.operator)
            floors[window.operator] = where.floor if floor is None else min(floor, where.floor)
            own = begun.setdefault(Beginning(where.batch, where.newest, None, where.offset), [])
            if window.operator not in own:
                own.append(window.operator)
        found = []
        for beginning, operators in begun.items():
            open_ones = tuple(each for each in operators if not self._is_settled(each, beginning.batch))
            plans = [plan for plan in program.every if plan.id in open_ones] if program else []
            if plans:
                views = tuple(view.name for plan in plans for view in plan.views)
                first = min(
                    floors[plan.id]
                    - max(0 if view.is_running else view.windows.size for view in plan.views)
                    + 1
                    for plan in plans
                )
                ids = tuple(plan.id for plan in plans)
                found.append(_Missing(last.plan, ids, views, beginning, first))
        return found

    def _forget_all_but(self, operators: Collection[int]) -> None:
        """Removes the marks of operators that are gone, which never come back, and what they had staged."""
        self._marks.remove(number for number in self._marks.numbers() if number not in operators)
        for path in self._staged.iterdir() if self._staged.is_dir() else ():
            if int(path.name) not in operators:
                shutil.rmtree(path, ignore_errors=True)

    def _is_settled(self, operator: int, batch: int) -> bool:
        """Whether an operator that began with a batch is whole, or never will be."""
        if BACKFILL.read(self._marks[operator]) is None:
            if not self._ingest.log.is_whole(operator, batch):
                return False
            self._settle((operator,), None)
        self._settled.add(operator)
        return True

    def _settle(self, operators: Collection[int], reason: str | None) -> None:
        for operator in operators:
            BACKFILL.put(self._marks[operator], {"impossible": reason})
            self._settled.add(operator)

    def _attempt(self, missing: _Missing) -> None:
        # they are given one entry: it is there for all of them, or for none
        if self._stopping.is_set() or all(
            self._is_settled(each, missing.beginning.batch) for each in missing.operators
        ):
            return
        try:
            self._make_whole(missing)
        except CannotReadAgainError as error:
            self._settle(missing.operators, str(error))
            self._events.record(
                "backfill_impossible", stream=self._stream, views=list(missing.views), reason=str(error)
            )

    def _make_whole(self, missing: _Missing) -> None:
        began = time.perf_counter()
        beginning = missing.beginning
        assert beginning.newest is not None, "earlier batches had tuples"
        if beginning.offset is None:
            raise CannotReadAgainError("Spark's checkpoint does not record how far it had read the source")
        published = read_published(self._layout, self._stream)
        before = [each for each in published.stretches if each.first < beginning.batch]
        reach = _reached(before, beginning.newest)

        def is_needed(batch: int) -> bool:
            number = bisect(before, batch, key=lambda each: each.first) - 1
            known = number >= 0 and batch <= before[number].last
            return (reach[number] if known else beginning.newest or 0) >= missing.first

        past = Past(self._layout.spark(self._stream), beginning.batch, beginning.offset, is_needed)
        program, derived = self._ingest.plans.for_operators(
            missing.version, missing.operators, (missing.first, beginning.newest)
        )
        store = self._files(missing.operators[0])
        broadcast = self._spark.sparkContext.broadcast(pickle.dumps(program, protocol=5))
        bound = BoundBatch(
            number=beginning.batch,
            program=program,
            derived=derived,
            key=(uuid.uuid4().hex, missing.version),
            broadcast=broadcast,
            sequence=None,
            store=store,
            time_limit=AFTER_ALL,
            time_floor=BEFORE_ALL,
            kept_ahead=0,
            too_late_before=-(2**61),
        )
        needed = [each for each in before if is_needed(each.first)]
        batches = sum(each.last - each.first + 1 for each in needed)
        self._events.record(
            "backfill_started", stream=self._stream, views=list(missing.views), batches=batches
        )
        session = SparkSession(self._spark.sparkContext, self._spark._jsparkSession.cloneSession())
        reports: list[TaskReport] = []
        try:
            for frame in self._ingest.source.again(session, past):
                reports += self._ingest.source.run(frame, bound)
                if self._stopping.is_set():
                    return
        finally:
            broadcast.destroy()
        # what lies on both sides of the beginning was read in part
        _refuse_less(reports, [each for each in needed if each.last < beginning.batch], before)
        failpoint("backfill_staged", missing.operators[0])
        names: dict[str, list[str]] = {}
        for file in files_of_reports(reports):
            if is_of_log(file.kind):
                names.setdefault(file.kind, []).append(file.name)
            else:
                store.discard([file])
        self._ingest.log.put_whole(missing.operators, names, beginning.newest)
        failpoint("backfill_logged", missing.operators[0])
        self._settle(missing.operators, None)
        store.clean()
        self._events.record(
            "backfill_done",
            stream=self._stream,
            views=list(missing.views),
            batches=batches,
            tuples=sum(report.counts.tuples for report in reports),
            seconds=round(time.perf_counter() - began, 3),
        )

    def _files(self, operator: int) -> BatchFiles:
        """What stores the files of a backfill; what an earlier process left is deleted."""
        layout, stem, scratch = self._layout, f"backfill-{operator:06d}", self._staged / str(operator)
        shutil.rmtree(scratch, ignore_errors=True)
        if operator not in self._begun:
            for kind in (*LOG_KINDS, "quarantine"):
                for left in folder_of(layout, self._stream, kind).glob(f"{stem}-*.parquet"):
                    left.unlink()
        # an entry that seemed to fail as it was put may name the files of an earlier attempt
        self._begun.add(operator)
        return BatchFiles(layout, self._stream, None, stem, scratch, scratch)


def _reached(stretches: Sequence[Stretch], newest: int) -> list[int]:
    """Largest event time that the stream can have brought with each of some stretches, believed or not.

    Args:
        stretches: all up to a batch, in order.
        newest: taken where it had brought none.
    """
    found: list[int] = []
    furthest: int | None = None
    for stretch in stretches:
        told = [furthest, stretch.newest, stretch.furthest, None if stretch.is_timed else AFTER_ALL]
        furthest = max((each for each in told if each is not None), default=None)
        found.append(newest if furthest is None else furthest)
    return found


def _refuse_less(reports: Sequence[TaskReport], needed: Sequence[Stretch], every: Sequence[Stretch]) -> None:
    """Makes sure that what was read again is not less than what was read before.

    Args:
        reports: what the tasks read.
        needed: what the manifests say of the batches that had to be read.
        every: and of all batches, some of which may have been read beside.

    Raises:
        CannotReadAgainError: tuples are missing, or records were set aside that were not before.
    """
    aside: Counter[str] = Counter()
    known: Counter[str] = Counter()
    for report in reports:
        aside.update(report.quarantined)
    for stretch in every:
        known.update(stretch.quarantined)
    tuples = sum(report.counts.tuples for report in reports)
    before = sum(stretch.tuples for stretch in needed)
    # kind by kind it says nothing: a reason names columns, and others were read before
    if tuples >= before and aside.total() <= known.total():
        return
    for report in reports:
        for place in report.set_aside:
            if place.reason not in known:
                raise CannotReadAgainError(f"{place.origin} cannot be read: {place.reason}")
    for reason, number in (aside - known).items():
        raise CannotReadAgainError(
            f"{counted(number, 'record')} readable before cannot be read now: {reason}"
        )
    raise CannotReadAgainError(f"the source still has {tuples:,} of {counted(before, 'tuple')} read before")
