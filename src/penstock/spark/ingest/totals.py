"""What a stream has counted since this process started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.operators.ingest.stage_counts import StageCounts
from penstock.spark.publication.history import added

#: batches whose rate is told
_RECENT_BATCHES = 5


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """What a stream has counted since this process started, up to one batch; the next batch makes new ones.

    Attributes:
        batches, tuples, matched, pairs: published so far.
        recent: (tuples, seconds) of the newest batches.
        quarantined: records by reason.
        view_pairs: (tuple, view) pairs, by definition of a view, see `counted_as`.
        view_errors: (tuple, view) pairs lost to an expression that raised, by view.
        rows_set_aside: rows of files and row groups that could not be read, as far as their number is known.
        null_event_times, future_event_times: tuples kept from windows: event time NULL, or too far ahead of the
            clock.
    """

    batches: int = 0
    tuples: int = 0
    matched: int = 0
    pairs: int = 0
    recent: tuple[tuple[int, float], ...] = ()
    quarantined: Mapping[str, int] = field(default_factory=dict)
    view_pairs: Mapping[str, int] = field(default_factory=dict)
    view_errors: Mapping[str, int] = field(default_factory=dict)
    rows_set_aside: int = 0
    null_event_times: int = 0
    future_event_times: int = 0

    def plus(
        self,
        counts: StageCounts,
        view_pairs: Mapping[str, int],
        quarantined: Mapping[str, int],
        errors: Mapping[str, int],
        rows_set_aside: int,
        seconds: float,
    ) -> Totals:
        """The totals after one more batch.

        Args:
            counts: the batch's.
            view_pairs: its (tuple, view) pairs, by definition of a view.
            quarantined: its quarantined records by reason.
            errors: what its views lost, by view.
            rows_set_aside: rows that could not be read.
            seconds: wall time it took.
        """
        return Totals(
            batches=self.batches + 1,
            tuples=self.tuples + counts.tuples,
            matched=self.matched + counts.matched,
            pairs=self.pairs + counts.pairs,
            recent=(*self.recent, (counts.tuples, seconds))[-_RECENT_BATCHES:],
            quarantined=added(self.quarantined, quarantined),
            view_pairs=added(self.view_pairs, view_pairs),
            view_errors=added(self.view_errors, errors),
            rows_set_aside=self.rows_set_aside + rows_set_aside,
            null_event_times=self.null_event_times + counts.null_event_times,
            future_event_times=self.future_event_times + counts.future_event_times,
        )

    @property
    def tuples_per_second(self) -> float:
        """Rate of the newest batches."""
        seconds = sum(spent for _, spent in self.recent)
        return sum(tuples for tuples, _ in self.recent) / seconds if seconds else 0.0
