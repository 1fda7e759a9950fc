"""Makes windows whole that were open when their view began: the map stage once more, over the earlier batches.

A job of its own beside the stream computes the partials of the earlier batches for the operators that lack them, with
the code that computes those of live tuples, and gives them to the keyed query by one entry of the envelope log.
Without the entry nothing has happened, and the next start does it again; with it, it is done.
"""

from __future__ import annotations

import logging
import pickle
import shutil
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.errors import StreamFailedError
from penstock.settings import Settings
from penstock.spark.beginnings import AFTER_ALL
from penstock.spark.bindings import Beginning, PlanLog
from penstock.spark.events import EventLog
from penstock.spark.failpoints import failpoint
from penstock.spark.files import put_json_if_absent, read_json, sync_folder
from penstock.spark.ingest import IngestQuery
from penstock.spark.layout import ENVELOPES, Layout
from penstock.spark.messages import first_line
from penstock.spark.past import CannotReadAgainError, Past
from penstock.spark.publish import read_manifests
from penstock.spark.retries import Retries
from penstock.spark.source import BoundBatch
from penstock.spark.worker import TaskReport

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
        self._marks = layout.backfill(ingest.stream)
        self._plans = PlanLog(layout, ingest.stream)
        self._group = f"penstock-backfill-{uuid.uuid4().hex}"
        self._settled: set[int] = set()
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
        manifests = read_manifests(self._layout, self._stream)
        if manifests:
            last = manifests[-1]["last"]
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
                _log.info("nothing to cancel, the session is gone: %s", first_line(error))
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
            details={"views": list(views)},
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
            plans = [plan for plan in program.operators if plan.id in open_ones] if program else []
            if plans:
                views = tuple(view.name for plan in plans for view in plan.views)
                first = min(
                    floors[plan.id] - max(view.windows.size for view in plan.views) + 1 for plan in plans
                )
                ids = tuple(plan.id for plan in plans)
                found.append(_Missing(last.plan, ids, views, beginning, first))
        return found

    def _is_settled(self, operator: int, batch: int) -> bool:
        """Whether an operator that began with a batch is whole, or never will be."""
        if read_json(self._marks / f"{operator}.json") is None:
            if not self._ingest.log.is_whole(operator, batch):
                return False
            self._settle((operator,), None)
        self._settled.add(operator)
        return True

    def _settle(self, operators: Collection[int], reason: str | None) -> None:
        for operator in operators:
            put_json_if_absent(self._marks / f"{operator}.json", {"impossible": reason})
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
        assert beginning.newest is not None, "batches before brought tuples"
        if beginning.offset is None:
            raise CannotReadAgainError("Spark's checkpoint does not say how far the source had been read")
        figures = self._figures(beginning.batch)
        reach: dict[int, int] = {}
        furthest = None
        for batch, found in figures.items():
            told = _furthest(found)
            furthest = told if furthest is None else furthest if told is None else max(furthest, told)
            reach[batch] = beginning.newest if furthest is None else furthest

        def is_needed(batch: int) -> bool:
            return reach.get(batch, beginning.newest or 0) >= missing.first

        past = Past(self._layout.spark(self._stream), beginning.batch, beginning.offset, is_needed)
        program, derived = self._ingest.plans.for_operators(
            missing.version, missing.operators, (missing.first, beginning.newest)
        )
        staging = self._marks / f"staged-{missing.operators[0]}"
        shutil.rmtree(staging, ignore_errors=True)
        broadcast = self._spark.sparkContext.broadcast(pickle.dumps(program, protocol=5))
        bound = BoundBatch(
            number=beginning.batch,
            program=program,
            derived=derived,
            key=(uuid.uuid4().hex, missing.version),
            broadcast=broadcast,
            sequence=None,
            staging=str(staging),
            staged_envelopes=str(staging),
            time_limit=2**61,
            time_floor=-(2**61),
            kept_ahead=0,
        )
        needed = [found for batch, found in figures.items() if is_needed(batch)]
        self._events.record(
            "backfill_started", stream=self._stream, views=list(missing.views), batches=len(needed)
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
        _refuse_less(reports, needed, list(figures.values()))
        failpoint("backfill_staged", missing.operators[0])
        files = self._publish(missing.operators[0], reports)
        failpoint("backfill_published", missing.operators[0])
        self._ingest.log.put_whole(missing.operators, files, beginning.newest)
        failpoint("backfill_logged", missing.operators[0])
        self._settle(missing.operators, None)
        shutil.rmtree(staging, ignore_errors=True)
        self._events.record(
            "backfill_done",
            stream=self._stream,
            views=list(missing.views),
            batches=len(needed),
            tuples=sum(report.counts.tuples for report in reports),
            seconds=round(time.perf_counter() - began, 3),
        )

    def _figures(self, before: int) -> Mapping[int, dict[str, Any]]:
        """What the manifests say of each batch before one, in order."""
        return {
            figures["batch"]: figures
            for manifest in read_manifests(self._layout, self._stream)
            for figures in manifest["batches"]
            if figures["batch"] < before
        }

    def _publish(self, operator: int, reports: Sequence[TaskReport]) -> list[str]:
        """Gives the staged envelopes names of their own, and removes what an earlier attempt left."""
        folder = self._layout.envelopes(self._stream)
        for left in folder.glob(f"backfill-{operator:06d}-*.parquet"):
            left.unlink()
        names = []
        for report in reports:
            for staged in report.files:
                if staged.kind == ENVELOPES:
                    name = f"backfill-{operator:06d}-{report.job}-{report.partition:05d}.parquet"
                    Path(staged.path).rename(folder / name)
                    names.append(name)
        sync_folder(folder)
        return names


def _furthest(figures: Mapping[str, Any]) -> int | None:
    """Largest event time that a batch can have brought, believed or not; None where it brought none."""
    told = [figures.get(f"{which}_event_time_us") for which in ("newest", "furthest")]
    known = [each for each in told if each is not None]
    if figures["tuples"] and not known and "null_event_times" not in figures:
        # the stream had no event time then: as late as any
        return AFTER_ALL
    return max(known, default=None)


def _refuse_less(
    reports: Sequence[TaskReport], needed: Sequence[Mapping[str, Any]], every: Sequence[Mapping[str, Any]]
) -> None:
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
    for figures in every:
        known.update(figures.get("quarantined", {}))
    tuples = sum(report.counts.tuples for report in reports)
    before = sum(figures["tuples"] for figures in needed)
    # kind by kind it says nothing: a reason names columns, and others were read before
    if tuples >= before and aside.total() <= known.total():
        return
    for report in reports:
        for place in report.set_aside:
            if place.reason not in known:
                raise CannotReadAgainError(f"{place.origin} cannot be read: {place.reason}")
    for reason, number in (aside - known).items():
        raise CannotReadAgainError(f"records that were read before cannot be now ({number:,}): {reason}")
    raise CannotReadAgainError(f"the source has {tuples:,} of {before:,} tuples that were read before")
