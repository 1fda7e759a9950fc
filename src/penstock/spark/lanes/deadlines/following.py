"""How the lane of views with a deadline follows the log of a stream: which windows of a view close with which entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.operators.deadlines.creation import WindowCreation
from penstock.plan.deadlines import DeadlineQuery, WindowSpan
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.plan.windows import Windows
from penstock.spark.lanes.deadlines.ledger import Instance
from penstock.spark.lanes.joins.beginnings import ViewBeginnings
from penstock.spark.log.entries import Entry
from penstock.spark.log.run_files import FoundRuns, RunFiles
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.deadlines import RegisteredDeadline


@dataclass(frozen=True, slots=True)
class ViewStands:
    """How far a view has come.

    Attributes:
        settled: something has become of all windows with tuples that end by then, microseconds.
        floor: windows that begin before it lack tuples, which came before the view: they are not answered.
    """

    settled: int
    floor: int


class FollowedView:
    """What the lane knows of a view; its thread owns it.

    Args:
        registered: the view.
        windows: its windows.
        log: of its stream.
        demand: what is kept of the stream's tuples for it.
        begun: gives the first batch that is dealt out for that; None before there is one.
        stands: how far the view had come, as an earlier run said; None: nothing has become of any window.
    """

    def __init__(
        self,
        registered: RegisteredDeadline,
        windows: Windows,
        log: LogReader,
        demand: int,
        begun: Callable[[], int | None],
        stands: ViewStands | None,
    ) -> None:
        self.registered = registered
        self._windows = windows
        self._log = log
        self._runs = RunFiles(log, demand)
        self._beginnings = ViewBeginnings(
            {registered.stream: registered.entry}, {registered.stream: log}, lambda _: begun()
        )
        self._creation = None if stands is None else WindowCreation(windows, stands.settled, stands.floor)
        self._floor = BEFORE_ALL if stands is None else stands.floor
        #: the instances that nothing has become of yet, by the end of their windows
        self.open: dict[int, Instance] = {}
        #: the instance whose state is carried to the next one
        self.base: Instance | None = None

    @property
    def query(self) -> DeadlineQuery:
        """Its deadline and the losses it allows."""
        return self.registered.query

    @property
    def stands(self) -> ViewStands | None:
        """How far it has come; None before its first entry."""
        if self._creation is None:
            return None
        return ViewStands(min(self.open) - 1 if self.open else self._creation.closed, self._floor)

    def first_needed(self, until: int) -> int:
        """The first entry with tuples that are needed still; behind one where there are none up to it."""
        stands = self.stands
        if stands is None:
            return until + 1
        needed = max(BEFORE_ALL, stands.settled - self._windows.size + 1)
        if self.base is not None:
            needed = min(needed, self.base.start)
        return self._log.first_reaching(needed, self._log.first - 1, until)

    def take_in(self, entry: Entry) -> Iterator[tuple[Instance, WindowSpan]]:
        """Follows the log by an entry; gives the instances that are created, and their tuples."""
        begun = self._beginnings.first(self.registered.stream, entry.number - 1, entry.number)
        if begun > entry.number:
            return
        if self._creation is None:
            self._creation = self._begun_with(entry)
        for opened in self._runs.find(entry.number - 1, entry.number).open():
            for part in map(opened.run.part, opened.run.parts):
                assert part is not None, "its directory has it"
                mask = part.rows_of(opened.after, opened.until)
                times = part.times
                self._creation.add(times if mask is None else times[mask[: len(times)]])
        moment = AFTER_ALL if entry.answer_all or entry.ended else entry.reached_or_newest
        created = entry.clock / 1e6
        for window in self._creation.close(BEFORE_ALL if moment is None else moment):
            start = window.end - self._windows.size
            deadline = created + self.query.deadline
            instance = Instance(self.registered.number, start, window.end, entry.number, created, deadline)
            self.open[window.end] = instance
            yield instance, window.span

    def _begun_with(self, entry: Entry) -> WindowCreation:
        if entry.number > self._log.first:
            furthest = self._log.entry(entry.number - 1).furthest
            self._floor = BEFORE_ALL if furthest is None else furthest + 1
        return WindowCreation(self._windows, BEFORE_ALL, self._floor)

    def runs(self, instance: Instance) -> FoundRuns:
        """What holds the tuples of an instance, and of the one whose state is carried."""
        oldest = instance.start if self.base is None else min(self.base.start, instance.start)
        first = self._log.first_reaching(oldest, self._log.first - 1, instance.entry)
        first = self._beginnings.first(self.registered.stream, first - 1, instance.entry)
        return self._runs.find(first - 1, instance.entry)
