"""Stations that always have a frame, in one collision domain: Bianchi's fixed point, and the same on the simulated channel.

G. Bianchi, *Performance analysis of the IEEE 802.11 distributed coordination function*, IEEE JSAC 18(3), 2000: sections IV and V,
basic access; the figures are those of its table II.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import numpy as np
import simpy

from penstock_lab.simulate.networks.frames import Frame, Kind
from penstock_lab.simulate.networks.medium import Medium
from penstock_lab.simulate.networks.radio import MICROSECOND, SECOND, RadioTiming
from penstock_lab.simulate.networks.topology import Topology

#: table II: frequency hopping at 1 Mbit/s
BIANCHI = RadioTiming(
    slot=50 * MICROSECOND,
    sifs=28 * MICROSECOND,
    difs=128 * MICROSECOND,
    preamble=128 * MICROSECOND,
    bits_per_second=1_000_000.0,
    basic_bits_per_second=1_000_000.0,
    retries=1_000_000_000,
)
#: bytes of a payload in table II
PAYLOAD = 1023


@dataclass(frozen=True, slots=True)
class Saturation:
    """What stations that always have a frame do.

    Attributes:
        throughput: share of the time in which payload is sent with success.
        collision: probability that a transmission collides.
    """

    throughput: float
    collision: float


def transmission_probability(collision: float, window: int, stages: int) -> float:
    """Equation 7: probability that a station transmits in a slot, given that of a collision.

    Args:
        collision: p.
        window: W, the least one.
        stages: m; the largest window is 2**m W.
    """
    doubled = sum((2 * collision) ** stage for stage in range(stages))
    return 2 / (1 + window + collision * window * doubled)


def fixed_point(stations: int, window: int, stages: int) -> tuple[float, float]:
    """Equations 7 and 9: the probabilities of a transmission in a slot (tau) and of its collision (p).

    p = 1 - (1 - tau(p))**(n - 1) has one solution, for tau falls with p; found by halving.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        tau = transmission_probability(middle, window, stages)
        if 1 - (1 - tau) ** (stations - 1) > middle:
            low = middle
        else:
            high = middle
    return transmission_probability(low, window, stages), low


def analytic(stations: int, timing: RadioTiming = BIANCHI, payload: int = PAYLOAD) -> Saturation:
    """Equations 13 and 14: saturation throughput by the model.

    Args:
        stations: n.
        timing: of the radios; the largest window is a power of two times the least.
        payload: bytes.
    """
    stages = (timing.largest_window // timing.least_window).bit_length() - 1
    tau, collision = fixed_point(stations, timing.least_window, stages)
    some = 1 - (1 - tau) ** stations
    success = stations * tau * (1 - tau) ** (stations - 1)
    airtime = timing.airtime(payload)
    useful = 8 * payload * SECOND / timing.bits_per_second
    succeeds = airtime + timing.acknowledgement + timing.difs
    collides = airtime + timing.difs
    slot = (1 - some) * timing.slot + success * succeeds + (some - success) * collides
    return Saturation(success * useful / slot, collision)


class _Refill:
    """Gives a station a new frame as soon as one came through."""

    def __init__(self, payload: int) -> None:
        self.medium: Medium | None = None
        self.came = 0
        self._payload = payload

    def offer(self, station: int) -> None:
        """A frame to the node in the middle."""
        assert self.medium is not None
        self.medium.send(station, Frame(Kind.DATA, self._payload, (station, 0)))

    def received(self, node: int, frame: Frame, channel: int) -> None:  # noqa: ARG002
        """In the middle."""
        self.came += 1
        self.offer(frame.route[0])

    def failed(self, node: int, frame: Frame, channel: int) -> None:
        """Repetitions have no limit."""
        raise AssertionError(f"{node} gave {frame} up on channel {channel}")

    dropped = failed


def simulated(
    stations: int, seconds: float, seed: int, timing: RadioTiming = BIANCHI, payload: int = PAYLOAD
) -> Saturation:
    """Saturation on the simulated channel: stations around a node to which all send.

    Args:
        stations: n.
        seconds: simulated time.
        seed: of the back-offs.
        timing: of the radios.
        payload: bytes.
    """
    environment = simpy.Environment()
    topology = Topology(250.0, 550.0)
    angles = 2 * np.pi * np.arange(stations) / stations
    circle = 10 * np.column_stack([np.cos(angles), np.sin(angles)])
    topology.move(np.vstack([np.zeros((1, 2)), circle]))
    refill = _Refill(payload)
    unlimited = replace(timing, retries=BIANCHI.retries)
    medium = Medium(environment, topology, unlimited, Random(seed), refill, 0, stations + 1, 2)
    refill.medium = medium
    for station in range(1, stations + 1):
        refill.offer(station)
    environment.run(until=round(seconds * SECOND))
    useful = refill.came * 8 * payload / timing.bits_per_second
    return Saturation(useful / seconds, medium.counts.collisions / medium.counts.transmissions)
