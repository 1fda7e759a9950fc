"""Makes operators whole that began in mid-stream: the map stage once more, over the batches before their first one.

A job beside the stream computes the partials of these batches for the operators that lack them, with the code that computes those of live
tuples. One commit puts the entry of the log that gives them to the lanes, and the marks of the operators. Before it nothing has happened, and the
next attempt does it again.
"""

from __future__ import annotations

import logging
import pickle
import time
import uuid
from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from penstock.errors import StreamFailedError
from penstock.monitor.figures import counted
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.lanes.history.lane import HistoryLane
from penstock.spark.lanes.lane import LaneContext
from penstock.spark.log.wholeness import settled
from penstock.spark.publication.history import Stretch
from penstock.spark.publication.kinds import folder_of
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.staged import BatchFiles, files_of_reports
from penstock.spark.recovery.retries import Retries
from penstock.spark.sources.source import BoundBatch
from penstock.spark.storage.bindings import Beginning, PlanLog
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.layout import LOG_KINDS, is_of_log
from penstock.spark.storage.ledger_documents import commit
from penstock.spark.storage.past import CannotReadAgainError, Past
from penstock.spark.tasks.worker import TaskReport
from penstock.stores.ledger import ABSENT

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.2


def backfill_of(stream: str) -> str:
    """The name of the lane that reads a stream's earlier batches again."""
    return f"{stream}.backfill"


@dataclass(frozen=True, slots=True)
class _Missing:
    """Operators that lack the tuples of the batches before their first one, which is the same for all.

    Attributes:
        version: a plan version that has them.
        operators: their ids.
        views: names of their views.
        where: they begin, after batches with tuples; the floor is that of none.
        first: windows of theirs hold no tuples that are older, microseconds.
    """

    version: int
    operators: tuple[int, ...]
    views: list[str]
    where: Beginning
    first: int


