"""The map stage of an ingest batch: Arrow batches of tuples in, matched tuples and pane partials out.

A pure function of the program and the batch; where the batch comes from (behind a DataFrame, in
the scan, decoded from Kafka) and where the matches go is the caller's business.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.derived import DerivedLayout
from penstock.operators.encode import ColumnEncoder
from penstock.operators.matches import QUERIES as QUERIES
from penstock.operators.pane_stage import PaneProgram, PaneStage, Rows, event_times
from penstock.operators.selection import SelectionPlan, Selector
from penstock.plan.arrangement import Arrangement
from penstock.settings import Settings

#: matches that a batch may have: their places fit Arrow's 32 bits, and memory stays bounded
MOST_PAIRS = 1 << 27
_NO_LIMIT = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class StreamProgram:
    """One compiled plan version of a stream, as shipped to the workers.

    Attributes:
        stream: name of the stream.
        version: number of the plan version; stage caches are keyed by it.
        plan: the compiled selections; `plan.names[:views]` are views, after them come the conditions of
            `windows`, the rest are error queries.
        views: number of views.
        columns: the tuple's own columns, in order.
        event_time: the event time column, or None.
        derived: how derived columns reach the worker, or None where there are none.
        settings: frozen settings.
        windows: the window operators, or None where there are none.
    """

    stream: str
    version: int
    plan: SelectionPlan
    views: int
    columns: tuple[str, ...]
    event_time: str | None
    derived: DerivedLayout | None
    settings: Settings
    windows: PaneProgram | None = None

    @property
    def attributes(self) -> list[str]:
        """The p-attributes: columns that are compared."""
        return [coding.name for coding in self.plan.codings]

    @property
    def needed(self) -> list[str]:
        """The columns `MapStage.process` needs, each once."""
        wanted = [*self.attributes, *(self.windows.columns if self.windows else ())]
        return list(dict.fromkeys(wanted if self.event_time is None else [*wanted, self.event_time]))


@dataclass(slots=True, eq=False)
class StageCounts:
    """What a task counted; sums of two are the counts of both.

    Attributes:
        tuples, matched, pairs: tuples seen, tuples that satisfied a view, (tuple, view) pairs.
        skipped: tuples of row groups whose statistics ruled out every query, counted in `tuples` too.
        evaluations: ASC evaluations, over the `asc_tuples` that the ASC side answered.
        encode_ns, match_ns, pane_ns, write_ns: processor time by part.
        view_pairs: pairs a view (index in the plan), int64[views].
        view_errors: tuples a view lost to an expression that raised, int64[views].
        window_errors: the same of each window operator, int64[operators].
        null_event_times, future_event_times: tuples kept from the windows because their event time is
            NULL or beyond what is kept ahead.
        ahead_event_times: tuples too far ahead of the clock and of the stream for their event time to be believed: the
            windows hold them, but they do not move the stream on.
        oldest_recent_event_time: smallest event time that is not too late to matter for slack, or None.
        oldest_event_time, newest_event_time: smallest and largest event time that is believed, microseconds since
            the epoch, or None.
        furthest_event_time: largest event time of the windows' tuples, or None.
        middles: number and median event time of some tuples each.
    """

    tuples: int = 0
    matched: int = 0
    pairs: int = 0
    skipped: int = 0
    evaluations: int = 0
    asc_tuples: int = 0
    encode_ns: int = 0
    match_ns: int = 0
    pane_ns: int = 0
    write_ns: int = 0
    view_pairs: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    view_errors: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    window_errors: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    null_event_times: int = 0
    future_event_times: int = 0
    ahead_event_times: int = 0
    oldest_recent_event_time: int | None = None
    oldest_event_time: int | None = None
    newest_event_time: int | None = None
    furthest_event_time: int | None = None
    middles: list[tuple[int, int]] = field(default_factory=list)


class MapStage:
    """Matches batches against one program and keeps the counts of the task at hand."""

    def __init__(self, program: StreamProgram) -> None:
        self.program = program
        self._selector = Selector(program.plan, program.settings.strategy)
        self._attributes = program.attributes
        names = program.plan.names
        self._answers = len(names) > 0
        self._names = pa.array(names[: program.views], pa.string())
        self._conditions = program.windows.selections if program.windows else 0
        known = {name: number for number, name in enumerate(names[: program.views + self._conditions])}
        #: for each error query the view or condition it counts for
        self._failing = np.asarray(
            [known[name] for name in names[program.views + self._conditions :]], np.int64
        )
        self.panes = PaneStage(program.windows) if program.windows else None
        self.begin()

    @property
    def encoders(self) -> list[ColumnEncoder]:
        """Turns values into region codes: one a p-attribute."""
        return self._selector.encoders

    def rearrange(self, arrangement: Arrangement) -> None:
        """Lets the ASCs follow another sequence from the next batch on; what was laid out and learned stays."""
        self._selector.rearrange(arrangement)

    def begin(self, time_limit: int = _NO_LIMIT, time_floor: int = -_NO_LIMIT, kept_ahead: int = 0) -> None:
        """Starts a new task: counts, sample and partials are empty again.

        Args:
            time_limit: the largest event time that is believed, microseconds in UTC.
            time_floor: tuples that are older do not matter for slack, microseconds.
            kept_ahead: how far beyond the limit tuples are in their windows all the same, microseconds.
        """
        views = self.program.views
        operators = len(self.program.windows.operators) if self.program.windows else 0
        self.counts = StageCounts(
            view_pairs=np.zeros(views, np.int64),
            view_errors=np.zeros(views, np.int64),
            window_errors=np.zeros(operators, np.int64),
        )
        self.sample: npt.NDArray[np.uint32] | None = None
        self._time_limit = time_limit
        self._time_floor = time_floor
        self._kept_ahead = kept_ahead
        if self.panes is not None:
            self.panes.begin()

    def process(
        self, batch: pa.RecordBatch, *, is_matched: bool = True
    ) -> tuple[npt.NDArray[np.bool_], pa.Array]:
        """Which tuples of a batch satisfy a view, and which views; the window operators get theirs.

        Args:
            batch: at least the program's `needed` columns.
            is_matched: False where it is known that no tuple satisfies any condition; the compared
                columns are not needed then.

        Returns:
            bool[rows], and for the true ones the `queries` column: list of view names, ascending by
            index, dictionary-encoded.

        Raises:
            TooManyMatchesError: more than `MOST_PAIRS` matches; nothing has been counted, take fewer rows.
        """
        rows = batch.num_rows
        selected: list[Rows] = []
        if is_matched and self._answers:
            offsets, queries, selected = self._match([batch.column(name) for name in self._attributes], rows)
        else:
            offsets, queries = np.zeros(rows + 1, np.int64), np.zeros(0, np.int32)
            self.counts.skipped += 0 if is_matched else rows
        degrees = np.diff(offsets)
        mask = degrees > 0
        matched = int(np.count_nonzero(mask))
        counts = self.counts
        counts.tuples += rows
        counts.matched += matched
        counts.pairs += len(queries)
        counts.view_pairs += np.bincount(queries, minlength=self.program.views)
        self._take_in(batch, selected)
        list_offsets = np.zeros(matched + 1, np.int32)
        np.cumsum(degrees[mask], out=list_offsets[1:])
        names = pa.DictionaryArray.from_arrays(pa.array(queries), self._names)
        return mask, pa.ListArray.from_arrays(pa.array(list_offsets), names)

    def skip(self, rows: int) -> None:
        """Counts tuples that neither a view nor a window wants."""
        self.counts.tuples += rows
        self.counts.skipped += rows

    def observe_times(self, batch: pa.RecordBatch) -> None:
        """Keeps the oldest and newest event time of tuples that are matched with nothing."""
        self._take_in(batch, None)

    def finish(self) -> StageCounts:
        """The counts of the task, all told."""
        if self.panes is not None:
            self.counts.window_errors += self.panes.raised
            self.panes.raised = np.zeros_like(self.panes.raised)
        return self.counts

    def _take_in(self, batch: pa.RecordBatch, selected: Sequence[Rows] | None) -> None:
        """Looks at the event times, and gives the window operators their tuples unless it is None."""
        counts = self.counts
        if self.panes is None:
            name = self.program.event_time
            if name is None:
                return
            times = event_times(batch.column(name), self._time_limit, self._kept_ahead)
        else:
            began = time.perf_counter_ns()
            times = event_times(batch.column(self.panes.program.time), self._time_limit, self._kept_ahead)
            if times.middle is not None:
                counts.middles.append(times.middle)
            counts.ahead_event_times += times.ahead
            counts.null_event_times += times.nulls
            counts.future_event_times += times.future
            if selected is not None:
                self.panes.add(batch, times, selected)
            counts.pane_ns += time.perf_counter_ns() - began
        counts.furthest_event_time = _most(counts.furthest_event_time, times.furthest)
        if times.oldest is not None and times.newest is not None:
            oldest, newest = counts.oldest_event_time, counts.newest_event_time
            counts.oldest_event_time = times.oldest if oldest is None else min(oldest, times.oldest)
            recent = times.oldest_since(self._time_floor)
            counts.oldest_recent_event_time = _least(counts.oldest_recent_event_time, recent)
            counts.newest_event_time = times.newest if newest is None else max(newest, times.newest)

    def _match(
        self, attributes: list[pa.Array], rows: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], list[Rows]]:
        matches = self._selector.match(attributes, rows, MOST_PAIRS)
        figures = self._selector.figures
        assert figures is not None, "figures of the batch just matched"
        counts = self.counts
        counts.encode_ns += figures.encode_ns
        counts.match_ns += figures.match_ns
        if matches.evaluations is not None:
            counts.evaluations += matches.evaluations
            counts.asc_tuples += rows
        if self.sample is None and rows:
            self._take_sample(attributes, rows)
        if len(matches.names) == self.program.views:
            return matches.offsets, matches.queries, []
        return self._told_apart(matches.offsets, matches.queries, rows)

    def _take_sample(self, attributes: list[pa.Array], rows: int) -> None:
        wanted = self.program.settings.sample_tuples
        if not wanted or not attributes:
            return
        places = pa.array(np.arange(0, rows, max(1, -(-rows // wanted))))
        codes = self._selector.encode([column.take(places) for column in attributes], len(places))
        self.sample = np.stack(codes).astype(np.uint32)

    def _told_apart(
        self, offsets: npt.NDArray[np.int64], queries: npt.NDArray[np.int32], rows: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], list[Rows]]:
        """The views' matches, and the rows that satisfy each condition; errors are counted."""
        views, conditions = self.program.views, self._conditions
        others = queries >= views
        if not others.any():
            return offsets, queries, []
        found = queries[others] - views
        selected: list[Rows] = []
        if conditions:
            places = np.repeat(np.arange(rows), np.diff(offsets))[others]
            order = np.argsort(found, kind="stable")
            ends = np.searchsorted(found[order], np.arange(conditions + 1))
            selected = [places[order[low:high]] for low, high in pairwise(ends.tolist())]
        failed = self._failing[found[found >= conditions] - conditions]
        np.add.at(self.counts.view_errors, failed[failed < views], 1)
        if self.program.windows:
            lost = np.bincount(failed[failed >= views] - views, minlength=conditions)
            for number, plan in enumerate(self.program.windows.operators):
                if plan.selection is not None:
                    self.counts.window_errors[number] += lost[plan.selection]
        before = np.concatenate(([0], np.cumsum(~others)))
        return before[offsets], queries[~others], selected


def _most(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _least(one: int | None, other: int | None) -> int | None:
    known = [each for each in (one, other) if each is not None]
    return min(known) if known else None
