"""The time of a stream as an operator knows it: how far it has come, what arrived when, and how late tuples are.

A stream has two clocks: the newest event time really seen, which alone closes windows and makes them final, and the
moment up to which a silent stream is *taken* to have come. What is due by the second one is answered beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.plan.times import BEFORE_ALL

#: share of the largest delay by which the horizon exceeds it
_HORIZON_MARGIN = 0.25


@dataclass(slots=True)
class StreamTime:
    """What the clocks show, microseconds.

    Attributes:
        newest: the newest event time seen, or None.
        reached: the one that the stream is taken to have come to, or None.
        arrival: stamp of the newest batch's rows: `newest` before it, and more than the stamp of the batch before;
            None before the first batch.
        batches: batches of the stream so far: before the second one nothing is known of delays, and nothing is final.
        horizon: time after a window's end at which it is final: a quarter above the largest delay seen.
    """

    newest: int | None = None
    reached: int | None = None
    arrival: int | None = None
    batches: int = 0
    horizon: int = 0

    @property
    def known(self) -> int:
        """Windows that end by then are final."""
        return BEFORE_ALL if self.newest is None or self.batches < 2 else self.newest - self.horizon


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
        """Other settings; the horizon never becomes shorter."""
        self._most_delay = most_delay
        self.state.horizon = max(self.state.horizon, least_horizon)

    def begin(self, arrival: int, newest: int | None) -> None:
        """Begins with what came before the first batch."""
        self.state.arrival, self.state.newest = arrival, newest

    def take_in(
        self, newest: int | None, oldest: int | None, delays: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Takes in a batch.

        Args:
            newest: largest event time seen of the stream's tuples, or None.
            oldest: start of the oldest pane the batch brings, None where it brings none; not both None.
            delays: of its tuples.

        Returns:
            Those delays that tell something.
        """
        state = self.state
        if state.arrival is None:
            self.begin(min(each for each in (oldest, newest) if each is not None) - 1, newest)
        else:
            state.arrival = max(state.arrival + 1, BEFORE_ALL if state.newest is None else state.newest)
        state.batches += len(delays) > 0
        delays = delays[delays <= self._most_delay]
        state.horizon = max(state.horizon, int(int(delays.max(initial=0)) * (1 + _HORIZON_MARGIN)))
        state.newest = max((each for each in (state.newest, newest) if each is not None), default=None)
        return delays

    def reach(self, moment: int | None) -> None:
        """The stream is taken to have come to a moment, None: to what was seen."""
        known = [each for each in (self.newest, moment) if each is not None]
        self.state.reached = max(known, default=None)

    @property
    def newest(self) -> int | None:
        """The newest event time seen."""
        return self.state.newest

    @property
    def reached(self) -> int | None:
        """The event time that the stream is taken to have come to."""
        return self.state.reached

    @property
    def at(self) -> int:
        """What has arrived by then is in the panes."""
        assert self.state.arrival is not None, "some tuple came"
        return self.state.arrival

    @property
    def known(self) -> int:
        """Windows that end by then are final."""
        return self.state.known
