"""What is kept of batches that Spark cannot repeat any more: sums, and stretches of batches of one plan version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: batches of a stretch, and stretches of a history before the older half of it gets coarser
_MOST_BATCHES, _MOST_STRETCHES = 64, 512
#: figures of a batch that add up, as numbers and as numbers by name
_SUMS = (
    *("tuples", "matched", "pairs", "rows_set_aside", "null_event_times", "future_event_times"),
    *("late_tuples", "late_beyond"),
)
_COUNTS = ("quarantined", "errors")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Batches that follow each other, taken together; one batch is a stretch too.

    Attributes:
        first, last: numbers of the batches.
        first_plan, plan: plan versions they were bound to, the first and the last.
        tuples: how many they brought.
        quarantined: records set aside, by reason.
        oldest, newest: event times of the tuples that are believed, microseconds; None: of none.
        furthest: likewise of all tuples.
        is_timed: False where the stream had no event time, so that its tuples may be as late as any.
        timed, middle: tuples with an event time, and their median.
    """

    first: int
    last: int
    first_plan: int
    plan: int
    tuples: int
    quarantined: Mapping[str, int]
    oldest: int | None
    newest: int | None
    furthest: int | None
    is_timed: bool
    timed: int
    middle: int | None

    @classmethod
    def of(cls, figures: Mapping[str, Any]) -> Stretch:
        """A batch, by what its manifest says."""
        oldest, newest, furthest = (
            figures.get(f"{which}_event_time_us") for which in ("oldest", "newest", "furthest")
        )
        tuples = figures.get("tuples", 0)
        return cls(
            figures["batch"],
            figures["batch"],
            figures.get("plan", -1),
            figures.get("plan", -1),
            tuples,
            figures.get("quarantined", {}),
            oldest,
            newest,
            furthest,
            not tuples or "null_event_times" in figures or None not in (newest, furthest),
            figures.get("timed_tuples", 0),
            figures.get("middle_event_time_us"),
        )

    def with_next(self, later: Stretch) -> Stretch:
        """Together with the one that follows."""
        # two medians count by the tuples they stand for
        heavier = self if self.timed > later.timed else later
        return Stretch(
            self.first,
            later.last,
            self.first_plan,
            later.plan,
            self.tuples + later.tuples,
            added(self.quarantined, later.quarantined),
            min((each for each in (self.oldest, later.oldest) if each is not None), default=None),
            max((each for each in (self.newest, later.newest) if each is not None), default=None),
            max((each for each in (self.furthest, later.furthest) if each is not None), default=None),
            self.is_timed and later.is_timed,
            self.timed + later.timed,
            heavier.middle,
        )


def lengthened(history: Sequence[Stretch], batches: Iterable[Stretch]) -> list[Stretch]:
    """A history with further batches; it stays about as long as it is, and is coarser the older it gets.

    Batches of two plan versions are kept apart as long as there is room.
    """
    found = list(history)
    for batch in batches:
        newest = found[-1] if found else None
        if (
            newest is not None
            and newest.first_plan == newest.plan == batch.plan
            and batch.last - newest.first < _MOST_BATCHES
        ):
            found[-1] = newest.with_next(batch)
        else:
            found.append(batch)
        if len(found) > _MOST_STRETCHES:
            older = found[: _MOST_STRETCHES // 2]
            paired = [one.with_next(two) for one, two in zip(older[::2], older[1::2], strict=True)]
            found[: len(older)] = paired
    return found


def summed(totals: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    """The sums over batches with one more.

    Args:
        totals: those before; {} before the first batch.
        figures: what the batch's manifest says of it.

    Returns:
        `batches`, the newest `batch`, `entry`, `answered` and `newest_event_time_us`, `whole`, and sums of whatever counts.
    """
    found = {
        **totals,
        "batch": figures["batch"],
        "batches": totals.get("batches", 0) + 1,
        **{count: totals.get(count, 0) + (figures.get(count) or 0) for count in _SUMS},
        **{count: added(totals.get(count, {}), figures.get(count) or {}) for count in _COUNTS},
    }
    newest = [each.get("newest_event_time_us") for each in (totals, figures)]
    found["newest_event_time_us"] = max((each for each in newest if each is not None), default=None)
    for name in ("entry", "answered"):
        if name in figures:
            found[name] = figures[name]
    if figures.get("whole"):
        found["whole"] = sorted({*totals.get("whole", ()), *figures["whole"]})
    if figures.get("views"):
        views = dict(totals.get("views", {}))
        for view, counts in figures["views"].items():
            views[view] = added(views.get(view, {}), counts)
        found["views"] = views
    return found


def added(known: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {**known, **{name: known.get(name, 0) + count for name, count in more.items()}}
