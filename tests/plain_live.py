"""A ranking over a running view, answered without Spark: the view's groups move between partitions as they grow."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lane_cases import lane_context
from penstock.plan.rankings import KEPT, PLACE_TYPE, ROW_NUMBER, OrderKey, RankedPlan, Ranking
from penstock.plan.windows import ALL_TIME, Aggregate, ErrorBound
from penstock.spark.lanes.derived.beneath import RunningSource
from penstock.spark.lanes.derived.stream import DerivedStream
from penstock.spark.lanes.derived.views import DerivedView
from penstock.spark.lanes.live.lane import LiveLane
from penstock.spark.publication.kinds import results_of, rows_of, running_of, view_kind
from penstock.spark.publication.manifests import published_paths
from penstock.spark.results.revisions import newest_rows
from penstock.spark.storage.bindings import RunningDefinition
from penstock.spark.storage.layout import Layout
from penstock.sql.windows.bind import BoundOutput, BoundWindow
from penstock.sql.windows.query import Beneath
from penstock.trigger import Trigger
from plain_running import LANE, SHARDS, STREAM, running_lane
from plain_windows import JobsHere, no_spark

#: the log of the rows of the view beneath
ROWS = rows_of(running_of(STREAM), "v")
LIVE_LANE = results_of(ROWS)
NUMBER = pa.int64()
NAMES = ("different", "k", "n", "place")


def live_bound(limit: int) -> BoundWindow:
    """The keys with the most tuples, by their number of different values."""
    ranking = Ranking(ROW_NUMBER, (OrderKey("n", True, False), OrderKey("k", False, True)), limit)
    keys = (("different", NUMBER), *([] if ranking.is_one_row else [("", PLACE_TYPE)]))
    kept = (
        Aggregate(KEPT, "k", NUMBER),
        Aggregate(KEPT, "n", NUMBER),
        Aggregate(ROW_NUMBER, None, PLACE_TYPE),
    )
    plan = RankedPlan("top", "", ALL_TIME, keys, kept, ErrorBound(0.1, 0.1), ranking=ranking)
    kinds = (NUMBER, NUMBER, NUMBER, PLACE_TYPE)
    outputs = tuple(map(BoundOutput, ("_k0", "_a0", "_a1", "_a2"), NAMES, kinds))
    return BoundWindow(plan, (), None, pa.struct([("all", pa.bool_())]), outputs, None)


def live_view(limit: int, name: str = "of the ranking", below: str = "of operator 0") -> DerivedView:
    """The ranking as it is declared; see `RunningStream.views`."""
    definition = RunningDefinition("top", name, "")
    beneath = Beneath(ALL_TIME, "end")
    return DerivedView(definition, live_bound(limit), running_of(STREAM), "v", beneath, below)


def answer_both(
    layout: Layout, limit: int, entries: int = 1, views: Sequence[DerivedView] | None = None
) -> None:
    """Lets both lanes answer all that is in the log."""
    beneath = running_lane(layout, entries=entries)
    beneath.context.rows.read(LANE, {"v": ROWS})
    finished(beneath)
    live = live_lane(layout, [live_view(limit)] if views is None else views, entries)
    finished(live)


def live_lane(layout: Layout, views: Sequence[DerivedView], entries: int = 1) -> LiveLane:
    """A lane that answers what is in the log of the rows beneath."""
    derived = DerivedStream(layout, RunningSource(layout, running_of(STREAM), "v"))
    derived.change({view.definition.name: view for view in views})
    context = lane_context(
        layout, no_spark(), trigger=Trigger.available_now(), shards=SHARDS, compact_every_batches=5
    )
    rows: Any = SimpleNamespace(
        stream=ROWS, ingest=SimpleNamespace(stream=STREAM), active=False, is_complete=True
    )
    lane = LiveLane(derived, context, [rows])
    lane._entries_per_cut = entries
    lane.jobs = JobsHere()  # type: ignore[assignment]
    return lane


def finished(lane: Any) -> None:
    """Runs a lane to its end."""
    lane.start()
    while not lane.await_termination(1.0):
        pass


def live_told(layout: Layout, operator: int = 0) -> pa.Table:
    """Every revision of every row of the ranking."""
    paths = published_paths(layout, LIVE_LANE, view_kind(operator, "top"))
    return pa.concat_tables(pq.read_table(path) for path in paths)


def live_now(layout: Layout, operator: int = 0) -> list[tuple[Any, ...]]:
    """The newest revision of each row, those withdrawn left out."""
    rows = newest_rows(live_told(layout, operator)).to_pylist()
    return sorted(tuple(row[name] for name in NAMES) for row in rows if row["op"] == "upsert")


def first_of(wanted: dict[int, tuple[Any, ...]], limit: int) -> list[tuple[Any, ...]]:
    """The ranking of what the view beneath says of each key, see `RunningStream.wanted`."""
    found: list[tuple[Any, ...]] = []
    for different in {row[3] for row in wanted.values()}:
        own = sorted((-row[0], key) for key, row in wanted.items() if row[3] == different)
        found += [(different, key, -n, place) for place, (n, key) in enumerate(own[:limit], 1)]
    return sorted(found)
