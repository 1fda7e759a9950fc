"""The lane of a view over the rows of other views: Spark answers its query over them, of the windows that have changed or as a whole.

The logs of the rows beneath say what has changed, and the results folder has the rows. What is told is how the answer differs from what was
told before. A cut that is answered again reads the rows that there are then: what it tells still leads to their answer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import StreamFailedError
from penstock.operators.windows.answers import Progress
from penstock.plan.times import BEFORE_ALL
from penstock.spark.lanes.composed.inputs import RowsOf, WantedWindows, ahead
from penstock.spark.lanes.cut_lane import CutAnswer, CutLane
from penstock.spark.lanes.cuts import Cut, Reach
from penstock.spark.lanes.derived.beneath import ViewBeneath
from penstock.spark.lanes.lane import LaneContext, LaneInput
from penstock.spark.lanes.refreshed.changes import UNCHANGED, changed, standing
from penstock.spark.lanes.refreshed.defining import frame_of, session_beside
from penstock.spark.lanes.refreshed.explaining import explain_refreshed
from penstock.spark.lanes.refreshed.lane import ANSWER, TABLES
from penstock.spark.lanes.refreshed.statics import ReadTables
from penstock.spark.log.entries import Entry
from penstock.spark.publication.kinds import view_kind
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.retention import FOREVER
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.results.joined_rows import marks_of
from penstock.spark.results.published_rows import PublishedRows
from penstock.spark.results.window_rows import MadeResults
from penstock.spark.results.window_staging import written
from penstock.spark.sources.static_tables import StaticTable
from penstock.spark.storage.columns import batches_of
from penstock.spark.storage.lane_views import RegisteredView
from penstock.spark.storage.layout import ROWS_FILES
from penstock.spark.storage.refreshed import RefreshedDefinition
from penstock.spark.storage.store_paths import StorePath
from penstock.sql.refreshed.windowed import WINDOW_END

#: of a cut's figures: how far each view beneath had come
_PROGRESS = "beneath"
_WINDOW_FIELD = pa.field(WINDOW_END, pa.int64())


class ComposedLane(CutLane):
    """Answers a view over the rows of other views.

    Args:
        registered: the view.
        sources: the views beneath, in the order of its definition.
        tables: the static tables, by name.
        context: the run's.
        inputs: the logs of the rows of the views beneath, in the same order.
    """

    part = "view over rows of views"

    def __init__(
        self,
        registered: RegisteredView[RefreshedDefinition],
        sources: Sequence[ViewBeneath],
        tables: Mapping[str, StaticTable],
        context: LaneContext,
        inputs: Sequence[LaneInput],
    ) -> None:
        # the next answer is compared with the rows of before
        context = replace(context, retention=FOREVER)
        super().__init__(registered.lane, context, inputs)
        self._registered, self._definition = registered, registered.definition
        self._beneath = {
            source.name: RowsOf(read, source, context.layout)
            for read, source in zip(self._definition.views, sources, strict=True)
        }
        own = {name: tables[name] for name in self._definition.tables}
        self._tables = ReadTables(own, context.layout, context.events, self.name)
        self._kind = view_kind(registered.number, self._definition.name)
        self._own = self._definition.schema
        if self._definition.windows is not None:
            self._own = self._own.append(_WINDOW_FIELD)
        self._files = PublishedRows()
        self._session: SparkSession | None = None
        #: of the rows that the newest answer has read
        self._read_bytes = 0
        #: of an answer as a whole: the number of the newest cut that is published, and what its rows come to
        self._before: tuple[int, pa.Table] | None = None

    def orders(self, until: Mapping[str, Reach]) -> Mapping[str, Any]:  # noqa: ARG002
        """Which versions of static tables the answer is over, as far as can be told before they are read."""
        return {TABLES: self._tables.versions()}

    def answer(self, cut: Cut, store: BatchFiles) -> CutAnswer:
        """Answers the query and tells how the answer differs from what was told."""
        began = time.perf_counter()
        self.jobs.own()
        published = self.publisher.published(cut.number - 1) if cut.number else None
        known: Mapping[str, Any] = {} if published is None else published.figures
        entries = {name: self._entries(name, cut) for name in self._beneath}
        told = {name: Progress(**each) for name, each in known.get(_PROGRESS, {}).items()}
        now = {
            name: (own[-1].progress or Progress()) if own else told.get(name, Progress())
            for name, own in entries.items()
        }
        goes_on = bool(known) and known.get(TABLES) == cut.orders[TABLES]
        goes_on = goes_on and all(self._goes_on(name, cut, own, known) for name, own in entries.items())
        rows = 0 if published is None else int(known[ANSWER]["rows"])
        wanted = self._wanted(entries, told if goes_on else {}, now)
        brings = any(entry.files for own in entries.values() for entry in own)
        if wanted is not None:
            told_rows = self._told_windows(wanted)
            change = changed(told_rows, self._answered(cut, wanted, store.scratch), cut.number)
        elif brings or not goes_on:
            told_rows = self._told_whole(cut.number, rows)
            change = changed(told_rows, self._answered(cut, None, store.scratch), cut.number)
            self._before = cut.number, change.now
        else:
            change = UNCHANGED
            if self._before is not None and self._before[0] == cut.number - 1:
                self._before = cut.number, self._before[1]
        staged = []
        if change.rows.num_rows:
            files = store.put(self._registered.number, 0, [written(self._kind, change.rows)])
            staged.append(MadeResults(self._registered.number, 0, files))
        said = {"rows": change.inserted, "withdrawn": change.deleted}
        took = round(time.perf_counter() - began, 3)
        return CutAnswer(
            staged,
            {
                "views": {self._definition.name: said},
                TABLES: cut.orders[TABLES],
                ANSWER: {
                    "rows": rows + change.inserted - change.deleted,
                    "seconds": took,
                    "bytes": self._read_bytes,
                },
                _PROGRESS: {name: asdict(each) for name, each in now.items()},
            },
        )

    def _entries(self, name: str, cut: Cut) -> list[Entry]:
        """The entries of a cut that the log of a view's rows has."""
        reader = self.readers[name]
        return reader.between(max(cut.before[name].entry, reader.first - 1), cut.until[name].entry)

    def _goes_on(self, name: str, cut: Cut, entries: Sequence[Entry], known: Mapping[str, Any]) -> bool:
        """Whether entries bring all that has come of a view's rows behind what the cut before has reached."""
        before = cut.before[name]
        if known["until"].get(name) != asdict(before):
            return False
        is_next = not entries or entries[0].number == before.entry + 1
        return is_next and not any(entry.answer_all for entry in entries)

    def _wanted(
        self,
        entries: Mapping[str, Sequence[Entry]],
        told: Mapping[str, Progress],
        now: Mapping[str, Progress],
    ) -> WantedWindows | None:
        """The windows that a cut answers: those that all views beneath have told by now, or have changed. None: it is not answered by windows."""
        windows = self._definition.windows
        if windows is None:
            return None
        before = min(
            (own.reached(told.get(name, Progress())) for name, own in self._beneath.items()),
            default=BEFORE_ALL,
        )
        until = min(own.reached(now[name]) for name, own in self._beneath.items())
        touched: set[int] = set()
        for name, own in self._beneath.items():
            paths = (
                self.readers[name].path(ROWS_FILES, file)
                for entry in entries[name]
                for file in entry.files.get(ROWS_FILES, ())
            )
            touched |= own.touched(paths, windows, before)
        return WantedWindows(windows, ahead(before, until), touched)

    def _answered(self, cut: Cut, wanted: WantedWindows | None, scratch: StorePath) -> pa.Table:
        """What Spark answers over the rows beneath."""
        self._read_bytes = 0
        if wanted is not None and not wanted.by_end:
            return self._own.empty_table()
        definition, most = self._definition, self.context.settings.refreshed_rows
        if self._session is None:
            self._session = session_beside(self.context.spark)
        session, frames = self._session, dict[str, DataFrame]()
        for each in self._beneath.values():
            found = each.frame(session, wanted, scratch)
            if found is None:
                # nothing has been told of it yet
                return self._own.empty_table()
            frames[each.read.name] = found.frame
            self._read_bytes += found.size
        frames |= self._tables.frames(session, cut.orders[TABLES])
        text = definition.rest if wanted is None else definition.by_window
        answer = frame_of(session, text, frames, ()).limit(most + 1).toArrow()
        if answer.num_rows > most:
            raise StreamFailedError(
                f"view {definition.name} has more than {most:,} rows in one answer, so it is not answered. Aggregate or filter more, or "
                "raise the setting refreshed_rows."
            )
        answer = answer.rename_columns(self._own.names)
        if wanted is None:
            return answer.cast(self._own)
        ends = pc.cast(answer.column(WINDOW_END).cast(pa.timestamp("us")), pa.int64())
        return answer.drop_columns([WINDOW_END]).cast(definition.schema).append_column(_WINDOW_FIELD, ends)

    def _told_windows(self, wanted: WantedWindows) -> pa.Table:
        """The rows of some windows that stand, with their names."""
        schema = pa.schema([*self._own, *marks_of(self._own.names)])
        rows = self._files.read(self._paths(), schema, WINDOW_END, wanted.by_end)
        return standing(reversed(rows.to_batches()), self._own, rows.num_rows)

    def _told_whole(self, cut: int, rows: int) -> pa.Table:
        """The answer that all rows published before a cut come to, so many of them, with their names."""
        if self._before is not None and self._before[0] == cut - 1:
            return self._before[1]
        newest_first = (batch for path in reversed(self._paths()) for batch in reversed([*batches_of(path)]))
        return standing(newest_first, self._own, rows)

    def _paths(self) -> list[StorePath]:
        published = read_published(self.context.layout, self.name)
        return published.paths(self.context.layout, self.name, self._kind)

    @property
    def views(self) -> Sequence[str]:
        """The view."""
        return (self._definition.name,)

    def explain(self) -> list[str]:
        """What Spark computes, and over what."""
        return explain_refreshed(self._definition)

    def status(self) -> dict[str, Any]:
        """The view, its newest cut, how many entries of each log are in none yet."""
        told = super().status()["lanes"][self.name]
        reach = told.get("streams", {})
        backlog = {name: reader.last - reach.get(name, -1) for name, reader in self.readers.items()}
        return {"lanes": {self.name: {**told, "view": self._definition.name, "backlog": backlog}}}
