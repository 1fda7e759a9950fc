"""What became of every packet: created, and then delivered, lost for one cause, or still in flight."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Fate(IntEnum):
    """What became of a packet; `label` is what the trace says."""

    IN_FLIGHT = 0
    DELIVERED = 1
    NO_ROUTE = 2
    BUFFER_FULL = 3
    QUEUE_FULL = 4
    LINK_BREAK = 5

    @property
    def label(self) -> str:
        """As the trace says it."""
        text = self.name.lower().replace("_", " ")
        return text if self in (Fate.IN_FLIGHT, Fate.DELIVERED) else f"lost: {text}"


class Ledger:
    """Packets by number, in order of creation.

    Args:
        created: nanoseconds, ascending.
        sensor: the node that creates each.
    """

    def __init__(self, created: Ints, sensor: Ints) -> None:
        self.created = created
        self.sensor = sensor
        self.fate = [Fate.IN_FLIGHT] * len(created)
        self.arrived = [-1] * len(created)
        self.channel = [-1] * len(created)
        self.hops = [-1] * len(created)

    def deliver(self, packet: int, now: int, channel: int, hops: int) -> None:
        """A packet came through."""
        self._decide(packet, Fate.DELIVERED)
        self.arrived[packet], self.channel[packet], self.hops[packet] = now, channel, hops

    def lose(self, packet: int, cause: Fate) -> None:
        """A packet is lost."""
        self._decide(packet, cause)

    def _decide(self, packet: int, fate: Fate) -> None:
        if self.fate[packet] is not Fate.IN_FLIGHT:
            raise AssertionError(f"packet {packet} is {self.fate[packet].label} and now {fate.label}")
        self.fate[packet] = fate

    def totals(self) -> dict[str, int]:
        """Packets by what became of them; every fate is in it."""
        counts = Counter(self.fate)
        return {fate.label: counts[fate] for fate in Fate}
