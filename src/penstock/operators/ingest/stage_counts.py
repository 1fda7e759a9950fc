"""What the map stage counts of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import add

import numpy as np
import numpy.typing as npt

from penstock.operators.functions.judging import (
    MEASURES,
    Measures,
)
from penstock.operators.ingest.arrivals import Arrivals, merged_arrivals
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.operators.windows.arrival_steps import StepTimes, merged_by_step


def least(one: int | None, other: int | None) -> int | None:
    """The smaller one; None has no say."""
    return min((each for each in (one, other) if each is not None), default=None)


def most(one: int | None, other: int | None) -> int | None:
    """The larger one; None has no say."""
    return max((each for each in (one, other) if each is not None), default=None)


@dataclass(slots=True, eq=False)
class StageCounts:
    """What a task counted; the sum of two holds the counts of both.

    Attributes:
        tuples, matched, pairs: tuples seen, tuples that satisfied a view, (tuple, view) pairs.
        skipped: tuples of row groups whose statistics ruled out every query, counted in `tuples` too.
        evaluations: ASC evaluations, over the `asc_tuples` that the ASC side answered.
        index_tuples, index_ns: tuples that the index answered, and what they took, encoding included.
        asc_tried, asc_ns: tuples that the ASCs answered or were tried on, and what they took.
        coded, coding_ns: sampled tuples, and what working out the regions of each column took, int64[n] ns.
        encode_ns, match_ns, pane_ns, write_ns: processor time by part.
        view_pairs: pairs a view, int64[views].
        view_errors: tuples a view lost to an expression that raised, int64[views].
        window_errors: the same of each of the window operators' conditions, int64[`PaneProgram.members`].
        demand_errors: the same of each demand of tuples, int64[demands].
        calls: what calls of users' functions did, float64[calls, MEASURES].
        branch_pairs: pairs of tuple and branch that these judged, int64[branches].
        set_tuples, set_partials: tuples that were aggregated by the set of the windows' conditions that they satisfy, and the
            partials that came of it before these were spread over the conditions.
        null_event_times, future_event_times: tuples kept from the windows because their event time is
            NULL or beyond what is kept ahead.
        ahead_event_times: tuples too far ahead of the clock and of the stream for their event time to be believed: the
            windows hold them, but they do not move the stream on.
        oldest_recent_event_time: smallest event time that is not too late to matter for slack, or None.
        oldest_event_time, newest_event_time: smallest and largest event time that is believed, microseconds since
            the epoch, or None.
        furthest_event_time: largest event time of the windows' tuples, or None.
        middles: number and median event time of some tuples each.
        steps: event times by arrival step, where the batch has several.
        arrivals: when tuples arrived, where the source knows it and readers of the log ask for tuples.
    """

    tuples: int = 0
    matched: int = 0
    pairs: int = 0
    skipped: int = 0
    evaluations: int = 0
    asc_tuples: int = 0
    index_tuples: int = 0
    index_ns: int = 0
    asc_tried: int = 0
    asc_ns: int = 0
    coded: int = 0
    coding_ns: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    encode_ns: int = 0
    match_ns: int = 0
    pane_ns: int = 0
    write_ns: int = 0
    view_pairs: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    view_errors: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    window_errors: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    demand_errors: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    calls: Measures = field(default_factory=lambda: np.zeros((0, MEASURES)))
    branch_pairs: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    set_tuples: int = 0
    set_partials: int = 0
    null_event_times: int = 0
    future_event_times: int = 0
    ahead_event_times: int = 0
    oldest_recent_event_time: int | None = field(default=None, metadata={"merged": least})
    oldest_event_time: int | None = field(default=None, metadata={"merged": least})
    newest_event_time: int | None = field(default=None, metadata={"merged": most})
    furthest_event_time: int | None = field(default=None, metadata={"merged": most})
    middles: list[tuple[int, int]] = field(default_factory=list)
    steps: Mapping[int, StepTimes] = field(default_factory=dict, metadata={"merged": merged_by_step})
    arrivals: Arrivals = field(default_factory=dict, metadata={"merged": merged_arrivals})

    @classmethod
    def none(cls, program: StreamProgram) -> StageCounts:
        """The counts of no tuples."""
        members = len(program.windows.members) if program.windows else 0
        return cls(
            coding_ns=np.zeros(len(program.plan.codings), np.int64),
            view_pairs=np.zeros(program.outcomes.views, np.int64),
            view_errors=np.zeros(program.outcomes.views, np.int64),
            window_errors=np.zeros(members, np.int64),
            demand_errors=np.zeros(len(program.tuples.plans) if program.tuples else 0, np.int64),
            calls=np.zeros((len(program.calls.calls) if program.calls else 0, MEASURES)),
            branch_pairs=np.zeros(len(program.calls.owners) if program.calls else 0, np.int64),
        )

    @property
    def coding_costs(self) -> npt.NDArray[np.float64] | None:
        """What working out the region of one value takes, float64[n] ns; None where nothing was sampled."""
        return self.coding_ns / self.coded if self.coded else None

    def __add__(self, other: StageCounts) -> StageCounts:
        return StageCounts(
            **{
                each.name: each.metadata.get("merged", add)(
                    getattr(self, each.name), getattr(other, each.name)
                )
                for each in fields(self)
            }
        )
