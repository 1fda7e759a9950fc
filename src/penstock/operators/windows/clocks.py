"""The time of a stream as an operator knows it: how far it has come, what arrived when, and how late tuples are.

A stream has two clocks: the newest event time really seen, which alone closes windows and makes them final, and the
moment up to which a silent stream is *taken* to have come. What is due by the second one is answered beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import numpy.typing as npt

from penstock.plan.times import BEFORE_ALL

Ints = npt.NDArray[np.int64]

#: share of the largest delay by which the horizon exceeds it
_HORIZON_MARGIN = 0.25
#: event time after which half of the largest delay is forgotten, microseconds: one that comes back every day stays within the
#: margin
_HALF_LIFE = 4 * 24 * 3600 * 1_000_000
#: nothing is final before the stream is so many times older than the largest delay: until then longer ones cannot have shown
_BELIEVED_FROM = 6
#: the stride grows at most so many times a batch, or to so small a share of what a batch moved the stream on
_GROWTH, _FIRST_SHARE = 4, 1 / 256


@dataclass(slots=True)
class StreamTime:
    """What the clocks show, microseconds.

    Attributes:
        newest: the newest event time seen, or None.
        reached: the one that the stream is taken to have come to, or None.
        arrival: stamp of the newest batch's rows: `newest` before it, and more than the stamp of the batch before;
            None before the first batch.
        batches: batches of the stream so far: before the second one nothing is known of delays, and nothing is final.
        horizon: time after a window's end at which it is final: a quarter above the largest delay.
        begun: `newest` after the first batch, or None.
        largest: the largest delay seen, half of it forgotten every four days of event time; -1, as it was stored by earlier
            versions: what the horizon says.
        stride: event time by which batches move the stream on: what the newest one did, but grown little by little, and at
            least half of what it was before.
    """

    newest: int | None = None
    reached: int | None = None
    arrival: int | None = None
    batches: int = 0
    horizon: int = 0
    begun: int | None = None
    largest: float = -1.0
    stride: float = 0.0

    def __post_init__(self) -> None:
        if self.largest < 0:
            self.largest = self.horizon / (1 + _HORIZON_MARGIN)
            self.begun = None if self.newest is None else int(self.newest - _BELIEVED_FROM * self.largest)

    @property
    def final_from(self) -> int | None:
        """No window is final before `newest` is there: until then longer delays cannot have shown; None before the first batch."""
        return None if self.begun is None else ceil(self.begun + _BELIEVED_FROM * self.largest)

    @property
    def age(self) -> int:
        """Event time since the stream began."""
        return 0 if self.newest is None or self.begun is None else self.newest - self.begun

    @property
    def known(self) -> int:
        """Windows that end by then are final."""
        if (
            self.newest is None
            or self.final_from is None
            or self.batches < 2
            or self.newest < self.final_from
        ):
            return BEFORE_ALL
        return self.newest - self.horizon


@dataclass(frozen=True, slots=True, eq=False)
class Lateness:
    """How late a stream is.

    Attributes:
        delays: int64, of tuples of its newest batch: t_max - event time where positive, else 0.
        largest: the largest delay so far that is not forgotten.
        age: event time since the stream began.
    """

    delays: Ints
    largest: int
    age: int


class Clocks:
    """Takes in what batches tell of time.

    Args:
        most_delay: a longer delay tells nothing, microseconds.
        least_horizon: the horizon is never shorter, microseconds.
    """

    def __init__(self, most_delay: int, least_horizon: int) -> None:
        self.state = StreamTime()
        self.adjust(most_delay, least_horizon)

    def adjust(self, most_delay: int, least_horizon: int) -> None:
        """Other settings, which hold at once."""
        self._most_delay = most_delay
        self._least_horizon = least_horizon
        self._set(self.state.largest)

    def restore(self, time: StreamTime) -> None:
        """Goes on from there, by these settings."""
        self.state = time
        self._set(time.largest)

    def begin(self, arrival: int, newest: int | None) -> None:
        """Begins with what came before the first batch."""
        self.state.arrival, self.state.newest = arrival, newest

    def take_in(self, newest: int | None, oldest: int | None, delays: Ints) -> Lateness:
        """Takes in a batch.

        Args:
            newest: largest event time seen of the stream's tuples, or None.
            oldest: start of the oldest pane the batch brings, None where it brings none; not both None.
            delays: of its tuples.

        Returns:
            How late it is; of the delays those that tell something.
        """
        state = self.state
        if state.arrival is None:
            self.begin(min(each for each in (oldest, newest) if each is not None) - 1, newest)
        else:
            state.arrival = max(state.arrival + 1, BEFORE_ALL if state.newest is None else state.newest)
        state.batches += len(delays) > 0
        before = state.newest
        state.newest = max((each for each in (before, newest) if each is not None), default=None)
        if state.newest is not None and state.newest > self.at:
            moved = state.newest - self.at
            grown = max(state.stride * _GROWTH, moved * _FIRST_SHARE)
            state.stride = max(state.stride / 2, min(moved, grown))
        if before is not None and state.newest is not None:
            state.largest *= 0.5 ** ((state.newest - before) / _HALF_LIFE)
        state.begun = state.newest if state.begun is None else state.begun
        delays = delays[delays <= self._most_delay]
        self._set(max(state.largest, int(delays.max(initial=0))))
        return replace(self.lateness, delays=delays)

    def in_time(self, ends: Ints, tuples: Ints) -> tuple[Ints, Ints]:
        """Say by which slack the tuples of the newest batch are in time, without those that tell nothing.

        Args:
            ends: int64, ends of the panes that they lie in, microseconds.
            tuples: int64, how many each has.

        Returns:
            The least slack with which every window that a pane belongs to is answered after they came, and their number.
        """
        slacks: Ints = np.maximum(self.at - ends + 1, 0)
        is_told = slacks <= self._most_delay
        return slacks[is_told], tuples[is_told]

    def reach(self, moment: int | None) -> None:
        """The stream is taken to have come to a moment, None: to what was seen."""
        known = [each for each in (self.newest, moment) if each is not None]
        self.state.reached = max(known, default=None)

    @property
    def lateness(self) -> Lateness:
        """How late the stream is, without a batch."""
        return Lateness(np.zeros(0, np.int64), int(self.state.largest), self.state.age)

    @property
    def newest(self) -> int | None:
        """The newest event time seen."""
        return self.state.newest

    @property
    def reached(self) -> int | None:
        """The event time that the stream is taken to have come to."""
        return self.state.reached

    @property
    def stride(self) -> int:
        """Event time by which batches move the stream on, by and large."""
        return int(self.state.stride)

    @property
    def at(self) -> int:
        """What has arrived by then is in the panes."""
        assert self.state.arrival is not None, "some tuple came"
        return self.state.arrival

    @property
    def known(self) -> int:
        """Windows that end by then are final."""
        return self.state.known

    def _set(self, largest: float) -> None:
        """The largest delay, and the horizon that follows from it."""
        self.state.largest = float(min(largest, self._most_delay))
        self.state.horizon = max(self._least_horizon, int(self.state.largest * (1 + _HORIZON_MARGIN)))
