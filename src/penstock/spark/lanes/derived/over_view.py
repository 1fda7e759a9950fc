"""What the lanes of views over one view have in common: one log brings the rows of the view beneath."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from typing import Any

from penstock.spark.lanes.cut_lane import CutLane
from penstock.spark.lanes.cuts import Cut, Reach
from penstock.spark.lanes.derived.stream import DerivedStream
from penstock.spark.lanes.lane import LaneContext, LaneInput
from penstock.spark.lanes.shared_jobs import SharedJobs
from penstock.spark.log.entries import Entry
from penstock.spark.publication.kinds import results_of
from penstock.spark.results.bound_views import stored_views


class LaneOverView(CutLane):
    """Answers views over one view.

    Args:
        derived: the view beneath, and those over it.
        context: the run's.
        inputs: the log of the rows of the view beneath, alone.
        shared: see `CutLane`.
    """

    def __init__(
        self,
        derived: DerivedStream,
        context: LaneContext,
        inputs: Sequence[LaneInput],
        shared: SharedJobs | None = None,
    ) -> None:
        super().__init__(results_of(derived.name), context, inputs, shared=shared)
        self._derived = derived
        self._reader = self.readers[derived.name]
        self._bound = lru_cache(256)(partial(stored_views, context.layout, derived.name))

    @property
    def views(self) -> Sequence[str]:
        """Those over the view."""
        return list(self._derived.definitions)

    def explain(self) -> list[str]:
        """The views and what they compute."""
        return self._derived.explain()

    def orders(self, until: Mapping[str, Reach]) -> Mapping[str, Any]:  # noqa: ARG002
        """The views that the cut answers."""
        return {"views": [view.document() for view in self._derived.answered]}

    def _entries(self, cut: Cut) -> list[Entry]:
        """The entries of a cut that are kept."""
        before, until = cut.before[self._derived.name], cut.until[self._derived.name]
        return self._reader.between(max(before.entry, self._reader.first - 1), until.entry)

    def _goes_on(self, cut: Cut, entries: Sequence[Entry], reach: Mapping[str, Any] | None) -> bool:
        """Whether the entries of a cut bring all that has come behind a place in the log, which an earlier cut has reached."""
        before = cut.before[self._derived.name]
        is_next = reach == asdict(before) and (not entries or entries[0].number == before.entry + 1)
        return is_next and not any(entry.answer_all for entry in entries)
