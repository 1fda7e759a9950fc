"""Whatever the network: each packet created is delivered, lost for one cause, or found in a buffer, a queue or a radio."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock_lab.simulate.networks.ledger import Fate
from penstock_lab.simulate.networks.network import Network
from penstock_lab.simulate.networks.settings import Mobility, NetworkSettings, Protocol, Traffic


@st.composite
def networks(draw: st.DrawFn) -> NetworkSettings:
    """Small networks, from idle to far beyond what their channels bear, from dense to torn apart."""
    nodes = draw(st.integers(2, 20))
    return NetworkSettings(
        draw(st.sampled_from(Protocol)),
        nodes,
        load=draw(st.sampled_from([1.0, 50.0, 1000.0])),
        seed=draw(st.integers(0, 2**32)),
        seconds=draw(st.floats(0.1, 2)),
        mobility=draw(st.sampled_from(Mobility)),
        max_speed=draw(st.sampled_from([0.0, 5.0, 100.0])),
        area_metres=draw(st.floats(100, 1500)),
        sources=draw(st.integers(1, nodes - 1)),
        traffic=draw(st.sampled_from(Traffic)),
        queue_packets=draw(st.integers(1, 20)),
        buffer_packets=draw(st.integers(1, 20)),
        buffer_seconds=draw(st.floats(0.1, 2)),
    )


@settings(max_examples=examples(25), deadline=None)
@given(networks())
def test_every_packet_is_somewhere(chosen: NetworkSettings) -> None:
    network = Network(chosen)
    network.run()
    ledger = network.ledger
    undecided = [packet for packet, fate in enumerate(ledger.fate) if fate is Fate.IN_FLIGHT]
    assert network.in_flight() == undecided
    assert sum(ledger.totals().values()) == len(ledger.created)
    for packet, arrived in enumerate(ledger.arrived):
        assert (arrived >= 0) == (ledger.fate[packet] is Fate.DELIVERED)
        assert arrived < 0 or arrived > ledger.created[packet]
        assert arrived < 0 or 1 <= ledger.hops[packet] < chosen.nodes
