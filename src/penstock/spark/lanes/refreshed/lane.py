"""The lane of a refreshed view: Spark answers the whole query over all tuples so far, time and again.

What is told is how each answer differs from the one before. That is what has been published, so there is no state beside the results and
the tuples in the logs. A cut covers the entries up to a number in each log: its answer is that of exactly their tuples.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.errors import StreamFailedError
from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.lanes.cut_lane import CutAnswer, CutLane
from penstock.spark.lanes.cuts import Cut, Reach
from penstock.spark.lanes.lane import LaneContext
from penstock.spark.lanes.refreshed.archive import archive_frame, demand_of
from penstock.spark.lanes.refreshed.changes import changed, standing
from penstock.spark.lanes.refreshed.defining import frame_of, session_beside
from penstock.spark.lanes.refreshed.explaining import explain_refreshed
from penstock.spark.lanes.refreshed.statics import ReadTables
from penstock.spark.log.run_files import RunFiles
from penstock.spark.publication.kinds import view_kind
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.retention import FOREVER
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.results.window_rows import MadeResults
from penstock.spark.results.window_staging import written
from penstock.spark.sources.static_tables import StaticTable
from penstock.spark.storage.columns import batches_of
from penstock.spark.storage.lane_views import RegisteredView
from penstock.spark.storage.layout import tuples_kind
from penstock.spark.storage.refreshed import RefreshedDefinition
from penstock.spark.storage.store_paths import size_of

#: of a cut's orders and figures: the version of each static table
TABLES = "tables"
#: of a cut's figures: rows of the whole answer, and what it took
ANSWER = "answer"


class RefreshedLane(CutLane):
    """Answers a refreshed view.

    Args:
        registered: the view.
        tables: the static tables, by name.
        context: the run's.
        streams: the keepers of its streams, which have been asked for its tuples.
    """

    part = "refreshed view"
    reads_again = True

    def __init__(
        self,
        registered: RegisteredView[RefreshedDefinition],
        tables: Mapping[str, StaticTable],
        context: LaneContext,
        streams: Sequence[LogKeeper],
    ) -> None:
        # the next answer is compared with all rows
        context = replace(context, retention=FOREVER)
        super().__init__(registered.lane, context, streams, entries_per_cut=sys.maxsize)
        self._registered = registered
        self._definition = registered.definition
        self._tables = ReadTables(
            {name: tables[name] for name in registered.definition.tables},
            context.layout,
            context.events,
            self.name,
        )
        self._schemas = {keeper.ingest.stream: keeper.ingest.source.schema for keeper in streams}
        plans = {keeper.ingest.stream: keeper.ingest.plans for keeper in streams}
        self._demands = {
            read.name: plans[read.name].demand(demand_of(read)) for read in self._definition.inputs
        }
        self._begins = {each.stream: each.entry for each in registered.beginnings}
        self._kind = view_kind(registered.number, self._definition.name)
        self._session: SparkSession | None = None
        #: of the files with tuples that the newest answer has read
        self._read_bytes = 0
        #: the number of the newest cut that is published, and the answer that its rows come to
        self._before: tuple[int, pa.Table] | None = None
        self._last_put = time.monotonic() if context.trigger.is_bounded else -sys.float_info.max

    def orders(self, until: Mapping[str, Reach]) -> Mapping[str, Any]:  # noqa: ARG002
        """Which versions of static tables the next answer is over, as far as can be told before they are read."""
        self._last_put = time.monotonic()
        return {TABLES: self._tables.versions()}

    @property
    def is_due(self) -> bool:
        """Whether the interval has passed."""
        return time.monotonic() - self._last_put >= self._definition.seconds

    def held_from(self, stream: str, before: Reach) -> int:  # noqa: ARG002
        """All tuples since the view began are read again."""
        return max(self._begins[stream] + 1, self.readers[stream].first)

    def answer(self, cut: Cut, store: BatchFiles) -> CutAnswer:
        """Answers the query and tells how the answer differs from the one before."""
        began = time.perf_counter()
        self.jobs.own()
        published = self.publisher.published(cut.number - 1) if cut.number else None
        known = {} if published is None else published.figures
        before = self._answer_before(cut.number, 0 if published is None else known[ANSWER]["rows"])
        if published is not None and not self._brings(cut) and known.get(TABLES) == cut.orders[TABLES]:
            self._keep(cut.number, before)
            said = {"rows": 0, "withdrawn": 0}
            return CutAnswer((), {"views": {self._name: said}, TABLES: known[TABLES], ANSWER: known[ANSWER]})
        change = changed(before, self._answered(cut), cut.number)
        staged = []
        if change.rows.num_rows:
            files = store.put(self._registered.number, 0, [written(self._kind, change.rows)])
            staged.append(MadeResults(self._registered.number, 0, files))
        self._keep(cut.number, change.now)
        said = {"rows": change.inserted, "withdrawn": change.deleted}
        took = round(time.perf_counter() - began, 3)
        return CutAnswer(
            staged,
            {
                "views": {self._name: said},
                TABLES: cut.orders[TABLES],
                ANSWER: {"rows": change.now.num_rows, "seconds": took, "bytes": self._read_bytes},
            },
        )

    @property
    def _name(self) -> str:
        return self._definition.name

    def _keep(self, cut: int, rows: pa.Table) -> None:
        self._before = cut, rows

    def _brings(self, cut: Cut) -> bool:
        """Whether its entries have tuples of a stream."""
        return any(
            tuples_kind(self._demands[stream]) in entry.files
            for stream, reader in self.readers.items()
            for entry in reader.between(cut.before[stream].entry, cut.until[stream].entry)
        )

    def _answer_before(self, cut: int, rows: int) -> pa.Table:
        """The answer that the rows published before a cut come to, so many of them, with their names."""
        if self._before is not None and self._before[0] == cut - 1:
            return self._before[1]
        own = self._definition.schema
        paths = read_published(self.context.layout, self.name).paths(
            self.context.layout, self.name, self._kind
        )
        newest_first = (batch for path in reversed(paths) for batch in reversed([*batches_of(path)]))
        return standing(newest_first, own, rows)

    def _answered(self, cut: Cut) -> pa.Table:
        """What Spark answers over the tuples of the entries up to the cut."""
        if self._session is None:
            self._session = session_beside(self.context.spark)
        session, most = self._session, self.context.settings.refreshed_rows
        self._read_bytes = 0
        tables = {read.name: self._archive(session, read.name, cut) for read in self._definition.inputs}
        tables |= self._tables.frames(session, cut.orders[TABLES])
        frame = frame_of(session, self._definition.sql, tables, self._definition.beneath)
        rows = frame.limit(most + 1).toArrow()
        if rows.num_rows > most:
            raise StreamFailedError(
                f"refreshed view {self._name} has more than {most:,} rows, so it is not answered. Aggregate or filter more, or raise "
                "the setting refreshed_rows."
            )
        schema = self._definition.schema
        return rows.rename_columns(schema.names).cast(schema)

    def _archive(self, session: SparkSession, stream: str, cut: Cut) -> DataFrame:
        """The tuples of a stream up to the cut."""
        read = next(each for each in self._definition.inputs if each.name == stream)
        after = max(self._begins[stream], cut.since[stream].entry - 1)
        runs = RunFiles(self.readers[stream], self._demands[stream]).find(after, cut.until[stream].entry)
        kind = tuples_kind(self._demands[stream])
        paths = (self.readers[stream].path(kind, each.name) for each in runs.files)
        self._read_bytes += sum(size_of(path) for path in paths)
        schema = self._schemas[stream]
        return archive_frame(session, runs, StructType([schema[name] for name in read.columns]))

    @property
    def views(self) -> Sequence[str]:
        """The refreshed view."""
        return (self._name,)

    def explain(self) -> list[str]:
        """What Spark answers, how often and over what."""
        return explain_refreshed(self._definition)

    def status(self) -> dict[str, Any]:
        """The view, its newest cut, how many entries of each log are in none yet."""
        told = super().status()["lanes"][self.name]
        reach = {**self._begins, **told.get("streams", {})}
        backlog = {
            keeper.ingest.stream: last.number - reach[keeper.ingest.stream]
            for keeper in self.streams
            if (last := keeper.ingest.log.last) is not None
        }
        return {"lanes": {self.name: {**told, "view": self._name, "backlog": backlog}}}
