"""When the batches of a stream start, and when no more will."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.sql.text.intervals import microseconds_of


@dataclass(slots=True)
class Trigger:
    """When batches start, and when no more will.

    Attributes:
        available_now: stop when everything available at the start has been answered.
        interval: least time between two starts, as Spark writes it ('1 second').
        ended: with `available_now`: what is available is all there will ever be, the stream has ended then.
    """

    available_now: bool = False
    interval: str = "0 seconds"
    ended: bool = False

    @property
    def seconds(self) -> float:
        """The interval in seconds."""
        return (microseconds_of(f"'{self.interval}'") or 0) / 1e6

    def options(self) -> dict[str, Any]:
        """Keyword arguments for Spark's `trigger`."""
        return {"availableNow": True} if self.available_now else {"processingTime": self.interval}
