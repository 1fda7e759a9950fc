"""The network put together: clock, movement, radios, routing and sensors."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from random import Random

import numpy as np
import numpy.typing as npt
import simpy

from penstock_lab.simulate.networks.ledger import Fate, Ledger
from penstock_lab.simulate.networks.medium import Medium
from penstock_lab.simulate.networks.mobility import gauss_markov, random_waypoint, standing
from penstock_lab.simulate.networks.radio import SECOND, RadioTiming
from penstock_lab.simulate.networks.routing import Router
from penstock_lab.simulate.networks.settings import Mobility, NetworkSettings, Traffic
from penstock_lab.simulate.networks.topology import Topology

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: seconds between two looks at who is where
MOVING_STEP = 0.2
#: a sensor's intervals vary by up to this share to either side
UNEVENNESS = 0.25
#: seeds of what is drawn independently of the protocol, so that protocols meet the same movements and packets
_PLACES, _TRAFFIC, _CONTENTION, _ROUTING = range(4)


def generator(settings: NetworkSettings, purpose: int) -> np.random.Generator:
    """Random numbers for one purpose."""
    return np.random.default_rng([settings.seed, purpose])


def schedule(settings: NetworkSettings, sources: Ints) -> tuple[Ints, Ints]:
    """When which sensor measures.

    Args:
        settings: load and seconds.
        sources: the sensors' nodes.

    Returns:
        nanoseconds, ascending, and the node of each.
    """
    rng = generator(settings, _TRAFFIC)
    interval = len(sources) / settings.load
    count = int(settings.seconds / interval) + 2
    uneven = rng.uniform(-UNEVENNESS, UNEVENNESS, (len(sources), count))
    at = (np.arange(count) + rng.random((len(sources), 1)) + uneven) * interval
    sensor = np.repeat(sources, count)
    created = np.round(at.ravel() * SECOND).astype(np.int64)
    kept = (created >= 0) & (created < round(settings.seconds * SECOND))
    created, sensor = created[kept], sensor[kept]
    order = np.argsort(created, kind="stable")
    return created[order], sensor[order]


class Network:
    """A network that can be run once.

    Args:
        settings: what to simulate.
        bandwidth: of each channel, as a share of that which the settings' rate needs (`RadioTiming.narrowed`).
    """

    def __init__(self, settings: NetworkSettings, bandwidth: float = 1.0) -> None:
        self.settings = settings
        self._environment = simpy.Environment()
        self._topology = Topology(settings.range_metres, settings.sensing_metres)
        self._positions = self._moving()
        sources, targets = self._ends()
        created, sensor = schedule(settings, sources)
        self.ledger = Ledger(created, sensor)
        seeds = [int(generator(settings, purpose).integers(2**63)) for purpose in (_CONTENTION, _ROUTING)]
        contention, jitter = Random(seeds[0]), Random(seeds[1])
        self.router = Router(
            self._environment, settings, self._topology, jitter, self.ledger, dict(zip(sources.tolist(), targets.tolist(), strict=True))
        )  # fmt: skip
        timing = RadioTiming(bits_per_second=settings.bits_per_second).narrowed(bandwidth)
        self.media = [
            Medium(self._environment, self._topology, timing, contention, self.router, channel, settings.nodes, settings.queue_packets)
            for channel in range(settings.protocol.channels)
        ]  # fmt: skip
        self.router.attach(self.media)

    def run(self, reached: Callable[[float], None] = lambda _: None) -> None:
        """Simulates all of it.

        Args:
            reached: told of each simulated second that is over; what it raises ends the simulation.

        Raises:
            RuntimeError: the packets in buffers, queues and radios at the end are not those whose fate the ledger leaves open: one
                was lost without a cause, or is there twice.
        """
        self._environment.process(self._move())
        self._environment.process(self._measure())
        end = round(self.settings.seconds * SECOND)
        for second in range(SECOND, end, SECOND):
            self._environment.run(until=second)
            reached(second / SECOND)
        self._environment.run(until=end)
        self._account()

    def _account(self) -> None:
        held = self.in_flight()
        undecided = [packet for packet, fate in enumerate(self.ledger.fate) if fate is Fate.IN_FLIGHT]
        if held != undecided:
            twice = len(held) - len(set(held))
            raise RuntimeError(
                f"The network holds {len(held)} packets and the ledger leaves {len(undecided)} undecided: "
                f"nowhere {sorted(set(undecided) - set(held))[:5]}, decided but still held "
                f"{sorted(set(held) - set(undecided))[:5]}, held more than once {twice}"
            )

    def in_flight(self) -> list[int]:
        """The packets in buffers, queues and radios, found by looking there."""
        frames = [frame for medium in self.media for frame in medium.held()]
        return sorted(self.router.waiting() + [frame.packet for frame in frames if frame.packet >= 0])

    def _ends(self) -> tuple[Ints, Ints]:
        rng, settings = generator(self.settings, _TRAFFIC + 100), self.settings
        if settings.traffic is Traffic.SINK:
            sources = 1 + rng.permutation(settings.nodes - 1)[: settings.sources]
            return sources, np.zeros_like(sources)
        sources = rng.permutation(settings.nodes)[: settings.sources]
        away = rng.integers(1, settings.nodes, len(sources))
        return sources, (sources + away) % settings.nodes

    def _moving(self) -> Iterator[Floats]:
        settings, rng = self.settings, generator(self.settings, _PLACES)
        nodes, side, fastest = settings.nodes, settings.area_metres, settings.max_speed
        if fastest == 0:
            moving = standing(rng, nodes, side)
        elif settings.mobility is Mobility.GAUSS_MARKOV:
            moving = gauss_markov(rng, nodes, side, fastest, MOVING_STEP)
        else:
            moving = random_waypoint(rng, nodes, side, fastest, settings.pause_seconds, MOVING_STEP)
        for positions in moving:
            if settings.traffic is Traffic.SINK:
                positions = positions.copy()
                positions[0] = side / 2
            yield positions

    def _move(self) -> Generator[simpy.Event, None, None]:
        while True:
            self._topology.move(next(self._positions))
            if self.settings.max_speed == 0:
                return
            yield self._environment.timeout(round(MOVING_STEP * SECOND))

    def _measure(self) -> Generator[simpy.Event, None, None]:
        now = 0
        for packet, at in enumerate(self.ledger.created.tolist()):
            yield self._environment.timeout(at - now)
            now = at
            self.router.originate(packet)
