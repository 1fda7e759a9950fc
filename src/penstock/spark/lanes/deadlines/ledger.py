"""What became of window instances: what is published of it, and the windows that were not released in time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa

from penstock.control.policies.deadlines.debts import OwedWindow
from penstock.operators.ingest.arrivals import CLOCK
from penstock.spark.publication.kinds import misses_kind
from penstock.spark.publication.staged import WrittenFile
from penstock.spark.results.misses import LATE, MISSES
from penstock.spark.results.window_staging import written

#: what may become of an instance
RELEASED, SHED, MISSED, FAILED, APPROXIMATED = OUTCOMES = (
    "released",
    "shed",
    "missed",
    "failed",
    "approximated",
)
#: outcomes with rows
ANSWERED = (RELEASED, APPROXIMATED)
#: what is answered late where a view asks for it: another try of what failed would fail again
OWING = (SHED, MISSED, APPROXIMATED)


@dataclass(frozen=True, slots=True)
class Instance:
    """A window that was created.

    Attributes:
        view: number of its view.
        start, end: of the window, microseconds.
        entry: it holds the tuples that came with log entries up to this one.
        arrived: when the tuple arrived, or the moment of the clock, that closed it, seconds since the epoch: its deadline counts from here.
        noticed: when the log said so, seconds since the epoch.
        deadline: seconds since the epoch.
        slack: from its end to where the stream had come when it was created, microseconds.
        coverage: estimated share of the window's tuples that it holds; None where nothing can be promised.
        arrived_by: what says when it arrived, see `Entry.arrival_of`.
        due: event time that closed it, see `CreatedWindow`.
    """

    view: int
    start: int
    end: int
    entry: int
    arrived: float
    noticed: float
    deadline: float
    slack: int = 0
    coverage: float | None = None
    arrived_by: str = CLOCK
    due: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an instance.

    Attributes:
        instance: which.
        outcome: one of OUTCOMES.
        decided: the figures that the policy began it or gave it up by.
        seconds: it took, or had taken when it was abandoned; None: it was not begun.
        reason: why it was not released; None where it was.
    """

    instance: Instance
    outcome: str
    decided: Mapping[str, float | int | str]
    seconds: float | None = None
    reason: str | None = None

    @property
    def predicted(self) -> float | None:
        """Seconds it was predicted to take; None: nothing was known of its view's costs yet."""
        found = self.decided.get("predicted_seconds")
        return found if isinstance(found, float) and found else None


@dataclass(frozen=True, slots=True)
class LateOutcome:
    """What became of a window that was owed an answer.

    Attributes:
        view: name of its view.
        window: which.
        given_up: why it is never answered; None: it is.
        entry: it is answered with the tuples that came with log entries up to this one; None where it is not.
        seconds: it took, or had taken when it failed; None: it was not begun.
        files: its rows; none where no row is left.
    """

    view: str
    window: OwedWindow
    given_up: str | None = None
    entry: int | None = None
    seconds: float | None = None
    files: tuple[WrittenFile, ...] = ()


#: what is told of an instance
_OF_INSTANCE = tuple(each.name for each in fields(Instance))


def counts_of(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How many instances came to which end, all ends among them, and how many there are."""
    found = Counter(each.outcome for each in outcomes)
    return {"created": found.total(), **{name: found[name] for name in OUTCOMES}}


def told_outcome(outcome: Outcome) -> dict[str, Any]:
    """An outcome as manifests tell it, with how its view stood when that was decided."""
    instance = outcome.instance
    return {
        **{name: getattr(instance, name) for name in _OF_INSTANCE},
        "outcome": outcome.outcome,
        "predicted_seconds": outcome.predicted,
        "seconds": outcome.seconds,
        "reason": outcome.reason,
        **{name: outcome.decided[name] for name in ("k'", "m'", "rho")},
    }


def late_counts(outcomes: Iterable[Outcome], late: Sequence[LateOutcome]) -> dict[str, int]:
    """Of a view with late answers: how many windows were answered late and given up, and by how many more it is owed now."""
    lost = sum(each.outcome in OWING for each in outcomes)
    answered = sum(each.given_up is None for each in late)
    return {"late": answered, "abandoned": len(late) - answered, "owed": lost - len(late)}


def told_late(late: LateOutcome) -> dict[str, Any]:
    """What became of an owed window, as manifests tell it."""
    told = {name: getattr(late, name) for name in ("view", "given_up", "entry", "seconds")}
    return {**told, **asdict(late.window)}


def written_misses(view: str, outcomes: Sequence[Outcome], late: Sequence[LateOutcome]) -> list[WrittenFile]:
    """The file of the windows of a view that were not released in time, and of those that have been answered since; none if there are none.

    Args:
        view: its name.
        outcomes: of its instances.
        late: what became of its owed windows.
    """
    missed = [each for each in outcomes if each.outcome != RELEASED]
    answered = [each for each in late if each.given_up is None]
    if not missed and not answered:
        return []
    now = time.time_ns() // 1_000
    rows = [
        {
            "window": {"start": each.instance.start, "end": each.instance.end},
            "arrived": round(each.instance.arrived * 1e6),
            "arrived_by": each.instance.arrived_by,
            "noticed": round(each.instance.noticed * 1e6),
            "deadline": round(each.instance.deadline * 1e6),
            "slack": each.instance.slack / 1e6,
            "outcome": each.outcome,
            "predicted_seconds": each.predicted,
            "seconds": each.seconds,
            "reason": each.reason,
        }
        for each in missed
    ]
    rows += [
        {
            "window": {"start": each.window.start, "end": each.window.end},
            "outcome": LATE,
            "seconds": each.seconds,
            "answered": now,
        }
        for each in answered
    ]
    return [written(misses_kind(view), pa.Table.from_pylist(rows, MISSES))]
