"""Which lanes the views of a run need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.spark.ingest.query import IngestQuery
from penstock.spark.lanes.deadlines.lane import DeadlineLane
from penstock.spark.lanes.deadlines.register import DEADLINE_LANE, DeadlineViews
from penstock.spark.lanes.derived.beneath import RunningSource
from penstock.spark.lanes.derived.lane import DerivedLane
from penstock.spark.lanes.derived.stream import DerivedStream
from penstock.spark.lanes.history.backfill import BackfillLane, backfill_of
from penstock.spark.lanes.joins.views import JoinViews
from penstock.spark.lanes.lane import Lane, LaneContext, LanePlan
from penstock.spark.lanes.lane_views import LaneViews
from penstock.spark.lanes.live.lane import LiveLane
from penstock.spark.lanes.refreshed.views import RefreshedViews
from penstock.spark.lanes.running.lane import RunningLane
from penstock.spark.lanes.unions.views import UnionViews
from penstock.spark.lanes.windows.lane import WindowLane
from penstock.spark.publication.kinds import results_of, running_of
from penstock.spark.storage.joins import JOINS
from penstock.spark.storage.refreshed import REFRESHED
from penstock.spark.storage.unions import UNIONS


@dataclass(frozen=True, slots=True)
class Needs:
    """What lanes are needed for.

    Attributes:
        queries: the ingest queries by stream, with the selection and window views.
        own: the views that have lanes of their own, by kind.
        deadlines: the views with a deadline.
        derived: the views over window, running, join and UNION ALL views, by the one beneath.
    """

    queries: Mapping[str, IngestQuery]
    own: Sequence[LaneViews[Any]]
    deadlines: DeadlineViews
    derived: Sequence[DerivedStream] = ()


def _of_streams(needs: Needs) -> Iterator[LanePlan]:
    """Lanes a stream from its first window or running view on; they stay when the last one is dropped.

    The first one puts entries of its own into the log that the others read.
    """
    for stream, query in needs.queries.items():
        has_windows, has_running = query.plans.had_windows, query.plans.had_running
        if has_windows or has_running:
            yield _of_stream(backfill_of(stream), stream, BackfillLane)
        if has_windows:
            yield _of_stream(results_of(stream), stream, WindowLane)
        if has_running:
            yield _of_stream(results_of(running_of(stream)), stream, RunningLane)


def _of_stream(name: str, stream: str, lane: Callable[[LaneContext, Any], Lane]) -> LanePlan:
    return LanePlan(name, (stream,), lambda context, keepers: lane(context, keepers[0]))


def _own(needs: Needs) -> Iterator[LanePlan]:
    """A lane a view of a kind that has lanes of its own, once all of the view's streams run."""
    for plan in (plan for each in needs.own for plan in each.lanes()):
        if all(stream in needs.queries for stream in plan.streams):
            yield plan


def _derived(needs: Needs) -> Iterator[LanePlan]:
    """A lane a view that window views are over, once its streams run."""
    for each in needs.derived:
        if each.answered and all(stream in needs.queries for stream in each.source.streams):
            lane = LiveLane if isinstance(each.source, RunningSource) else DerivedLane
            yield LanePlan(results_of(each.name), (each.name,), partial(lane, each))


def _deadlines(needs: Needs) -> Iterator[LanePlan]:
    """One lane for all views with a deadline, once all of their streams run."""
    streams = needs.deadlines.streams
    if streams and all(stream in needs.queries for stream in streams):
        yield LanePlan(DEADLINE_LANE, streams, partial(DeadlineLane, needs.deadlines))


def views_with_lanes(context: LaneContext) -> dict[str, LaneViews[Any]]:
    """The views of a run that have lanes of their own, by kind.

    Raises:
        DamagedError: a register of them is missing or damaged.
    """
    layout, settings = context.layout, context.settings
    return {
        JOINS.name: JoinViews(layout, settings.shards or context.spark.sparkContext.defaultParallelism),
        REFRESHED.name: RefreshedViews(layout),
        UNIONS.name: UnionViews(layout),
    }


#: a kind of lane says which of its lanes are needed; those that put entries into logs come first, and those that read what others publish last
KINDS: Sequence[Callable[[Needs], Iterable[LanePlan]]] = (
    _of_streams,
    _own,
    _deadlines,
    _derived,
)


def needed_lanes(needs: Needs) -> Iterator[LanePlan]:
    """The lanes that views need, and what logs hold of earlier ones; those that run already among them."""
    for kind in KINDS:
        yield from kind(needs)
