"""A network's packets as streams: what came in its disorder, what was measured in its order."""

from __future__ import annotations

import numpy as np

from penstock_lab.simulate.networks.settings import NetworkSettings
from penstock_lab.simulate.networks.streams import arrived, measured
from penstock_lab.simulate.networks.trace import simulate


def test_what_came_is_part_of_what_was_measured() -> None:
    trace = simulate(NetworkSettings(nodes=25, load=700, seconds=4, max_speed=20, seed=2, queue_packets=8))
    came, whole = arrived("came", trace), measured("whole", trace)
    assert len(whole.event_time) == trace.packets.num_rows
    assert whole.delays.max() == 0
    assert 0 < len(came.event_time) < len(whole.event_time)
    assert came.delays.max() > 0
    assert np.all(np.diff(came.arrival_time) >= 0)
    everything = set(
        zip(
            *(whole.columns.column(name).to_pylist() for name in ("sensor", "sequence", "value")), strict=True
        )
    )
    assert everything.issuperset(
        zip(*(came.columns.column(name).to_pylist() for name in ("sensor", "sequence", "value")), strict=True)
    )
