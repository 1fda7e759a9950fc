"""How long the batches of a stream took, as counts by upper bound: a histogram that adds up over runs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

#: upper bounds of the counts, seconds; what took longer than the last one has a count of its own
BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


def add_duration(known: Mapping[str, Any] | None, batch: int, seconds: float) -> dict[str, Any]:
    """Return the durations with one more batch; a batch counts once, however often its event is repeated.

    Args:
        known: `batch`, the newest one that counts, `seconds`, the sum, and `counts`, one for each of `BOUNDS` and one for
            the longer batches; None before the first batch.
        batch: its number.
        seconds: from its start to its publication.
    """
    found = dict(known or {"batch": -1, "seconds": 0.0, "counts": [0] * (len(BOUNDS) + 1)})
    if batch > found["batch"]:
        counts = list(found["counts"])
        counts[bisect_left(BOUNDS, seconds)] += 1
        found.update(batch=batch, seconds=round(found["seconds"] + seconds, 4), counts=counts)
    return found
