"""Which lanes the views of a run need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.spark.ingest.query import IngestQuery
from penstock.spark.lanes.deadlines.lane import DeadlineLane
from penstock.spark.lanes.deadlines.register import DEADLINE_LANE, DeadlineViews
from penstock.spark.lanes.derived.lane import DerivedLane
from penstock.spark.lanes.derived.stream import DerivedStream
from penstock.spark.lanes.joins.lane import JoinLane
from penstock.spark.lanes.joins.views import JoinViews
from penstock.spark.lanes.lane import Lane, LaneContext
from penstock.spark.lanes.refreshed.lane import RefreshedLane
from penstock.spark.lanes.refreshed.views import RefreshedViews
from penstock.spark.lanes.running.lane import RunningLane
from penstock.spark.lanes.unions.lane import UnionLane
from penstock.spark.lanes.unions.views import UnionViews
from penstock.spark.lanes.windows.lane import WindowLane
from penstock.spark.publication.kinds import results_of, running_of


@dataclass(frozen=True, slots=True)
class LanePlan:
    """A lane that is to run.

    Attributes:
        name: the lane's.
        streams: names of the streams whose logs it reads.
        make: makes it, given these logs in the same order.
    """

    name: str
    streams: tuple[str, ...]
    make: Callable[[LaneContext, Sequence[Any]], Lane]


@dataclass(frozen=True, slots=True)
class Needs:
    """What lanes are needed for.

    Attributes:
        queries: the ingest queries by stream, with the selection and window views.
        joins: the join views.
        deadlines: the views with a deadline.
        refreshed: the refreshed views.
        unions: the UNION ALL views.
        derived: the window views over window, join and UNION ALL views, by the one beneath.
    """

    queries: Mapping[str, IngestQuery]
    joins: JoinViews
    deadlines: DeadlineViews
    refreshed: RefreshedViews
    unions: UnionViews
    derived: Sequence[DerivedStream] = ()


def _windows(needs: Needs) -> Iterator[LanePlan]:
    """A lane a stream from its first window view on; it stays when the last one is dropped."""
    for stream, query in needs.queries.items():
        if query.plans.had_windows:
            yield LanePlan(
                results_of(stream), (stream,), lambda context, keepers: WindowLane(context, keepers[0])
            )


def _running(needs: Needs) -> Iterator[LanePlan]:
    """A lane a stream from its first running view on; it stays when the last one is dropped."""
    for stream, query in needs.queries.items():
        if query.plans.had_running:
            name = results_of(running_of(stream))
            yield LanePlan(name, (stream,), lambda context, keepers: RunningLane(context, keepers[0]))


def _joins(needs: Needs) -> Iterator[LanePlan]:
    """A lane a join view, once all of its streams run."""
    for joined in needs.joins.joins:
        streams = joined.definition.streams
        if all(stream in needs.queries for stream in streams):
            shared = needs.joins.shared_jobs[frozenset(streams)]
            yield LanePlan(joined.lane, streams, partial(JoinLane, joined, needs.joins.tables, shared=shared))


def _refreshed(needs: Needs) -> Iterator[LanePlan]:
    """A lane a refreshed view, once all of its streams run."""
    for view in needs.refreshed.views:
        streams = view.definition.streams
        if all(stream in needs.queries for stream in streams):
            yield LanePlan(view.lane, streams, partial(RefreshedLane, view, needs.refreshed.tables))


def _unions(needs: Needs) -> Iterator[LanePlan]:
    """A lane a UNION ALL view, once all of its streams run."""
    for view in needs.unions.unions:
        streams = view.definition.streams
        if all(stream in needs.queries for stream in streams):
            yield LanePlan(view.lane, streams, partial(UnionLane, view))


def _derived(needs: Needs) -> Iterator[LanePlan]:
    """A lane a view that window views are over, once its streams run."""
    for each in needs.derived:
        if each.answered and all(stream in needs.queries for stream in each.source.streams):
            yield LanePlan(results_of(each.name), (each.name,), partial(DerivedLane, each))


def _deadlines(needs: Needs) -> Iterator[LanePlan]:
    """One lane for all views with a deadline, once all of their streams run."""
    streams = needs.deadlines.streams
    if streams and all(stream in needs.queries for stream in streams):
        yield LanePlan(DEADLINE_LANE, streams, partial(DeadlineLane, needs.deadlines))


#: a kind of lane says which of its lanes are needed; those that read what others publish come last
KINDS: Sequence[Callable[[Needs], Iterable[LanePlan]]] = (
    _windows,
    _running,
    _joins,
    _deadlines,
    _refreshed,
    _unions,
    _derived,
)


def needed_lanes(needs: Needs) -> Iterator[LanePlan]:
    """The lanes that views need, and what logs hold of earlier ones; those that run already among them."""
    for kind in KINDS:
        yield from kind(needs)
