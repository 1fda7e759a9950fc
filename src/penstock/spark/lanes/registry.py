"""Which lanes the views of a run need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.ingest.query import IngestQuery
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


def _windows(queries: Mapping[str, IngestQuery]) -> Iterator[LanePlan]:
    """A lane a stream from its first window view on; it stays when the last one is dropped."""
    for stream, query in queries.items():
        if query.plans.had_windows:
            yield LanePlan(
                results_of(stream), (stream,), lambda context, keepers: WindowLane(context, keepers[0])
            )


#: a kind of lane says which of its lanes the streams with their views need
KINDS: Sequence[Callable[[Mapping[str, IngestQuery]], Iterable[LanePlan]]] = (_windows,)


def needed_lanes(queries: Mapping[str, IngestQuery]) -> Iterator[LanePlan]:
    """The lanes that streams need, by their views and by what their logs hold; those that run already among them."""
    for kind in KINDS:
        yield from kind(queries)
