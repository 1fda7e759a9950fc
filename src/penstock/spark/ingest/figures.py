"""What a published batch says of itself: the figures of its manifest, which its events and the log's entry repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.control.stream_clock import weighted_median
from penstock.operators.ingest.stage_counts import StageCounts
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.spark.ingest.compiling import CompiledPlan
from penstock.spark.publication.manifests import VIEW_PAIRS
from penstock.spark.reporting.definitions import counted_as
from penstock.spark.tasks.worker import TaskReport


def figures_of(
    batch: int,
    plan: CompiledPlan,
    offsets: str | None,
    reports: Sequence[TaskReport],
    counts: StageCounts,
    demanding: Mapping[int, Collection[str]],
) -> dict[str, Any]:
    """The figures of a batch.

    Args:
        batch: its number.
        plan: what answered it.
        offsets: what it reads, see `offsets_digest`; None where that is not known.
        reports: of its tasks.
        counts: the sums of theirs.
        demanding: names of the views that demands of tuples are for, by the demand's id.
    """
    quarantined: Counter[str] = Counter()
    for report in reports:
        quarantined.update(report.quarantined)
    demand_errors: dict[int, int] = {}
    if plan.program.tuples is not None:
        lost = zip(plan.program.tuples.plans, counts.demand_errors.tolist(), strict=True)
        demand_errors = {each.id: errors for each, errors in lost if errors}
    figures: dict[str, Any] = {
        "batch": batch,
        "plan": plan.program.version,
        "offsets": offsets,
        "tuples": counts.tuples,
        "matched": counts.matched,
        "pairs": counts.pairs,
        VIEW_PAIRS: view_pairs_of(counts, plan.program),
        "quarantined": dict(quarantined),
        "rows_set_aside": sum(each.rows or 0 for report in reports for each in report.set_aside),
        "errors": {**plan.errors(counts), **_by_view(demand_errors, demanding)},
        "oldest_event_time_us": counts.oldest_event_time,
        "oldest_recent_event_time_us": counts.oldest_recent_event_time,
        "newest_event_time_us": counts.newest_event_time,
        "furthest_event_time_us": counts.furthest_event_time,
    }
    if counts.steps:
        figures["arrival_steps"] = [
            [step, own.oldest, own.newest, own.recent] for step, own in sorted(counts.steps.items())
        ]
    if plan.program.tuples is not None:
        figures["demand_errors"] = {str(demand): errors for demand, errors in demand_errors.items()}
    windows = plan.program.windows
    if plan.program.tuples is not None or (windows is not None and windows.time is not None):
        figures["null_event_times"] = counts.null_event_times
        figures["future_event_times"] = counts.future_event_times
        figures["ahead_event_times"] = counts.ahead_event_times
        figures["timed_tuples"] = sum(times for times, _ in counts.middles)
        figures["middle_event_time_us"] = weighted_median(counts.middles)
    return figures


def view_pairs_of(counts: StageCounts, program: StreamProgram) -> dict[str, int]:
    """The (tuple, view) pairs of the views that matched, by definition of a view."""
    views, numbers = program.views, program.definitions
    return {
        counted_as(views[index], numbers[index] if numbers else 1): int(counts.view_pairs[index])
        for index in np.flatnonzero(counts.view_pairs).tolist()
    }


def _by_view(errors: Mapping[int, int], demanding: Mapping[int, Collection[str]]) -> dict[str, int]:
    """Tuples that views lost: the same one may be in several demands of a view, which counts the largest."""
    found: dict[str, int] = {}
    for demand, lost in errors.items():
        for view in demanding.get(demand, ()):
            found[view] = max(lost, found.get(view, 0))
    return found
