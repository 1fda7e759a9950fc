"""What a simulated network was worth: the figures by which protocols are compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock_lab.simulate.networks.frames import Kind
from penstock_lab.simulate.networks.radio import SECOND
from penstock_lab.simulate.networks.trace import NetworkTrace

#: the share of nodes that count as the busiest relays
BUSIEST = 0.1


@dataclass(frozen=True, slots=True)
class Measures:
    """Figures of one simulation. Those of packets that came are NaN where none did.

    Attributes:
        delivery_ratio: packets that came, of all that were created; those in flight at the end count as not come.
        throughput: payload that came, bits a second.
        mean_delay, p95_delay: seconds from creation to arrival, of packets that came.
        collisions: unicast transmissions that another one destroyed, for each packet that came.
        collision_share: the same, of all unicast transmissions.
        control_overhead: bytes of requests, replies and errors that were sent, repetitions included, for each payload byte that came.
        hop_wait: seconds from a radio's queue to the acknowledgement, on average over data and unicast control frames: how congested
            the nodes of routes are.
        busiest_relays: packets that the busiest tenth of the nodes handed on, a second and node.
        relay_share: of all packets handed on, those of the busiest tenth.
        late: share of the packets that came after a younger one.
        largest_lateness: seconds, newest creation time before a packet came less its own.
        discoveries: a simulated minute.
    """

    delivery_ratio: float
    throughput: float
    mean_delay: float
    p95_delay: float
    collisions: float
    collision_share: float
    control_overhead: float
    hop_wait: float
    busiest_relays: float
    relay_share: float
    late: float
    largest_lateness: float
    discoveries: float


def measure(trace: NetworkTrace) -> Measures:
    """The figures of a simulation."""
    settings, channels = trace.settings, trace.channels
    arrivals = trace.arrivals()
    came, created = arrivals.num_rows, max(trace.packets.num_rows, 1)
    each = max(came, 1)
    begun = arrivals.column("created").to_numpy()
    delay = (arrivals.column("arrived").to_numpy() - begun) / 1e6
    lateness = (np.maximum.accumulate(begun) - begun) / 1e6
    payload = 8 * settings.packet_bytes * came
    collisions = sum(channel.collisions for channel in channels)
    unicast = sum(channel.unicast for channel in channels)
    control = sum(sum(channel.sent_bytes) - channel.sent_bytes[Kind.DATA] for channel in channels)
    acknowledged = sum(channel.acknowledged for channel in channels)
    relayed = np.sort(trace.routing.relayed)[::-1]
    busiest = relayed[: max(1, round(len(relayed) * BUSIEST))]
    return Measures(
        delivery_ratio=came / created,
        throughput=payload / settings.seconds,
        mean_delay=float(delay.mean()) if came else np.nan,
        p95_delay=float(np.quantile(delay, 0.95)) if came else np.nan,
        collisions=collisions / each,
        collision_share=collisions / max(unicast, 1),
        control_overhead=8 * control / max(payload, 1),
        hop_wait=sum(channel.waited for channel in channels) / SECOND / max(acknowledged, 1),
        busiest_relays=float(busiest.mean()) / settings.seconds,
        relay_share=float(busiest.sum() / max(relayed.sum(), 1)),
        late=float(np.mean(lateness > 0)) if came else np.nan,
        largest_lateness=float(lateness.max()) if came else np.nan,
        discoveries=60 * trace.routing.discoveries / settings.seconds,
    )