class BackfillLane(HistoryLane):
    """Makes the operators of one stream whole; it puts entries of its own into the stream's log.

    What cannot be made whole is told, and tried again by the next start; the lane goes on.

    Args:
        context: the run's.
        keeper: of the stream's log, which is not complete before the lane has finished.
    """

    part = "backfills"

    def __init__(self, context: LaneContext, keeper: LogKeeper) -> None:
        self._stream = keeper.stream
        super().__init__(backfill_of(self._stream), context, keeper)
        self._ingest = keeper.ingest
        self._plans = PlanLog(context.layout, self._stream)
        self._marks = context.layout.backfilled(self._stream)
        #: operators that this run does not try to make whole any more
        self._given_up: set[int] = set()
        #: the first operators of those whose files a commit of this process may name
        self._committing: set[int] = set()
        self._looked_at = -1
        self._keeper = keeper
        self._has_put_all = keeper.hold()

    def _close(self) -> None:
        self._has_put_all.set()
        super()._close()

    def _attempt(self) -> None:
        self._looked_at = -1
        is_over = False
        while not (is_over or self._stopping.wait(_LOOK_SECONDS)):
            # what is in the log when no view begins any more is looked at once more
            is_over = self._keeper.has_begun_all.is_set() or not self._is_fed
            for missing in self._missing():
                self._try(missing)
            self.retries.succeeded()

    def _try(self, missing: _Missing) -> None:
        """Makes attempts until one goes well; that none does is told."""
        context, told = self.context, {"lane": self.name, "views": missing.views}
        retries = Retries(self._stream, "backfill", context.settings, context.events, details=lambda: told)
        try:
            retries.run(partial(self._make_whole, missing), self._stopping)
        except StreamFailedError as error:
            _log.info("%s", error)
            self._given_up.update(missing.operators)

    def _missing(self) -> list[_Missing]:
        """What the newest plan version in the log lacks; one that has been looked at lacks nothing any more."""
        last = self._ingest.log.last
        if last is None or last.plan == self._looked_at:
            return []
        program = self._ingest.log.program(last.plan)
        register = self._plans.load_windows(last.plan)
        self._looked_at = last.plan
        # operators that are gone never come back
        present = {window.operator for window in register.windows}
        self._marks.remove(number for number in self._marks.numbers() if number not in present)
        done = {*self._marks.numbers(), *self._given_up}
        begun: dict[Beginning, dict[int, int]] = {}
        for window in register.windows:
            where = window.beginning
            if where is not None and where.floor is not None and window.operator not in done:
                floors = begun.setdefault(replace(where, floor=None), {})
                floors[window.operator] = min(where.floor, floors.get(window.operator, where.floor))
        found = []
        for where, floors in begun.items():
            plans = [plan for plan in program.every if plan.id in floors] if program else []
            if where.newest is not None and plans:
                views = [view.name for plan in plans for view in plan.views]
                first = min(
                    floors[plan.id] - max(0 if each.is_running else each.windows.size for each in plan.views)
                    for plan in plans
                )
                ids = tuple(plan.id for plan in plans)
                found.append(_Missing(last.plan, ids, views, where, first + 1))
        return found

    def _make_whole(self, missing: _Missing) -> None:
        """Gives operators the tuples they lack, or says that they never get them; one commit does it for all of them."""
        operators, views, events = missing.operators, missing.views, self.context.events
        if self._stopping.is_set() or self._marks[operators[0]].exists():
            return
        began = time.perf_counter()
        layout = self.context.layout
        store = BatchFiles(
            layout, self._stream, None, _stem(operators[0]), *layout.staging(self.name, next(self._attempts))
        )
        self._remove_files(store)
        try:
            batches, reports = self._read_again(missing, store)
        except CannotReadAgainError as error:
            never = settled(layout, self._stream, operators, str(error))
            commit(never, expect=dict.fromkeys(never, ABSENT))
            self._remove_files(store)
            events.record("backfill_impossible", stream=self._stream, views=views, reason=str(error))
            return
        finally:
            store.clean()
        if self._stopping.is_set():
            return
        failpoint("backfill_staged", operators[0])
        names: dict[str, list[str]] = {}
        for file in files_of_reports(reports):
            if is_of_log(file.kind):
                names.setdefault(file.kind, []).append(file.name)
            else:
                store.discard([file])
        self._committing.add(operators[0])
        self._ingest.log.put_whole(operators, names, missing.where.newest)
        failpoint("backfill_logged", operators[0])
        events.record(
            "backfill_done",
            stream=self._stream,
            views=views,
            batches=batches,
            tuples=sum(report.counts.tuples for report in reports),
            seconds=round(time.perf_counter() - began, 3),
        )

    def _read_again(self, missing: _Missing, store: BatchFiles) -> tuple[int, list[TaskReport]]:
        """Computes the partials of the batches before.

        Returns:
            How many batches, and what the tasks report; of some alone where the lane is stopped.

        Raises:
            CannotReadAgainError: the source has less than what was read before.
        """
        batch, offset, newest = missing.where.batch, missing.where.offset, missing.where.newest
        assert newest is not None, "earlier batches had tuples"
        if offset is None:
            raise CannotReadAgainError("Spark's checkpoint does not record how far it had read the source")
        layout, source = self.context.layout, self._ingest.source
        before = [each for each in read_published(layout, self._stream).stretches if each.first < batch]
        reach = _reached(before, newest)

        def is_needed(earlier: int) -> bool:
            number = bisect(before, earlier, key=lambda each: each.first) - 1
            known = number >= 0 and earlier <= before[number].last
            return (reach[number] if known else newest) >= missing.first

        past = Past(layout.spark(self._stream), batch, offset, is_needed)
        span = missing.first, newest
        program, derived = self._ingest.plans.for_operators(missing.version, missing.operators, span)
        session = self.jobs.session()
        broadcast = session.sparkContext.broadcast(pickle.dumps(program, protocol=5))
        bound = BoundBatch(
            number=batch,
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
        self.context.events.record(
            "backfill_started", stream=self._stream, views=missing.views, batches=batches
        )
        reports: list[TaskReport] = []
        try:
            for frame in source.again(session, past):
                reports += source.run(frame.coalesce(self.most_tasks), bound)
                if self._stopping.is_set():
                    return batches, reports
        finally:
            broadcast.destroy()
        # what lies on both sides of the beginning was read in part
        _refuse_less(reports, [each for each in needed if each.last < batch], before)
        return batches, reports

    def _remove_files(self, store: BatchFiles) -> None:
        """Removes what attempts for the same operators have left, unless a commit that seemed to fail may name it."""
        if any(store.stem == _stem(first) for first in self._committing):
            return
        # fails if another run has taken over, whose files these may be
        store.layout.ledger.writer.commit()
        for kind in (*LOG_KINDS, "quarantine"):
            for left in folder_of(store.layout, self._stream, kind).glob(f"{store.stem}-*.parquet"):
                left.unlink()


def _stem(first: int) -> str:
    """What the names of the files begin with that are for some operators, given the first of these."""
    return f"backfill-{first:06d}"


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
