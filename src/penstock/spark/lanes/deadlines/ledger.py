"""What became of window instances: what is published of it, and the windows that were not released in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.control.policies.deadlines.policy import DeadlineStanding
from penstock.spark.publication.kinds import misses_kind
from penstock.spark.results.misses import MISSES
from penstock.spark.results.window_rows import MadeResults
from penstock.spark.results.window_staging import write_staged

#: what may become of an instance
RELEASED, SHED, MISSED, FAILED = OUTCOMES = ("released", "shed", "missed", "failed")


@dataclass(frozen=True, slots=True)
class Instance:
    """A window that was created.

    Attributes:
        view: number of its view.
        start, end: of the window, microseconds.
        entry: it holds the tuples that came with log entries up to this one.
        created, deadline: seconds since the epoch.
    """

    view: int
    start: int
    end: int
    entry: int
    created: float
    deadline: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an instance.

    Attributes:
        instance: which.
        outcome: one of OUTCOMES.
        predicted: seconds it was predicted to take; None: no prediction was made.
        seconds: it took, or had taken when it was abandoned; None: it was not begun.
        reason: why it was not released; None where it was.
    """

    instance: Instance
    outcome: str
    predicted: float | None = None
    seconds: float | None = None
    reason: str | None = None


def counts_of(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How many instances came to which end, all ends among them, and how many there are."""
    found = Counter(each.outcome for each in outcomes)
    return {"created": found.total(), **{name: found[name] for name in OUTCOMES}}


def told_outcome(outcome: Outcome, standing: DeadlineStanding) -> dict[str, Any]:
    """An outcome as manifests and events tell it, with how its view stands afterwards."""
    instance = outcome.instance
    return {
        **asdict(instance),
        "outcome": outcome.outcome,
        "predicted_seconds": outcome.predicted,
        "seconds": outcome.seconds,
        "reason": outcome.reason,
        "k'": standing.constraint.k,
        "m'": standing.constraint.m,
        "rho": standing.rho,
    }


def staged_misses(view: str, number: int, outcomes: Sequence[Outcome], staging: Path) -> list[MadeResults]:
    """Stages the windows of a view that were not released in time; none where all were.

    Args:
        view: its name.
        number: its number.
        outcomes: of its instances.
        staging: where files are staged.
    """
    missed = [each for each in outcomes if each.outcome != RELEASED]
    if not missed:
        return []
    rows = [
        {
            "window": {"start": each.instance.start, "end": each.instance.end},
            "created": round(each.instance.created * 1e6),
            "deadline": round(each.instance.deadline * 1e6),
            "outcome": each.outcome,
            "predicted_seconds": each.predicted,
            "seconds": each.seconds,
            "reason": each.reason,
        }
        for each in missed
    ]
    file = write_staged(
        misses_kind(view), staging / f"misses-{number}.parquet", pa.Table.from_pylist(rows, MISSES)
    )
    return [MadeResults(number, 1, [file])]
