"""How the lane of views with a deadline follows the log of a stream: which windows of a view close with which entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.operators.deadlines.creation import WindowCreation
from penstock.plan.deadlines import DeadlineQuery, WindowSpan
from penstock.plan.times import BEFORE_ALL
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
        beforehand: the ends of later windows that something has become of, as what was there was all there was then.
    """

    settled: int
    floor: int
    beforehand: tuple[int, ...] = ()


class FollowedView:
    """What the lane knows of a view; its thread owns it.

    Args:
        registered: the view.
        windows: its windows.
        log: of its stream.
        demand: what is kept of the stream's tuples for it.
        begun: gives the first batch that is dealt out for that; None before there is one.
        stands: how far the view had come, as an earlier run said; None: nothing has become of any window.
        kept_after: no entry behind this one is removed before the lane says so.

    Attributes:
        open: the instances that nothing has become of yet, by the end of their windows.
        kept_after: as above; the lane's to move on.
        failures: so many windows failed one after the other.
    """

    def __init__(
        self,
        registered: RegisteredDeadline,
        windows: Windows,
        log: LogReader,
        demand: int,
        begun: Callable[[], int | None],
        stands: ViewStands | None,
        kept_after: int,
    ) -> None:
        self.registered = registered
        self.open: dict[int, Instance] = {}
        self.kept_after = kept_after
        self.failures = 0
        self._windows = windows
        self._log = log
        self._runs = RunFiles(log, demand)
        self._beginnings = ViewBeginnings(
            {registered.stream: registered.entry}, {registered.stream: log}, lambda _: begun()
        )
        self._floor = BEFORE_ALL if stands is None else stands.floor
        self._creation = (
            None
            if stands is None
            else WindowCreation(windows, stands.settled, stands.floor, stands.beforehand)
        )
        self._base: Instance | None = None

    @property
    def query(self) -> DeadlineQuery:
        """Its deadline and the losses it allows."""
        return self.registered.query

    @property
    def name(self) -> str:
        """The view's name."""
        return self.registered.definition.name

    @property
    def stands(self) -> ViewStands | None:
        """How far it has come; None before its first entry."""
        if self._creation is None:
            return None
        settled = min([self._creation.closed, *(end - 1 for end in self.open)])
        told = self._creation.beforehand.difference(self.open)
        return ViewStands(settled, self._floor, tuple(sorted(told)))

    def carry(self, instance: Instance | None) -> None:
        """Says which instance the next one may be worked out from; None: there is no state."""
        self._base = instance

    def first_needed(self, until: int) -> int:
        """The first entry with tuples that are needed still; behind `until` where there are none up to it."""
        stands = self.stands
        if stands is None:
            return until + 1
        needed = max(BEFORE_ALL, stands.settled - self._windows.size + 1)
        if self._base is not None and self._base.end <= needed:
            # no later window has any of its tuples
            self._base = None
        if self._base is not None:
            needed = min(needed, self._base.start)
        return self._log.first_reaching(needed, self.kept_after, until)

    def take_in(self, entry: Entry) -> Iterator[tuple[Instance, WindowSpan]]:
        """Follows the log by an entry; gives the instances that are created, and their tuples."""
        begun = self._beginnings.first(self.registered.stream, entry.number - 1, entry.number)
        if begun > entry.number:
            return
        if self._creation is None:
            self._floor = self._floor_at(entry)
            self._creation = WindowCreation(self._windows, BEFORE_ALL, self._floor)
        for opened in self._runs.find(entry.number - 1, entry.number).open():
            for part in map(opened.run.part, opened.run.parts):
                assert part is not None, "its directory has it"
                mask = part.rows_of(opened.after, opened.until)
                times = part.times
                self._creation.add(times if mask is None else times[mask[: len(times)]])
        moment = entry.reached_or_newest
        created = entry.clock / 1e6
        for window in self._creation.close(
            BEFORE_ALL if moment is None else moment, every=entry.answer_all or entry.ended
        ):
            start = window.end - self._windows.size
            deadline = created + self.query.deadline
            instance = Instance(self.registered.number, start, window.end, entry.number, created, deadline)
            self.open[window.end] = instance
            yield instance, window.span

    def runs(self, instance: Instance, *, carried: bool) -> FoundRuns:
        """What holds the tuples of an instance, and those of the one it is worked out from."""
        oldest = instance.start
        if carried and self._base is not None:
            oldest = min(oldest, self._base.start)
        first = self._log.first_reaching(oldest, self.kept_after, instance.entry)
        first = self._beginnings.first(self.registered.stream, first - 1, instance.entry)
        return self._runs.find(first - 1, instance.entry)

    def _floor_at(self, first: Entry) -> int:
        """From when on windows begin that lack no tuples, given the first entry that has the view's."""
        if not first.batch:
            return BEFORE_ALL
        # the batches before may have left no entry: then what this one brings may have begun with them
        entry = self._log.entry(first.number - 1) if first.number > self._log.first else first
        return BEFORE_ALL if entry.newest is None else entry.newest + 1
