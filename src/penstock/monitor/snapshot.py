"""What a run looks like at one moment: frozen, so that any reporter can show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: views named at the most
_NAMED = 3


@dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """One stream since the run started.

    Attributes:
        name: the stream.
        views: standing queries registered.
        batches, tuples, matched, pairs: published so far.
        quarantined: records set aside.
        unusable_times: tuples kept from windows: their event time is NULL or too far ahead of the clock.
        errors: (tuple, view) pairs lost to an expression that raised.
        raising: the views that lost most of them.
        tuples_per_second: of the newest batches.
        evaluations_per_tuple: ASC evaluations of the running sequence on the newest sample, or None.
        sequence: the running evaluation sequence, or None.
        windows: answers of window views so far: early, corrected and final ones.
    """

    name: str
    views: int
    batches: int
    tuples: int
    matched: int
    pairs: int
    quarantined: int
    unusable_times: int
    errors: int
    raising: str
    tuples_per_second: float
    evaluations_per_tuple: float | None
    sequence: str | None
    windows: tuple[int, int, int] = (0, 0, 0)

    @property
    def dropped_share(self) -> float:
        """Share of the tuples that satisfied no query."""
        return 1 - self.matched / self.tuples if self.tuples else 0.0

    def line(self) -> str:
        """The snapshot as one line for a terminal."""
        parts = [
            f"{self.name}: {self.tuples:,} tuples",
            f"{self.tuples_per_second:,.0f}/s",
            f"{self.matched:,} matched",
            f"{self.dropped_share:.1%} dropped",
            f"{self.views:,} queries",
        ]
        if self.evaluations_per_tuple is not None:
            parts.append(f"{self.evaluations_per_tuple:.2f} evaluations/tuple")
        if any(self.windows):
            parts.append("windows: {:,} early, {:,} corrected, {:,} final".format(*self.windows))
        if self.quarantined:
            parts.append(f"{self.quarantined:,} quarantined")
        if self.unusable_times:
            parts.append(f"{self.unusable_times:,} kept from windows (event time NULL or in the future)")
        if self.errors:
            parts.append(f"{self.errors:,} expression errors in {self.raising}")
        if self.sequence:
            parts.append(self.sequence)
        return " | ".join(parts)


def take_snapshot(status: Mapping[str, Mapping[str, Any]]) -> list[StreamSnapshot]:
    """Freezes what `Run.status` says."""
    return [
        StreamSnapshot(
            name=name,
            views=stream["views"],
            batches=stream["batches"],
            tuples=stream["tuples"],
            matched=stream["matched"],
            pairs=stream["pairs"],
            quarantined=sum(stream["quarantined"].values()),
            unusable_times=stream["unusable_times"],
            errors=sum(stream["errors"].values()),
            raising=_named(stream["errors"]),
            tuples_per_second=stream["tuples_per_second"],
            evaluations_per_tuple=stream["evaluations_per_tuple"],
            sequence=stream["sequence"],
            windows=tuple(stream["windows"].get(kind, 0) for kind in ("early", "corrected", "final")),
        )
        for name, stream in status.items()
    ]


def _named(errors: Mapping[str, int]) -> str:
    most = sorted(errors, key=lambda view: -errors[view])
    return ", ".join(most[:_NAMED]) + (f" and {len(most) - _NAMED} more" if len(most) > _NAMED else "")
