"""What a shard that keeps state did in one cut, and what events tell of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.spark.lanes.windows.shard_state import StateFile
from penstock.spark.results.window_staging import StagedResults


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReport:
    """What a shard did in one cut.

    Attributes:
        results: what it staged.
        state: the files of its state.
        state_bytes: bytes of the state file that it wrote.
        rows: rows of its state.
        restored: whether it was read from the state.
        seconds: wall time.
    """

    results: list[StagedResults]
    state: list[StateFile]
    state_bytes: int
    rows: int
    restored: bool
    seconds: float


def told_of(reports: Sequence[StateReport], run_seconds: float) -> dict[str, float]:
    """Return the figures of a cut's event.

    Args:
        reports: of all shards.
        run_seconds: wall time of their job.
    """
    return {
        "state_rows": sum(report.rows for report in reports),
        "state_bytes": sum(report.state_bytes for report in reports),
        "shards_restored": sum(report.restored for report in reports),
        "shard_seconds": round(max(report.seconds for report in reports), 4),
        "run_seconds": round(run_seconds, 4),
    }
