"""The simulated network: every packet accounted for, the same trace again, options that are refused."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import InputError, OptionError
from penstock_lab.simulate.networks.ledger import Fate
from penstock_lab.simulate.networks.network import Network
from penstock_lab.simulate.networks.settings import Mobility, NetworkSettings, Protocol, Traffic
from penstock_lab.simulate.networks.trace import SCHEMA, NetworkTrace, simulate

BUSY = NetworkSettings(nodes=30, load=400, seconds=4, max_speed=20, queue_packets=10, seed=3)


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize("traffic", Traffic)
def test_every_packet_is_accounted_for(protocol: Protocol, traffic: Traffic) -> None:
    network = Network(
        NetworkSettings(protocol, 25, 600, 5, 6, max_speed=30, queue_packets=5, traffic=traffic)
    )
    network.run()
    ledger = network.ledger
    assert network.in_flight() == [
        packet for packet, fate in enumerate(ledger.fate) if fate is Fate.IN_FLIGHT
    ]
    assert sum(ledger.totals().values()) == len(ledger.created)
    assert ledger.totals()["delivered"] > 1000


class Forgetful(Network):
    """Overlooks one packet that it holds."""

    def in_flight(self) -> list[int]:
        return super().in_flight()[1:]


def test_a_simulation_that_mislays_a_packet_says_so() -> None:
    with pytest.raises(
        RuntimeError, match=r"nowhere \[\d+\], decided but still held \[\], held more than once 0"
    ):
        Forgetful(NetworkSettings(load=1000, seconds=0.2)).run()


def test_a_trace_says_when_packets_were_created_and_came() -> None:
    trace = simulate(BUSY)
    assert trace.packets.schema == SCHEMA
    created = trace.packets.column("created").to_pylist()
    assert created == sorted(created)
    arrivals = trace.arrivals()
    assert trace.fates()["delivered"] == arrivals.num_rows
    assert pc.all(pc.greater(arrivals.column("arrived"), arrivals.column("created"))).as_py()
    assert set(arrivals.column("channel").to_pylist()) == {0, 1}
    lost = trace.packets.filter(pc.starts_with(trace.packets.column("fate").cast(pa.string()), "lost: "))
    assert lost.num_rows > 0
    assert lost.column("arrived").null_count == lost.num_rows


def test_the_same_settings_give_the_same_trace_in_another_process() -> None:
    program = (
        "from penstock_lab.simulate.networks.settings import NetworkSettings\n"
        "from penstock_lab.simulate.networks.trace import simulate\n"
        "import pyarrow as pa, sys\n"
        "trace = simulate(NetworkSettings(nodes=30, load=400, seconds=4, max_speed=20, queue_packets=10, seed=3))\n"
        "with pa.ipc.new_stream(sys.stdout.buffer, trace.packets.schema) as out: out.write_table(trace.packets)"
    )
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout
    assert pa.ipc.open_stream(told).read_all().equals(simulate(BUSY).packets)


def test_another_seed_gives_another_trace() -> None:
    def packets(seed: int) -> pa.Table:
        return simulate(NetworkSettings(seed=seed, seconds=1)).packets

    assert not packets(1).equals(packets(2))


def test_protocols_meet_the_same_packets() -> None:
    traces: list[NetworkTrace] = [simulate(NetworkSettings(protocol=each, seconds=2)) for each in Protocol]
    same = [trace.packets.select(["sensor", "sequence", "created", "value"]) for trace in traces]
    assert same[0].equals(same[1])
    assert same[0].equals(same[2])


def test_options_are_read_from_texts() -> None:
    settings = NetworkSettings.from_options(
        {"protocol": "single-path", "nodes": "60", "mobility": "gauss-markov"}
    )
    assert settings == NetworkSettings(Protocol.SINGLE_PATH, 60, mobility=Mobility.GAUSS_MARKOV)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": "0"}, "Option nodes is '0'; allowed: whole numbers from 2 to 1000"),
        ({"nodes": "2.5"}, "Option nodes is '2.5'; allowed: whole numbers from 2 to 1000"),
        ({"load": "nan"}, "Option load is 'nan'; allowed: numbers from 0.001 to 100000"),
        ({"nodes": "5_0"}, "Option nodes is '5_0'; allowed: whole numbers from 2 to 1000"),
        ({"seed": " 50 "}, "Option seed is ' 50 '; allowed: whole numbers from 0 to "),
        ({"load": "٥"}, "Option load is '٥'; allowed: numbers from 0.001 to 100000"),
        ({"load": "1e-3x"}, "Option load is '1e-3x'; allowed: numbers from 0.001 to 100000"),
        ({"load": "100000", "seconds": "86400"}, "Options load and seconds are 100000 and 86400, 8,640,000,000 packets; allowed: 20,000,000 packets at most"),
        ({"protocol": "aodv"}, "Option protocol is 'aodv'; allowed: 'dual-channel', 'multipath', 'single-path'"),
        ({"nodes": "5"}, "Option sources is 10; with 5 nodes at most 4"),
        ({"sensing_metres": "5"}, "Option sensing_metres is 5; at least range_metres, 250"),
        ({"colour": "red"}, "Unknown option colour of a network. Options: protocol, nodes, "),
    ],
)  # fmt: skip
def test_what_is_not_allowed_is_told(options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError) as told:
        NetworkSettings.from_options(options)
    assert str(told.value).startswith(message)


def test_too_many_packets_are_laid_to_an_option_that_a_script_can_show() -> None:
    with pytest.raises(OptionError) as told:
        NetworkSettings(load=100_000, seconds=86_400)
    assert told.value.option == "load"
