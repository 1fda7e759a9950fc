"""What a simulated network did to its packets: the trace that a stream is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock_lab.simulate.networks.ledger import Fate
from penstock_lab.simulate.networks.medium import ChannelCounts
from penstock_lab.simulate.networks.network import Network
from penstock_lab.simulate.networks.radio import MICROSECOND
from penstock_lab.simulate.networks.routing import FoundPaths, RoutingCounts
from penstock_lab.simulate.networks.settings import NetworkSettings

SCHEMA = pa.schema(
    [
        pa.field("sensor", pa.int32(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("created", pa.int64(), nullable=False),
        pa.field("arrived", pa.int64()),
        pa.field("channel", pa.int8()),
        pa.field("hops", pa.int8()),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("fate", pa.dictionary(pa.int8(), pa.string()), nullable=False),
    ]
)
#: a sensor's first value, and how much a value differs from the one before it
LEVELS, STEP = (15.0, 25.0), 0.02


@dataclass(frozen=True, slots=True, eq=False)
class NetworkTrace:
    """A simulated network's packets and counts.

    Attributes:
        settings: what was simulated.
        packets: `SCHEMA`, a row a created packet, in order of creation. sensor: its node; sequence: its number at the sensor, from
            0; created, arrived: microseconds since the start, arrived NULL where the packet never came; channel, hops: of those that
            came; value: what was measured; fate: 'delivered', 'in flight' when the simulation ended, or 'lost: ' and the cause.
        channels: what happened on each channel.
        routing: what routing did.
        found: the discoveries and what they gave.
    """

    settings: NetworkSettings
    packets: pa.Table
    channels: tuple[ChannelCounts, ...]
    routing: RoutingCounts
    found: tuple[FoundPaths, ...]

    def arrivals(self) -> pa.Table:
        """The packets that came, in order of arrival, then of sensor and sequence."""
        came = self.packets.filter(self.packets.column("arrived").is_valid())
        return came.sort_by([(name, "ascending") for name in ("arrived", "sensor", "sequence")])

    def fates(self) -> dict[str, int]:
        """Packets by what became of them; every fate is in it."""
        column = self.packets.column("fate").combine_chunks()
        counts = np.bincount(column.indices.to_numpy(), minlength=len(Fate))
        return {fate.label: int(counts[fate]) for fate in Fate}


def simulate(
    settings: NetworkSettings, bandwidth: float = 1.0, reached: Callable[[float], None] = lambda _: None
) -> NetworkTrace:
    """Simulates a network; the same arguments give the same trace in any process.

    Args:
        settings: what to simulate.
        bandwidth: of each channel, as a share of that which the settings' rate needs: 0.5 in a comparison of two channels with one in
            the same spectrum.
        reached: told of each simulated second that is over; what it raises ends the simulation.

    Raises:
        RuntimeError: packets went astray (`Network.run`), which each simulation checks.
    """
    network = Network(settings, bandwidth)
    network.run(reached)
    return NetworkTrace(
        settings,
        _packets(network),
        tuple(medium.counts for medium in network.media),
        network.router.counts,
        tuple(network.router.found.values()),
    )


def _packets(network: Network) -> pa.Table:
    ledger = network.ledger
    sequence, value = _measured(network.settings, ledger.sensor)
    arrived, channel, hops = (
        np.array(each, np.int64) for each in (ledger.arrived, ledger.channel, ledger.hops)
    )
    never = arrived < 0
    fates = pa.DictionaryArray.from_arrays(
        pa.array(ledger.fate, pa.int8()), pa.array([fate.label for fate in Fate])
    )
    columns = [
        pa.array(ledger.sensor, pa.int32()),
        pa.array(sequence),
        pa.array(ledger.created // MICROSECOND),
        pa.array(arrived // MICROSECOND, mask=never),
        pa.array(channel.astype(np.int8), mask=never),
        pa.array(hops.astype(np.int8), mask=never),
        pa.array(value),
        fates,
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _measured(settings: NetworkSettings, sensor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number at its sensor and value of each packet: a random walk a sensor."""
    sequence, value = np.empty(len(sensor), np.int64), np.empty(len(sensor))
    for node in np.unique(sensor):
        own = sensor == node
        rng = np.random.default_rng([settings.seed, 1000, int(node)])
        sequence[own] = np.arange(own.sum())
        value[own] = rng.uniform(*LEVELS) + STEP * np.cumsum(rng.standard_normal(int(own.sum())))
    return sequence, value
