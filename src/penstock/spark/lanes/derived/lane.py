"""The derived lane: window views over the rows of one window, join or UNION ALL view, early, corrected and final, and running views.

The rows of the view beneath are in the results folder, all of them; the log says which came with each publication and how far
the view beneath has come. A cut answers the windows that new rows lie in, and those that have become due or final: it
reads the rows about them anew, has Spark group them, and publishes how that differs from what the lane has told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.operators.windows.answers import Progress
from penstock.operators.windows.lifecycle import ends_of, held
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.plan.windows import Windows
from penstock.spark.lanes.cut_lane import CutAnswer
from penstock.spark.lanes.cuts import Cut
from penstock.spark.lanes.derived.beneath import RowsBeneath, RunningSource
from penstock.spark.lanes.derived.groups import groups_of
from penstock.spark.lanes.derived.over_view import LaneOverView
from penstock.spark.lanes.derived.revisions import revised, revised_whole
from penstock.spark.lanes.derived.stream import DerivedStream
from penstock.spark.lanes.derived.views import Answered
from penstock.spark.lanes.lane import LaneContext, LaneInput
from penstock.spark.lanes.stopped import Place, Settled, divided
from penstock.spark.log.entries import Entry
from penstock.spark.publication.kinds import view_kind
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.recovery.causes import Cause
from penstock.spark.results.published_rows import PublishedRows, Spans, all_rows, joined, moments, timed
from penstock.spark.results.window_rows import MadeResults
from penstock.spark.results.window_schemas import (
    ROW,
    own_schema,
    result_schema,
)
from penstock.spark.results.window_staging import ViewCounts, written
from penstock.spark.storage.columns import batches_of
from penstock.spark.storage.layout import ROWS_FILES
from penstock.spark.storage.store_paths import StorePath
from penstock.sql.windows.bind import BoundWindow

#: of the manifest of a cut: the operators that have answered all that was there, and how far the view beneath had come
_OPERATORS, _PROGRESS = "operators", "beneath"
#: likewise: the operators that were left out, as their views failed
_LEFT_OUT = "left_out"
_END = f"{ROW}.end"


@dataclass(frozen=True, slots=True)
class _Due:
    """Which windows of a view a cut answers.

    Attributes:
        windows: the view's.
        before, now: of rows of the view beneath with earlier times it was, and is, known how far they are told.
        touched: ends of the windows that new rows lie in.
        every: whether every window is looked at, whatever is new.
    """

    windows: Windows
    before: Progress
    now: Progress
    touched: Set[int]
    every: bool

    @property
    def until(self) -> int:
        """Windows that end by then are told."""
        return max(self.now.closed, self.now.beforehand)

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """Windows whose ends lie in these have become due or final, [from, to)."""
        if self.every:
            return [(BEFORE_ALL, AFTER_ALL + 1)]
        due = self.before.closed + 1, self.until + 1
        return joined([due, (self.before.final + 1, self.now.final + 1)])

    def ends(self) -> Spans:
        """Stretches in which the ends of all windows lie that may be answered."""
        return joined([*self.stretches, *((end, end + 1) for end in self.touched)])

    def is_wanted(self, end: int, told: Set[int]) -> bool:
        """Whether a window is answered that holds rows, or held some.

        Args:
            end: its end.
            told: the ends of those that were told.
        """
        is_new = self.every or end in self.touched or self.before.closed < end <= self.until
        is_final = self.before.final < end <= self.now.final
        return (is_new or is_final) and (end <= self.until or end in told)

    def spans(self, told: Set[int]) -> Spans:
        """Stretches in which the times of all rows lie that are in the windows that are answered."""
        size = self.windows.size
        touched = ((end - size, end) for end in self.touched if self.is_wanted(end, told))
        return joined([*((first - size, last - 1) for first, last in self.stretches), *touched])


class DerivedLane(LaneOverView):
    """Answers the views over one window, join or UNION ALL view; arguments as of `LaneOverView`."""

    part = "windows over a view"

    def __init__(self, derived: DerivedStream, context: LaneContext, inputs: Sequence[LaneInput]) -> None:
        super().__init__(derived, context, inputs)
        assert not isinstance(derived.source, RunningSource), "views over running views have a live lane"
        self._source = derived.source
        self._rows = PublishedRows()

    def answer(self, cut: Cut, store: BatchFiles) -> CutAnswer:
        """Answers the windows of each view that the cut's entries are about."""
        self.jobs.own()
        entries = self._entries(cut) if cut.entries else []
        figures = self.figures_before(cut)
        told_until = Progress(**figures.get(_PROGRESS, {}))
        progress = (entries[-1].progress or Progress()) if entries else told_until
        goes_on = self._goes_on(cut, entries, figures.get("until", {}).get(self._derived.name))
        left_out = figures.get(_LEFT_OUT, ())
        known = figures.get(_OPERATORS, ()) if goes_on else ()
        staged: list[MadeResults] = []
        counts: dict[str, dict[str, int]] = {}
        answered: list[Answered] = []
        was_tried = self.retries.pending is not None

        def keep(view: Answered, rows: pa.Table, count: ViewCounts) -> None:
            if rows.num_rows:
                file = written(view_kind(view.operator, view.name), rows)
                staged.append(MadeResults(view.operator, 0, store.put(view.operator, 0, [file])))
                counts[view.name] = asdict(count)

        def answer(view: Answered) -> None:
            beneath = self._source.rows(view, progress, self._rows)
            if beneath is None:
                return
            bound = self._bound(view.operator)[view.name]
            if bound.plan.is_running:
                is_final = progress.final == AFTER_ALL
                ends = is_final and (told_until.final != AFTER_ALL or view.operator in left_out)
                if ends or view.operator not in known or any(entry.files for entry in entries):
                    rows, count = self._answer_whole(
                        view, beneath, cut.number, store.scratch, is_final=is_final, tells_all=ends
                    )
                    keep(view, rows, count)
                answered.append(view)
                return
            windows = bound.plan.windows
            due = _Due(
                windows=windows,
                before=beneath.told(told_until, windows),
                now=beneath.told(progress, windows),
                touched=self._touched(beneath, windows, entries),
                every=view.operator not in known,
            )
            keep(view, *self._answer(view, beneath, due, cut.number, store.scratch))
            answered.append(view)

        views = list(map(Answered.of, cut.orders["views"]))
        failed: dict[Place, Cause] = {}
        for view in views:
            # one that is left out is compared as a whole by the cut that answers it
            if self.stopped.is_due(_place(view)):
                _, sick = divided(lambda some: answer(*some), [view], was_tried=was_tried)
                failed |= {_place(each): cause for each, cause in sick}
        settled = Settled(
            replaced=set(self.stopped.places).difference(map(_place, views)),
            answered=list(map(_place, answered)),
            failed=failed,
        )
        return CutAnswer(
            staged,
            {
                "views": counts,
                "whole": [],
                _OPERATORS: [view.operator for view in answered],
                _PROGRESS: asdict(progress),
                _LEFT_OUT: [
                    view.operator
                    for view in views
                    if view not in answered and (_place(view) in self.stopped or _place(view) in failed)
                ],
            },
            done=partial(self.stopped.settle, settled),
        )

    def _touched(self, beneath: RowsBeneath, windows: Windows, entries: Iterable[Entry]) -> set[int]:
        """Ends of the windows that rows lie in which the entries bring."""
        ends: set[int] = set()
        for entry in entries:
            for name in entry.files.get(ROWS_FILES, ()):
                for rows in batches_of(self._reader.path(ROWS_FILES, name), [beneath.column]):
                    times = held(moments(timed(rows, beneath.column), beneath.column)) - beneath.back
                    ends.update(ends_of(windows, times).tolist())
        return ends

    def _answer(
        self, view: Answered, beneath: RowsBeneath, due: _Due, cut: int, scratch: StorePath
    ) -> tuple[pa.Table, ViewCounts]:
        """The rows that tell how the windows that are due differ from what was told of them."""
        bound = self._bound(view.operator)[view.name]
        told = self._told_rows(view, bound, due)
        told_ends = set(moments(told, _END).tolist())
        found = beneath.read(due.spans(told_ends), due.windows)
        wanted = {end for end in (*found.worth, *told_ends) if due.is_wanted(end, told_ends)}
        told = _of_windows(told, wanted)
        now = told.select([*own_schema(bound).names, ROW]).slice(0, 0)
        if wanted and found.rows.num_rows:
            path = written("", found.rows).left(scratch).path
            now = _of_windows(groups_of(self.context.spark, bound, path, beneath.columns), wanted)
        final = {end for end in wanted if end <= due.now.final}
        return revised(now, told, found.worth, final, cut)

    def _answer_whole(
        self,
        view: Answered,
        beneath: RowsBeneath,
        cut: int,
        scratch: StorePath,
        *,
        is_final: bool,
        tells_all: bool,
    ) -> tuple[pa.Table, ViewCounts]:
        """The rows that tell how the groups of a running view differ from what was told: all rows beneath are grouped again."""
        bound = self._bound(view.operator)[view.name]
        published = read_published(self.context.layout, self.name)
        paths = published.paths(self.context.layout, self.name, view_kind(view.operator, view.name))
        told = all_rows(paths, result_schema(bound))
        path = written("", beneath.whole()).left(scratch).path
        now = groups_of(self.context.spark, bound, path, beneath.columns)
        return revised_whole(now, told, cut, is_final=is_final, tells_all=tells_all)

    def _told_rows(self, view: Answered, bound: BoundWindow, due: _Due) -> pa.Table:
        """What the lane has told of the windows that may be due."""
        published = read_published(self.context.layout, self.name)
        paths = published.paths(self.context.layout, self.name, view_kind(view.operator, view.name))
        return self._rows.read(paths, result_schema(bound), _END, due.ends())


def _place(view: Answered) -> Place:
    return Place(view.operator, view.name)


def _of_windows(rows: pa.Table, ends: Set[int]) -> pa.Table:
    return rows.filter(pa.array(np.isin(moments(rows, _END), list(ends))))
