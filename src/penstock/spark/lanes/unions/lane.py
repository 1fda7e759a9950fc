"""The lane of a UNION ALL view: what batches have kept for its branches becomes its rows.

A cut is one stateless job over the new runs of all branches. Each tuple is in the runs of one entry, so it is copied once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.lanes.cut_lane import CutAnswer, CutLane
from penstock.spark.lanes.cuts import Cut, Reach
from penstock.spark.lanes.joins.progress import STREAMS, StreamProgress, followed, progress_of
from penstock.spark.lanes.lane import LaneContext
from penstock.spark.lanes.unions.explaining import explain_union
from penstock.spark.lanes.unions.task import UnionTask, dealt
from penstock.spark.log.row_log import PROGRESS
from penstock.spark.log.run_files import FoundRuns, RunFiles
from penstock.spark.publication.kinds import view_kind
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.storage.lane_views import RegisteredView
from penstock.spark.storage.unions import UnionDefinition

#: of a cut's figures: see `STREAMS`
_CLOCKS = "clocks"


class UnionLane(CutLane):
    """Answers a UNION ALL view.

    Args:
        registered: the view.
        context: the run's.
        streams: the keepers of its streams, which have been asked for its tuples.
    """

    part = "UNION ALL"

    def __init__(
        self, registered: RegisteredView[UnionDefinition], context: LaneContext, streams: Sequence[LogKeeper]
    ) -> None:
        super().__init__(registered.lane, context, streams)
        self._registered = registered
        self._definition = registered.definition
        self._kind = view_kind(registered.number, self._definition.name)
        self._tasks = context.spark.sparkContext.defaultParallelism
        plans = {keeper.ingest.stream: keeper.ingest.plans for keeper in streams}
        #: by stream, the last entry before the lane's next cut when it began
        self._reached: dict[str, int] = {}
        self._runs = [
            RunFiles(self.readers[branch.stream], plans[branch.stream].demand(branch.demand))
            for branch in self._definition.branches
        ]

    def answer(self, cut: Cut, store: BatchFiles) -> CutAnswer:
        """Copies what is new."""
        task = UnionTask(self._registered.number, self._kind, self._definition.schema, store)
        made = self.jobs.run(task, dealt(self._found(cut), self._tasks))
        streams = self._streams(cut)
        progress = progress_of(streams.values(), self._registered.number)
        figures: dict[str, Any] = {
            "views": {self._definition.name: {"rows": sum(each.rows for each in made)}},
            _CLOCKS: STREAMS.document(streams),
            PROGRESS: {self._definition.name: asdict(progress)},
        }
        return CutAnswer(made, figures)

    def _began(self, stream: str, reach: Reach | None) -> Reach:
        found = super()._began(stream, reach)
        self._reached[stream] = found.entry
        return found

    def _found(self, cut: Cut) -> list[FoundRuns]:
        """Where the tuples of the cut's entries lie, by branch."""
        found = []
        for branch, runs in zip(self._definition.branches, self._runs, strict=True):
            stream = branch.stream
            found.append(runs.find(cut.before[stream].entry, cut.until[stream].entry))
        return found

    def _streams(self, cut: Cut) -> dict[str, StreamProgress]:
        """How far each stream has come with the cut."""
        before = self.publisher.published(cut.number - 1) if cut.number else None
        known = {} if before is None else STREAMS.value(before.figures.get(_CLOCKS, {}))
        found = {}
        for stream, reader in self.readers.items():
            entries = reader.between(cut.before[stream].entry, cut.until[stream].entry)
            found[stream] = followed(known.get(stream), entries, self.context.settings)
        return found

    @property
    def views(self) -> Sequence[str]:
        """The UNION ALL view."""
        return (self._definition.name,)

    @property
    def before(self) -> Sequence[str]:
        """Likewise."""
        return self._registered.lanes_before

    def explain(self) -> list[str]:
        """What is kept of each stream."""
        return explain_union(self._definition)

    def status(self) -> dict[str, Any]:
        """The view, its newest cut, how many entries of each log are in none yet."""
        told = super().status()["lanes"][self.name]
        reach = {**self._reached, **told.get("streams", {})}
        backlog = {
            keeper.ingest.stream: last.number - reach[keeper.ingest.stream]
            for keeper in self.streams
            if (last := keeper.ingest.log.last) is not None and keeper.ingest.stream in reach
        }
        return {"lanes": {self.name: {**told, "view": self._definition.name, "backlog": backlog}}}
