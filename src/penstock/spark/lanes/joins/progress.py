"""How far the rows of a join view are told: as far as the streams have come whose tuples are joined."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from penstock.operators.windows.answers import Progress
from penstock.operators.windows.clocks import Clocks, StreamTime
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.settings import Settings
from penstock.spark.log.entries import Entry
from penstock.spark.storage.codec import Codec


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """How far a stream has come.

    Attributes:
        time: its clocks.
        answer_all: whether what is there is all there is for now.
        ended: whether the stream has ended.
    """

    time: StreamTime
    answer_all: bool = False
    ended: bool = False


#: of all streams by name, in the manifest of a cut
STREAMS = Codec(dict[str, StreamProgress])


def followed(known: StreamProgress | None, entries: Iterable[Entry], settings: Settings) -> StreamProgress:
    """How far a stream has come with further entries of its log.

    Args:
        known: how far it had come; None: nothing is known of it.
        entries: those that follow.
        settings: say which delays count, and what the horizon is at least.
    """
    clocks = Clocks(int(settings.max_delay_seconds * 1e6), int(settings.least_horizon_seconds * 1e6))
    found = known or StreamProgress(clocks.state)
    clocks.restore(found.time)
    for entry in entries:
        if entry.newest is not None:
            clocks.take_in(entry.newest, None, np.array(entry.delays, np.int64))
        clocks.reach(entry.reached)
        found = StreamProgress(clocks.state, entry.answer_all, entry.ended)
    return found


def progress_of(streams: Collection[StreamProgress], lane: int) -> Progress:
    """How far rows are told of which each event time is one of these streams'.

    Args:
        streams: all that are joined.
        lane: number of the lane that has told them.
    """
    live = [each for each in streams if not each.ended]
    if not live:
        newest = (each.time.newest for each in streams)
        return Progress(max(_known(each) for each in newest), AFTER_ALL, AFTER_ALL, lane)
    return Progress(
        min(_known(each.time.newest) for each in live),
        min(AFTER_ALL if each.answer_all else _known(each.time.reached) for each in live),
        min(each.time.known for each in live),
        lane,
    )


def _known(moment: int | None) -> int:
    return BEFORE_ALL if moment is None else moment
