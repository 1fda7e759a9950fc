"""How the lane of views with a deadline follows the log of a stream: which windows of a view close with which entry."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace

from penstock.control.policies.deadlines.debts import OwedWindow
from penstock.control.policies.deadlines.memory import QueryMemory
from penstock.operators.deadlines.creation import Brought, CreatedWindow, CreationState, WindowCreation
from penstock.operators.deadlines.instances import Extent, Tuples
from penstock.operators.deadlines.learned_slack import LearnedSlack
from penstock.operators.deadlines.run_tuples import tuples_of
from penstock.operators.joins.tuples import RunSlice
from penstock.operators.windows.required_slack import warm_up
from penstock.plan.deadlines import DeadlineQuery, WindowSpan
from penstock.plan.times import BEFORE_ALL, EARLIEST, LATEST
from penstock.plan.windows import WindowPlan
from penstock.settings import Settings
from penstock.spark.lanes.deadlines.ledger import Instance
from penstock.spark.lanes.joins.beginnings import ViewBeginnings
from penstock.spark.log.entries import Entry
from penstock.spark.log.run_files import FoundRuns, RunFiles
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.deadlines import RegisteredDeadline

#: all tuples of an entry, whatever their event time
_EVER = Extent(EARLIEST, LATEST + 1, 0)


@dataclass(frozen=True, slots=True)
class ViewStands:
    """How far a view has come.

    Attributes:
        creation: which of its windows have been created, and of which nothing has become.
        memory: what the policy knew of it by then.
        owed: the windows that are answered late yet.
    """

    creation: CreationState
    memory: QueryMemory | None = None
    owed: tuple[OwedWindow, ...] = ()


class DemandTuples:
    """The tuples that views with one demand ask their stream for; those of the newest entry are read once for all of them.

    Args:
        log: of the stream.
        demand: number of the demand.

    Attributes:
        runs: find them.
    """

    def __init__(self, log: LogReader, demand: int) -> None:
        self.runs = RunFiles(log, demand)
        self._entry = -1
        #: of that entry, by columns
        self._tuples: dict[tuple[str, ...], Tuples] = {}

    def of(self, entry: Entry, columns: tuple[str, ...], in_segments: int) -> Tuples:
        """The tuples that came with an entry, some of their columns.

        Args:
            entry: the entry.
            columns: names of those that are wanted.
            in_segments: number of an entry; those behind it were in no segment when they were read.
        """
        number = entry.number
        if number != self._entry:
            self._entry, self._tuples = number, {}
        if columns not in self._tuples:
            runs = self.runs
            found = runs.own(entry) if number > in_segments else runs.find(number - 1, number)
            slices = [RunSlice(each.run, each.after, each.until) for each in found.open()]
            with found.named():
                self._tuples[columns] = tuples_of(slices, columns, [_EVER])
        return self._tuples[columns]


class FollowedView:
    """What the lane knows of a view; its thread owns it.

    Args:
        registered: the view.
        plan: its windows and aggregates, over the columns of its demand.
        log: of its stream.
        demand: what is kept of the stream's tuples for it and others.
        begun: gives the first batch that is dealt out for that; None before there is one.
        stands: how far the view had come, as an earlier run said; None: no entry of its has been taken in.
        kept_after: no entry behind this one is removed before the lane says so.
        settings: the run's.

    Attributes:
        open: the instances that nothing has become of yet, by the end of their windows.
        kept_after: as above; the lane's to move on.
        base: the instance that the next one may be worked out from, the lane's to set; None: there is no state.
    """

    def __init__(
        self,
        registered: RegisteredDeadline,
        plan: WindowPlan,
        log: LogReader,
        demand: DemandTuples,
        begun: Callable[[], int | None],
        stands: ViewStands | None,
        kept_after: int,
        settings: Settings,
    ) -> None:
        self.registered = registered
        self.open: dict[int, Instance] = {}
        self.kept_after = kept_after
        self._plan = plan
        self._waits = registered.view.waits
        self._columns = LearnedSlack.columns(plan) if self._waits else ()
        if self._waits:
            # before windows wait for it
            warm_up()
        self._log = log
        self._demand = demand
        self._settings = settings
        self._beginnings = ViewBeginnings(
            {registered.stream: registered.entry}, {registered.stream: log}, lambda _: begun()
        )
        self._creation = None if stands is None else self._created_from(stands.creation)
        self.base: Instance | None = None

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
        unsettled = self.open.values()
        return ViewStands(
            self._creation.state(
                CreatedWindow(each.end, each.entry, each.slack, each.coverage, each.due) for each in unsettled
            )
        )

    @property
    def slack(self) -> LearnedSlack | None:
        """How long its windows wait for late tuples; None: not at all, or before its first entry."""
        return None if self._creation is None else self._creation.slack

    def first_needed(self, until: int) -> int:
        """The first entry with tuples that are needed still; behind `until` where there are none up to it."""
        if self._creation is None:
            return until + 1
        needed = self._creation.needed(self.open)
        if self.base is not None and self.base.end <= needed:
            # no later window has any of its tuples
            self.base = None
        if self.base is not None:
            needed = min(needed, self.base.start)
        first = self._log.first_reaching(needed, self.kept_after, until)
        # with the entry before it, which says when its tuples came
        return max(first - 1, self.kept_after + 1) if self._waits else first

    def first_holding(self, moment: int, until: int) -> int:
        """The first entry that may hold tuples from a moment on; behind `until` where none up to it does."""
        return self._log.first_reaching(moment, self.kept_after, until)

    def passed(self, end: int, entry: int) -> int:
        """How far the stream had come beyond the end of a window by an entry, microseconds."""
        moment = self._log.entry(entry).reached_or_newest
        return 0 if moment is None else max(0, moment - end)

    def take_in(self, entry: Entry, in_segments: int = sys.maxsize) -> Iterator[tuple[Instance, WindowSpan]]:
        """Follows the log by an entry; gives the instances that are created, and their tuples.

        Args:
            entry: the next one.
            in_segments: see `DemandTuples.of`.
        """
        begun = self._beginnings.first(self.registered.stream, entry.number - 1, entry.number)
        if begun > entry.number:
            return
        if self._creation is None:
            self._creation = self._created_from(CreationState(entry.number - 1, self._floor_at(entry)))
        for window, span in self._creation.take_in(
            Brought(
                entry.number,
                self._demand.of(entry, self._columns, in_segments),
                entry.newest,
                entry.reached_or_newest,
                entry.delays,
                every=entry.answer_all or entry.ended,
            )
        ):
            arrived, by = entry.arrival_of(window.due)
            instance = Instance(
                self.registered.number,
                window.end - self._plan.windows.size,
                window.end,
                entry.number,
                arrived / 1e6,
                entry.clock / 1e6,
                arrived / 1e6 + self.query.deadline,
                window.slack,
                window.coverage,
                by,
                window.due,
            )
            self.open[window.end] = instance
            yield instance, span

    def runs(
        self, instance: Instance, found: dict[Hashable, FoundRuns], base: Instance | None = None
    ) -> FoundRuns:
        """What holds the tuples of an instance, and those of the one it is worked out from.

        Args:
            instance: which.
            found: what was found at this moment for other instances, which is added to: that of views with one demand is the same.
            base: it is worked out from this one; None: afresh, or from what workers keep.
        """
        oldest = instance.start if base is None else min(instance.start, base.start)
        first = self._log.first_reaching(oldest, self.kept_after, instance.entry)
        first = self._beginnings.first(self.registered.stream, first - 1, instance.entry)
        key = self._demand, first - 1, instance.entry
        if key not in found:
            found[key] = self._demand.runs.find(first - 1, instance.entry)
        return found[key]

    def _created_from(self, state: CreationState) -> WindowCreation:
        slack = None
        if self._waits:
            most_delay, least_horizon = (
                round(seconds * 1e6)
                for seconds in (self._settings.max_delay_seconds, self._settings.least_horizon_seconds)
            )
            plan = replace(self._plan, slack=self._plan.slack or self._settings.slack)
            slack = LearnedSlack(plan, state.floor, most_delay, least_horizon)
        return WindowCreation(self._plan.windows, state, slack)

    def _floor_at(self, first: Entry) -> int:
        """From when on windows begin that lack no tuples, given the first entry that has the view's."""
        if not first.batch:
            return BEFORE_ALL
        # the batches before may have left no entry: then what this one brings may have begun with them
        (entry,) = self._log.kept_between(first.number - 2, first.number - 1) or [first]
        return BEFORE_ALL if entry.newest is None else entry.newest + 1
