"""The map stage of an ingest batch: Arrow batches of tuples in, matched tuples and pane partials out.

A pure function of the program and the batch; where the batch comes from (behind a DataFrame, in
the scan, decoded from Kafka) and where the matches go is the caller's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.coding.encode import ColumnEncoder
from penstock.operators.functions.judging import (
    CallJudge,
    Function,
    RaisedRow,
)
from penstock.operators.ingest.arrivals import Arrivals, Ints, arrivals_in, merged_arrivals
from penstock.operators.ingest.condition_classes import ConditionClasses
from penstock.operators.ingest.outcomes import ToldApart
from penstock.operators.ingest.stage_counts import StageCounts, least, most
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.operators.ingest.tuple_stage import TupleStage
from penstock.operators.selection.selector import Selector
from penstock.operators.windows.arrival_steps import Steps, merged_by_step, times_by_step
from penstock.operators.windows.event_times import EventTimes, event_times, untimed
from penstock.operators.windows.pane_stage import PaneStage
from penstock.operators.windows.satisfied import Satisfied
from penstock.plan.arrangement import Arrangement
from penstock.plan.times import AFTER_ALL, BEFORE_ALL

#: matches that a batch may have: their places fit Arrow's 32 bits, and memory stays bounded
MOST_PAIRS = 1 << 27


class MapStage:
    """Matches batches against one program and keeps the counts of the task at hand.

    Args:
        program: the program.
        before: the stage of another version of it, which is used no more: what both have in common is kept.
        functions: of each of the program's calls.
    """

    def __init__(
        self, program: StreamProgram, before: MapStage | None = None, functions: Sequence[Function] = ()
    ) -> None:
        self.program = program
        known = None if before is None else before._selector
        self._selector: Selector = Selector(program.plan, program.settings.strategy, before=known)
        self._attributes = program.attributes
        self._used, self._used_always = program.used, program.used_always
        self._outcomes = program.outcomes
        self._calls = None if program.calls is None else CallJudge(program.calls, functions)
        self._classes = (
            ConditionClasses.of(program.plan, program.outcomes, self._selector)
            if self._calls is None
            else None
        )
        self._views = pa.array(program.views, pa.string())
        self._definitions = pa.array(program.definitions, pa.int32())
        self._conditions = self._numbers(program.windows.members if program.windows else ())
        self._demanded = self._numbers(
            [plan.selection for plan in program.tuples.plans] if program.tuples else ()
        )
        self.tuples = TupleStage(program.tuples) if program.tuples else None
        self.panes = PaneStage(program.windows) if program.windows else None
        self.begin()

    @property
    def bounding_encoders(self) -> list[ColumnEncoder | None]:
        """See `Selector.bounding_encoders`."""
        return self._selector.bounding_encoders

    @property
    def encoders(self) -> list[ColumnEncoder]:
        """Turns values into region codes: one a p-attribute."""
        return self._selector.encoders

    def rearrange(self, arrangement: Arrangement) -> None:
        """Lets the ASCs follow another sequence from the next batch on; what was laid out and learned stays."""
        self._selector.rearrange(arrangement)

    def reorder(self, calls: Sequence[int]) -> None:
        """Runs users' functions in another order from the next batch on.

        Args:
            calls: all numbers of calls; (): in the program's order.
        """
        if self._calls is not None:
            self._calls.reorder(calls)

    def begin(
        self,
        time_limit: int = AFTER_ALL,
        time_floor: int = BEFORE_ALL,
        kept_ahead: int = 0,
        too_late_before: int = BEFORE_ALL,
        *,
        has_steps: bool = False,
    ) -> None:
        """Starts a new task: counts, sample and partials are empty again.

        Args:
            time_limit: the largest event time that is believed, microseconds in UTC.
            time_floor: tuples that are older do not matter for slack, microseconds.
            kept_ahead: how far beyond the limit tuples are in their windows all the same, microseconds.
            too_late_before: tuples with an earlier event time are in no window any more, microseconds.
            has_steps: whether tuples have arrival steps.
        """
        self.counts = StageCounts.none(self.program)
        self.sample: npt.NDArray[np.uint32] | None = None
        self._time_limit = time_limit
        self._time_floor = time_floor
        self._kept_ahead = kept_ahead
        #: where a tuple of the newest batch is in no window because it is too late; None: nowhere
        self.too_late: npt.NDArray[np.bool_] | None = None
        #: tuples of the newest batch at which users' functions raised
        self.raised: list[RaisedRow] = []
        if self._calls is not None:
            self._calls.begin()
        if self.panes is not None:
            self.panes.begin(too_late_before, has_steps=has_steps)
        if self.tuples is not None:
            self.tuples.begin()

    def process(
        self,
        batch: pa.RecordBatch,
        *,
        is_matched: bool = True,
        is_timed: bool = True,
        steps: Steps | None = None,
        arrived: Ints | int | None = None,
    ) -> tuple[npt.NDArray[np.bool_], pa.Array]:
        """Which tuples of a batch satisfy a view, and which views; the window operators get theirs.

        Args:
            batch: at least the program's `needed` columns.
            is_matched: False where it is known that no tuple satisfies any condition; the compared
                columns are not needed then.
            is_timed: False where the event times are counted already; the program's `needed_untimed` are enough then.
            steps: the tuples' arrival steps, where they have such.
            arrived: when each arrived, or all of them, microseconds since the epoch; None: not known.

        Returns:
            bool[rows], and for the true ones the `queries` column: list of view names, ascending by
            index, dictionary-encoded.

        Raises:
            TooManyMatchesError: more than `MOST_PAIRS` matches; nothing has been counted, take fewer rows.
        """
        rows = batch.num_rows
        self.raised = []
        batch = self._completed(batch, self._used if is_matched else self._used_always)
        if is_matched and self.program.plan.names:
            told = self._match([batch.column(name) for name in self._attributes], rows, batch.column)
        else:
            told = ToldApart(np.zeros(rows + 1, np.int64), np.zeros(0, np.int32), Satisfied.none(rows))
            self.counts.skipped += 0 if is_matched else rows
        degrees = np.diff(told.offsets)
        mask = degrees > 0
        matched = int(np.count_nonzero(mask))
        counts = self.counts
        counts.tuples += rows
        counts.matched += matched
        counts.pairs += len(told.queries)
        counts.view_pairs += np.bincount(told.queries, minlength=self._outcomes.views)
        self._count_errors(told)
        times = self._take_in(batch, told.satisfied, steps, arrived) if is_timed else None
        if self.tuples is not None:
            self.tuples.add(batch, told.satisfied, None if times is None else times.not_future)
        list_offsets = np.zeros(matched + 1, np.int32)
        np.cumsum(degrees[mask], out=list_offsets[1:])
        names = pa.DictionaryArray.from_arrays(pa.array(told.queries), self._views)
        return mask, pa.ListArray.from_arrays(pa.array(list_offsets), names)

    def definitions(self, queries: pa.Array) -> pa.Array | None:
        """By which definition a view names a tuple, list by list; None where all are the first ones.

        Args:
            queries: as `process` gives them.
        """
        if not len(self._definitions):
            return None
        return pa.ListArray.from_arrays(queries.offsets, self._definitions.take(queries.values.indices))

    def skip(self, rows: int) -> None:
        """Counts tuples that neither a view nor a window wants."""
        self.counts.tuples += rows
        self.counts.skipped += rows

    def observe_times(
        self, batch: pa.RecordBatch, steps: Steps | None = None, arrived: Ints | int | None = None
    ) -> None:
        """Keeps the oldest and newest event time of tuples that are matched with nothing.

        Args:
            batch: at least the program's `observed` columns.
            steps, arrived: as `process` takes them.
        """
        name = self.program.time
        self._take_in(self._completed(batch, [] if name is None else [name]), None, steps, arrived)

    def are_enough(self, ends: pa.RecordBatch) -> bool:
        """Whether the oldest and newest event time of tuples say what is counted of all of theirs.

        Not where some may be too far ahead to be believed, or too old to matter for slack.

        Args:
            ends: at least the program's `observed` columns, of two tuples with these event times.
        """
        times = event_times(ends.column(self.program.observed[0]), self._time_limit)
        return times.believed is None and times.oldest is not None and times.oldest >= self._time_floor

    def _completed(self, batch: pa.RecordBatch, used: Sequence[str]) -> pa.RecordBatch:
        """A batch with the used columns that the worker computes."""
        computed = self.program.computed
        if computed is None:
            return batch
        began = time.perf_counter_ns()
        completed = computed.added_to(batch, used)
        self.counts.encode_ns += time.perf_counter_ns() - began
        return completed

    def finish(self) -> StageCounts:
        """The counts of the task, all told."""
        if self._calls is not None:
            self.counts.calls += self._calls.measures
            self.counts.branch_pairs += self._calls.branch_pairs
            self._calls.begin()
        if self.panes is not None:
            self.counts.window_errors += self.panes.raised
            self.panes.raised = np.zeros_like(self.panes.raised)
            self.counts.set_tuples += self.panes.set_tuples
            self.counts.set_partials += self.panes.set_partials
            self.panes.set_tuples = self.panes.set_partials = 0
        if self.tuples is not None:
            self.counts.demand_errors += self.tuples.raised
            self.tuples.raised = np.zeros_like(self.tuples.raised)
        return self.counts

    def _take_in(
        self,
        batch: pa.RecordBatch,
        satisfied: Satisfied | None,
        steps: Steps | None,
        arrived: Ints | int | None,
    ) -> EventTimes | None:
        """The event times, looked at; gives the window operators their tuples unless these are None."""
        counts = self.counts
        name = self.program.time
        if self.panes is None:
            if name is None:
                return None
            times = event_times(batch.column(name), self._time_limit, self._kept_ahead)
        else:
            began = time.perf_counter_ns()
            times = (
                untimed(batch.num_rows)
                if name is None
                else event_times(batch.column(name), self._time_limit, self._kept_ahead)
            )
            if satisfied is not None:
                self.too_late = self.panes.add(batch, times, satisfied, steps)
            if steps is not None:
                believed = slice(None) if times.believed is None else times.believed
                own = times_by_step(times.values[believed], steps[believed], self._time_floor)
                counts.steps = merged_by_step(counts.steps, own)
            counts.pane_ns += time.perf_counter_ns() - began
        if self.tuples is not None and arrived is not None:
            counts.arrivals = merged_arrivals(counts.arrivals, _arrivals(times, arrived))
        if name is not None and (self.panes is not None or self.tuples is not None):
            if times.middle is not None:
                counts.middles.append(times.middle)
            counts.ahead_event_times += times.ahead
            counts.null_event_times += times.nulls
            counts.future_event_times += times.future
        counts.furthest_event_time = most(counts.furthest_event_time, times.furthest)
        counts.oldest_event_time = least(counts.oldest_event_time, times.oldest)
        counts.newest_event_time = most(counts.newest_event_time, times.newest)
        recent = times.oldest_since(self._time_floor)
        counts.oldest_recent_event_time = least(counts.oldest_recent_event_time, recent)
        return times

    def _match(self, attributes: list[pa.Array], rows: int, column: Callable[[str], pa.Array]) -> ToldApart:
        if self.sample is None and rows:
            self._take_sample(attributes, rows)
        if self._classes is not None and rows:
            began = time.perf_counter_ns()
            satisfied = self._classes.match(attributes, rows)
            self.counts.match_ns += time.perf_counter_ns() - began
            if satisfied is not None:
                return ToldApart(np.zeros(rows + 1, np.int64), np.zeros(0, np.int32), satisfied)
        matches = self._selector.match(attributes, rows, MOST_PAIRS)
        figures = self._selector.figures
        assert figures is not None, "figures of the batch just matched"
        counts = self.counts
        counts.encode_ns += figures.encode_ns
        counts.match_ns += figures.match_ns + figures.rules_ns
        counts.asc_tried += figures.asc.tuples
        counts.asc_ns += figures.asc.ns
        if matches.evaluations is not None:
            counts.evaluations += matches.evaluations
            counts.asc_tuples += rows
        elif figures.strategy == "index":
            counts.index_tuples += rows
            counts.index_ns += figures.encode_ns + figures.match_ns
        if self._calls is None:
            return self._outcomes.tell_apart(matches.offsets, matches.queries, rows)
        began = time.perf_counter_ns()
        judged = self._calls.judge(matches.offsets, matches.queries, rows, column)
        self.raised = judged.raised
        self._count_lost(judged.lost)
        counts.match_ns += time.perf_counter_ns() - began
        return self._outcomes.tell_apart(judged.offsets, judged.queries, rows)

    def _count_lost(self, queries: npt.NDArray[np.int64]) -> None:
        """Counts tuples that views and conditions lost to calls.

        Args:
            queries: int64[], the number of the query that each was lost for.
        """
        views, conditions = self._outcomes.views, self._outcomes.conditions
        lost = np.bincount(queries, minlength=views + conditions)
        self.counts.view_errors += lost[:views]
        self._count_condition_errors(lost[views : views + conditions])

    def _count_errors(self, told: ToldApart) -> None:
        if told.view_errors is not None:
            self.counts.view_errors += told.view_errors
        if told.condition_errors is not None:
            self._count_condition_errors(told.condition_errors)

    def _count_condition_errors(self, lost: npt.NDArray[np.int64]) -> None:
        errors = np.append(lost, 0)
        self.counts.window_errors += errors[self._conditions]
        self.counts.demand_errors += errors[self._demanded]

    def _numbers(self, conditions: Sequence[int | None]) -> npt.NDArray[np.int64]:
        """The same numbers; for None, every tuple, the last of all, which no condition has."""
        every = self._outcomes.conditions
        return np.asarray([every if each is None else each for each in conditions], np.int64)

    def _take_sample(self, attributes: list[pa.Array], rows: int) -> None:
        settings = self.program.settings
        compared = attributes[: len(self.encoders)]
        # the sample decides on the order of the ASCs alone
        wanted = 0 if settings.strategy == "index" else settings.sample_tuples
        if not wanted or not compared:
            return
        places = pa.array(np.arange(0, rows, max(1, -(-rows // wanted))))
        codes, coding_ns = self._selector.encode([column.take(places) for column in compared])
        self.counts.coded += len(places)
        self.counts.coding_ns += coding_ns
        self.sample = np.stack(codes).astype(np.uint32)


def _arrivals(times: EventTimes, arrived: Ints | int) -> Arrivals:
    if isinstance(arrived, int):
        return {} if times.newest is None else {arrived: times.newest}
    believed = slice(None) if times.believed is None else times.believed
    return arrivals_in(times.values[believed], arrived[believed])
