"""A simulated network's packets as streams of the virtual-time runner: what came, and what was measured."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock_lab.simulate.disorder import Arrivals
from penstock_lab.simulate.networks.trace import NetworkTrace

COLUMNS = ["sensor", "sequence", "value"]


def arrived(name: str, trace: NetworkTrace) -> Arrivals:
    """The packets that came, by when they came; event time is when the sensor measured."""
    return _stream(name, trace.arrivals(), "arrived")


def measured(name: str, trace: NetworkTrace) -> Arrivals:
    """All that was measured, by then: what a stream without loss and disorder would be, the truth of its windows."""
    return _stream(name, trace.packets, "created")


def _stream(name: str, packets: pa.Table, arrival: str) -> Arrivals:
    times = [packets.column(column).to_numpy().astype(np.int64) for column in ("created", arrival)]
    return Arrivals(name, times[0], times[1], packets.select(COLUMNS))
