"""Lanes whose cuts are put and answered from the driver, each by stateless jobs.

Order: the cut is put, and its answer stored. One commit publishes the answer, puts the lane's marks in the logs and removes the cut;
if the rows of its views are streams again, the cut is removed once their logs have them. A cut that the ledger has at a start is answered
again, or put into these logs if it is published: the same cut has the same answer.
"""

from __future__ import annotations

import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from penstock.errors import CheckpointError
from penstock.spark.lanes.cells import CellJobs
from penstock.spark.lanes.cuts import Cut, Cuts, Reach, Since
from penstock.spark.lanes.lane import Lane, LaneContext, LaneInput
from penstock.spark.lanes.shared_jobs import SharedJobs
from penstock.spark.lanes.stopped import StoppedViews
from penstock.spark.log.row_log import held_rows
from penstock.spark.log.stream_log import SINCE, LogReader
from penstock.spark.publication.publish import Published, Publisher
from penstock.spark.publication.staged import BatchFiles, Staged
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.ledger_documents import StoredDocument
from penstock.spark.storage.offsets import REMEDY

#: whether something is due is looked at so often while nothing comes ...
_LOOK_SECONDS = 0.05
#: ... and a log that nobody in this process writes so often: a run may have a hundred lanes, and each look reads the ledger
_OTHERS_SECONDS = 0.2
#: a run that ends with what is available waits for more entries so many times as long as its newest cut took, at the most so long:
#: what a cut costs, whatever it answers, is paid once for them, and nobody waits for the newest answer
_GATHER_SHARE, _GATHER_SECONDS = 4.0, 3.0


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """What a cut has come to.

    Attributes:
        staged: the files of its results.
        figures: what its manifest and its event say beside; JSON values.
        marks: what the lane says to the writers of its logs beside how far it has come.
        puts, deletes: further documents that the commit puts and deletes.
        told: what its event says beside.
        done: called once the cut is visible.
    """

    staged: Sequence[Staged] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    marks: Mapping[str, Any] = field(default_factory=dict)
    puts: Mapping[StoredDocument, Mapping[str, Any]] = field(default_factory=dict)
    deletes: Sequence[StoredDocument] = ()
    told: Mapping[str, Any] = field(default_factory=dict)
    done: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Spent:
    """How long the steps of a cut have taken, seconds.

    Attributes:
        wake: since its newest entry was put, when the lane found it; None where it has none, or was put before.
        put: to put the cut.
        answer: to answer it.
        publish: to publish it.
    """

    wake: float | None
    put: float
    answer: float
    publish: float


@dataclass(frozen=True, slots=True)
class _Task:
    """A cut that is to be answered.

    Attributes:
        cut: which.
        wake_seconds: since its newest entry was put, when the lane found it; None where it has none, or was put before.
        put_seconds: how long it took to put the cut.
    """

    cut: Cut
    wake_seconds: float | None = None
    put_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Standing:
    """How far the lane has come: the number of its next cut, and where that one begins."""

    number: int
    reach: Mapping[str, Reach]


