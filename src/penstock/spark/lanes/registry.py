"""Which lanes the views of a run need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.ingest.query import IngestQuery
from penstock.spark.lanes.joins.lane import JoinLane
from penstock.spark.lanes.joins.views import JoinViews
from penstock.spark.lanes.lane import Lane, LaneContext
from penstock.spark.lanes.windows.lane import WindowLane
from penstock.spark.publication.kinds import results_of


@dataclass(frozen=True, slots=True)
class LanePlan:
    """A lane that is to run.

    Attributes:
        name: the lane's.
        streams: names of the streams whose logs it reads.
        make: makes it, given the keepers of these logs in the same order.
    """

    name: str
    streams: tuple[str, ...]
    make: Callable[[LaneContext, Sequence[LogKeeper]], Lane]


def _windows(queries: Mapping[str, IngestQuery], _: JoinViews) -> Iterator[LanePlan]:
    """A lane a stream from its first window view on; it stays when the last one is dropped."""
    for stream, query in queries.items():
        if query.plans.had_windows:
            yield LanePlan(
                results_of(stream), (stream,), lambda context, keepers: WindowLane(context, keepers[0])
            )


def _joins(queries: Mapping[str, IngestQuery], views: JoinViews) -> Iterator[LanePlan]:
    """A lane a join view, once all of its streams run."""
    for joined in views.joins:
        streams = joined.definition.streams
        if all(stream in queries for stream in streams):
            yield LanePlan(joined.lane, streams, partial(JoinLane, joined, views.tables))


#: a kind of lane says which of its lanes the streams with their views need
KINDS: Sequence[Callable[[Mapping[str, IngestQuery], JoinViews], Iterable[LanePlan]]] = (_windows, _joins)


def needed_lanes(queries: Mapping[str, IngestQuery], joins: JoinViews) -> Iterator[LanePlan]:
    """The lanes that views need, and what logs hold of earlier ones; those that run already among them."""
    for kind in KINDS:
        yield from kind(queries, joins)
