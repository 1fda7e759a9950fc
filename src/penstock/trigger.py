"""When the batches of a run start, and when the run ends."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import InputError
from penstock.sql.text.intervals import microseconds_of

_AT_ONCE = "0 seconds"


@dataclass(frozen=True, slots=True, repr=False)
class Trigger:
    """Decide when batches start, and when the run ends.

    Create one with `Trigger.every` or `Trigger.available_now`; `Trigger()` starts a batch as soon as tuples arrive.

    Attributes:
        interval: least time between the starts of two batches, as Spark writes it, such as '1 second'.
        is_bounded: whether the run ends once it has answered everything available at its start.
        is_complete: of a bounded run, whether its input is complete: at the end every window is final.

    Raises:
        InputError: `interval` is not a length of time, or `is_complete` without `is_bounded`.

    Example:
        >>> Trigger.every("2 seconds").seconds
        2.0
        >>> Trigger.available_now(ended=True)
        Trigger.available_now(ended=True)
    """

    interval: str = _AT_ONCE
    is_bounded: bool = False
    is_complete: bool = False

    def __post_init__(self) -> None:
        length = microseconds_of(f"'{self.interval}'")
        if length is None or length < 0:
            raise InputError(f"trigger {self.interval!r}: write a length of time such as '1 second'.")
        if self.is_complete and not self.is_bounded:
            raise InputError(
                "trigger: is_complete requires is_bounded; use Trigger.available_now(ended=True)"
            )

    @classmethod
    def every(cls, interval: str) -> Trigger:
        """Start batches at least this long apart, until the run is stopped.

        Args:
            interval: a length of time as Spark writes it, such as '2 seconds'.

        Raises:
            InputError: `interval` is not a length of time.
        """
        return cls(interval)

    @classmethod
    def available_now(cls, *, ended: bool = False) -> Trigger:
        """Answer everything available at the start, then end the run.

        Args:
            ended: treat the available input as complete and finalize every window. Otherwise the windows that later
                tuples may change are not final, and the next run continues them.
        """
        return cls(is_bounded=True, is_complete=ended)

    @property
    def seconds(self) -> float:
        """Return the interval in seconds."""
        return (microseconds_of(f"'{self.interval}'") or 0) / 1e6

    def __repr__(self) -> str:
        if not self.is_bounded:
            return f"Trigger.every({self.interval!r})"
        if self.interval != _AT_ONCE:
            return f"Trigger({self.interval!r}, is_bounded=True, is_complete={self.is_complete})"
        return f"Trigger.available_now({'ended=True' if self.is_complete else ''})"