class CutLane(Lane):
    """Answers numbered cuts.

    Args:
        name: see `Lane`; it is also the lane's among manifests, so no stream has it.
        context: the run's.
        streams: the logs it reads.
        entries_per_cut: most entries of each log in a cut.
        shared: with which lanes its jobs may be run together; None: with none.
    """

    part = "lane"
    #: whether answers take tuples of entries before their cut: these are there as far back as `Cut.since` says
    reads_again: bool = False

    def __init__(
        self,
        name: str,
        context: LaneContext,
        streams: Sequence[LaneInput],
        entries_per_cut: int = 64,
        shared: SharedJobs | None = None,
    ) -> None:
        super().__init__(name, context, streams)
        self.publisher = Publisher(
            context.layout,
            name,
            (),
            owner=name,
            failpoints="cut_",
            grace_seconds=context.settings.replaced_seconds,
            held=partial(held_rows, context.layout),
            retention=context.retention,
        )
        self.jobs = CellJobs(context.spark, name, shared)
        #: views that are not answered while the others are
        self.stopped = StoppedViews(
            name,
            streams[0].ingest.stream,
            self.part,
            context.settings,
            context.events,
            is_endless=not context.trigger.is_bounded,
        )
        self._cuts = Cuts(context.layout.cuts(name))
        self._entries_per_cut = entries_per_cut
        #: how long the newest cut took
        self._cut_seconds = 0.0

    @abstractmethod
    def answer(self, cut: Cut, store: BatchFiles) -> CutAnswer:
        """Answers a cut, of what the logs hold up to it and of nothing else.

        Args:
            cut: which.
            store: stores its files.
        """

    def orders(self, until: Mapping[str, Reach]) -> Mapping[str, Any]:  # noqa: ARG002
        """What else the answer to the next cut depends on; put with it, before any work."""
        return {}

    @property
    def is_due(self) -> bool:
        """Whether entries that have come are answered now; those that are the last ones always are."""
        return True

    @property
    def has_more(self) -> bool:
        """Whether a cut is due though no entry has come: a view that was stopped is tried again."""
        return self.stopped.are_due

    @property
    def awaits_more(self) -> bool:
        """Whether such a cut may become due; asked where nothing else is left to answer, and the lane does not end before."""
        return self.stopped.are_awaited and not self._finishing.is_set()

    @property
    def failures(self) -> list[Mapping[str, Any]]:
        """Likewise; where the lane has failed, its views are named by that."""
        return super().failures or self.stopped.failures

    def is_complete_for(self, view: str) -> bool:
        """Likewise; a view that is stopped is not."""
        return self.is_complete and view not in self.stopped.names

    def figures_before(self, cut: Cut) -> Mapping[str, Any]:
        """What the manifest of the cut before says of it; {} of the first one."""
        before = self.publisher.published(cut.number - 1) if cut.number else None
        return {} if before is None else before.figures

    def record(self, cut: Cut, answer: CutAnswer, spent: Spent) -> None:
        """Records a cut that was published just now."""
        self.context.events.record(
            "cut",
            lane=self.name,
            cut=cut.number,
            streams={stream: reach.entry for stream, reach in cut.until.items()},
            entries=cut.entries,
            figures=dict(answer.figures),
            **answer.told,
            wake_seconds=spent.wake,
            put_seconds=spent.put,
            answer_seconds=spent.answer,
            publish_seconds=spent.publish,
        )

    def leave(self) -> None:
        """Likewise; a cut that is not published is not answered any more, what is published stays."""
        self._cuts.clear()
        super().leave()

    def _halt(self) -> None:
        self.context.appended.tell()
        self.jobs.cancel()

    def _attempt(self) -> None:
        standing = self._recover()
        while not self._stopping.is_set():
            task = self._next(standing)
            if task is None:
                return
            standing = self._take(task)

    def _recover(self) -> _Standing:
        """Finishes what a run before has left half done, but for a cut that is not published."""
        newest = self._newest_published()
        standing = _Standing(0, {}) if newest is None else _Standing(newest[0] + 1, newest[1])
        while (cut := self._cuts.oldest()) is not None and cut.number < standing.number:
            self._hand_over(cut, self.publisher.published(cut.number))
            self._cuts.remove(cut)
        if cut is not None and cut.number > standing.number:
            raise CheckpointError(
                f"lane {self.name}: cut {cut.number} exists, but the results folder ends before cut "
                f"{standing.number}: it was restored from an older copy, or files are missing; {REMEDY}"
            )
        if newest is not None:
            self._tell(newest[0], newest[1])
        reach = {stream: self._began(stream, standing.reach.get(stream)) for stream in self.readers}
        return _Standing(standing.number, reach)

    def _began(self, stream: str, reach: Reach | None) -> Reach:
        """Where the lane goes on in a log, given how far it came; one that left, or never read it, begins anew.

        So does one that was ended before its first cut there. A mark of a cut that is not published is another thing: what was set
        back is answered again, or refused where it is gone.
        """
        reader = self.readers[stream]
        mark = reader.mark(self.name)
        if mark is None:
            mark = self._join(reader)
        if reach is None or (reach.entry < mark and reader.has_only_joined(self.name)):
            return Reach(mark)
        return reach

    def _join(self, reader: LogReader) -> int:
        """Puts the first mark in a log, and gives the last entry before the lane's first one."""
        return reader.join(self.name, reads_again=self.reads_again)

    def _next(self, standing: _Standing) -> _Task | None:
        """The cut that is to be answered, put; None where the lane has come to its end or is stopped."""
        cut = self._cuts.oldest()
        if cut is not None:
            return _Task(cut)
        until = self._wait(standing.reach)
        if until is None:
            return None
        self.jobs.expect()
        came = [reach.clock or 0 for stream, reach in until.items() if reach != standing.reach[stream]]
        wake = max(0.0, time.time() - max(came) / 1e6) if came else None
        began = time.perf_counter()
        cut = Cut(standing.number, standing.reach, until, self.orders(until), self._since(standing.reach))
        self._cuts.put(cut)
        failpoint("cut_put", cut.number, self.name)
        return _Task(cut, wake, time.perf_counter() - began)

    def _since(self, before: Mapping[str, Reach]) -> Mapping[str, Since]:
        """Which older tuples the next cut may take: all that are not about to go, and all that it holds."""
        kept = {stream: reader.kept() for stream, reader in self.readers.items() if self.reads_again}
        return {
            stream: Since(min(each.since, self.held_from(stream, before[stream])), each.lacks)
            for stream, each in kept.items()
        }

    def held_from(self, stream: str, before: Reach) -> int:  # noqa: ARG002
        """The first entry whose tuples are not to go, however old they are; one behind all by default."""
        return sys.maxsize

    def _wait(self, reach: Mapping[str, Reach]) -> Mapping[str, Reach] | None:
        """Waits for entries behind those that are answered; None where none will come."""
        found: float | None = None
        until, known, next_look = reach, -1, 0.0
        while not self._stopping.is_set():
            seen, now = self.context.appended.count, time.monotonic()
            ends = self._is_to_end or not self._is_fed
            if ends or seen != known or now >= next_look:
                until = {stream: self._ahead(stream, before) for stream, before in reach.items()}
                known, next_look = seen, now + _OTHERS_SECONDS
            if self.has_more:
                return until
            if until != reach:
                found = found or time.monotonic()
                if ends or (self.is_due and self._is_gathered(reach, until, time.monotonic() - found)):
                    return until
            elif ends and not self.awaits_more:
                return None
            self.context.appended.wait(seen, _LOOK_SECONDS)
        return None

    def _is_gathered(
        self, reach: Mapping[str, Reach], until: Mapping[str, Reach], waited_seconds: float
    ) -> bool:
        if not self.context.trigger.is_bounded:
            return True
        if waited_seconds >= min(_GATHER_SECONDS, _GATHER_SHARE * self._cut_seconds):
            return True
        return any(
            until[stream].entry - before.entry >= self._entries_per_cut for stream, before in reach.items()
        )

    def _ahead(self, stream: str, reach: Reach) -> Reach:
        reader, who = self.readers[stream], f"reader {self.name} of stream {stream}"
        number = reader.ahead(who, reach.entry, self._entries_per_cut)
        return reach if number == reach.entry else Reach.at(reader.entry(number))

    def _take(self, task: _Task) -> _Standing:
        """Answers and publishes a cut; what an answer before it left half done is done again from the beginning."""
        cut, began = task.cut, time.perf_counter()
        try:
            answer = self.answer(cut, self.publisher.begin(cut.number))
        finally:
            self.jobs.release()
        failpoint("cut_answered", cut.number, self.name)
        answered = time.perf_counter()
        until = {stream: asdict(reach) for stream, reach in cut.until.items()}
        figures = {"batch": cut.number, "until": until, **answer.figures}
        is_handed_over = bool(self.context.rows.views(self.name))
        files = self.publisher.publish(
            cut.number,
            answer.staged,
            figures,
            puts={**self._marks(cut, answer.marks), **answer.puts},
            deletes=[*answer.deletes, *(() if is_handed_over else [self._cuts.document(cut)])],
        )
        self.context.published.tell()
        failpoint("cut_published", cut.number, self.name)
        published = time.perf_counter()
        self._cut_seconds = published - began
        self.retries.succeeded()
        self._tell(cut.number, cut.until)
        answer.done()
        wake = None if task.wake_seconds is None else round(task.wake_seconds, 4)
        spent = (task.put_seconds, answered - began, published - answered)
        self.record(cut, answer, Spent(wake, *(round(seconds, 4) for seconds in spent)))
        self._hand_over(cut, Published(figures, files))
        if is_handed_over:
            self._cuts.remove(cut)
        self._compact(cut.number)
        return _Standing(cut.number + 1, cut.until)

    def _hand_over(self, cut: Cut, published: Published | None) -> None:
        """Puts the entries of logs of rows.

        Args:
            cut: which.
            published: what is known of it; None, or without files, where that was long ago, after all of this.
        """
        if published is not None:
            self.context.rows.published(self.name, published.figures, published.files)
        failpoint("cut_handed_over", cut.number, self.name)

    def _marks(self, cut: Cut, said: Mapping[str, Any]) -> dict[StoredDocument, dict[str, Any]]:
        """What the lane says to the writers of its logs once a cut is published."""
        found: dict[StoredDocument, dict[str, Any]] = {}
        for stream, reach in cut.until.items():
            if reach == cut.before[stream]:
                continue
            since = {SINCE: cut.since[stream].entry} if stream in cut.since else {}
            found |= self.readers[stream].mark_document(self.name, reach.entry, **since, **said)
        return found

    def _tell(self, cut: int, until: Mapping[str, Reach]) -> None:
        """Notes for the status how far the lane has come: by stream the last entry that is answered."""
        self._told = {"cut": cut, "streams": {stream: reach.entry for stream, reach in until.items()}}
