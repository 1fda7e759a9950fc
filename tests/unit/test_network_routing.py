"""Routing on small networks: alternating, going on with what is left, discovering anew, telling of breaks."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
import simpy

from network_paths import disjoint_paths
from penstock_lab.simulate.networks import routing
from penstock_lab.simulate.networks.disjoint import shared_nodes
from penstock_lab.simulate.networks.frames import Kind, data
from penstock_lab.simulate.networks.ledger import Fate, Ledger
from penstock_lab.simulate.networks.measures import measure
from penstock_lab.simulate.networks.medium import Medium
from penstock_lab.simulate.networks.radio import SECOND, RadioTiming
from penstock_lab.simulate.networks.routing import Router
from penstock_lab.simulate.networks.settings import NetworkSettings, Protocol
from penstock_lab.simulate.networks.topology import Topology, members
from penstock_lab.simulate.networks.trace import NetworkTrace, simulate

Places = dict[int, tuple[float, float]]
#: a source 0, its target 1 out of range, two relays
DIAMOND: Places = {0: (0, 0), 1: (400, 0), 2: (200, 120), 3: (200, -120)}
AWAY = (5000.0, 5000.0)


class Stage:
    """Nodes at given places; node 0 creates a packet for node 1 every 20 ms."""

    def __init__(
        self,
        protocol: Protocol,
        places: Places,
        packets: int = 500,
        buffer_seconds: float = 10,
        sent_by_hand: int = 0,
    ) -> None:
        self.settings = NetworkSettings(protocol, nodes=len(places), sources=1, buffer_seconds=buffer_seconds)
        self.environment = simpy.Environment()
        self.topology = Topology(250, 550)
        self.places = places
        self.place({})
        created = np.arange(packets + sent_by_hand) * SECOND // 50
        self.ledger = Ledger(created, np.zeros(len(created), np.int64))
        self.router = Router(self.environment, self.settings, self.topology, Random(1), self.ledger, {0: 1})
        self.media = [
            Medium(self.environment, self.topology, RadioTiming(), Random(2), self.router, channel, len(places), 50)
            for channel in range(protocol.channels)
        ]  # fmt: skip
        self.router.attach(self.media)
        for packet, at in enumerate(created[:packets].tolist()):
            self.environment.timeout(at).callbacks.append(
                lambda _, packet=packet: self.router.originate(packet)
            )

    def place(self, moved: Places) -> None:
        self.places = self.places | moved
        self.topology.move(np.array([self.places[node] for node in sorted(self.places)], np.float64))

    def run(self, until: float) -> None:
        self.environment.run(until=round(until * SECOND))

    def came(self, since: float, until: float) -> list[int]:
        """Packets created then that came."""
        first, last = (int(each * 50) for each in (since, until))
        return [packet for packet in range(first, last) if self.ledger.fate[packet] is Fate.DELIVERED]

    def channels(self, since: float, until: float) -> list[int]:
        return [self.ledger.channel[packet] for packet in self.came(since, until)]


def alternates(channels: list[int]) -> bool:
    return all(one != other for one, other in pairwise(channels))


def test_two_channels_take_packets_in_turns_over_disjoint_paths() -> None:
    stage = Stage(Protocol.DUAL_CHANNEL, DIAMOND)
    stage.run(4)
    assert len(stage.channels(1, 3)) == 100
    assert alternates(stage.channels(1, 3))
    assert abs(stage.router.counts.relayed[2] - stage.router.counts.relayed[3]) <= 40
    (found,) = stage.router.found.values()
    assert sorted(found.paths) == [(0, 2, 1), (0, 3, 1)]


def test_the_remaining_path_is_used_on_both_channels() -> None:
    stage = Stage(Protocol.DUAL_CHANNEL, DIAMOND)
    stage.run(2)
    stage.place({2: AWAY})
    stage.run(6)
    assert stage.router.counts.discoveries == 1
    assert len(stage.channels(3, 5)) == 100
    assert alternates(stage.channels(3, 5))
    assert stage.router.counts.breaks == 1
    assert Fate.LINK_BREAK not in stage.ledger.fate


@pytest.mark.parametrize("protocol", [Protocol.DUAL_CHANNEL, Protocol.MULTIPATH])
def test_a_new_discovery_when_both_paths_are_gone(protocol: Protocol) -> None:
    stage = Stage(protocol, DIAMOND, buffer_seconds=0.5)
    stage.run(2)
    stage.place({2: AWAY, 3: AWAY})
    stage.run(5)
    stage.place({2: (200.0, 0.0)})
    stage.run(10)
    totals = stage.ledger.totals()
    assert stage.router.counts.discoveries > 1
    assert totals["lost: no route"] > 50
    assert len(stage.came(9, 9.5)) == 25
    assert sum(totals.values()) == 500
    last = list(stage.router.found.values())[-1]
    assert last.paths == ((0, 2, 1), (0, 2, 1))


def test_a_break_empties_the_queues_of_both_channels() -> None:
    stage = Stage(Protocol.DUAL_CHANNEL, DIAMOND, packets=20, sent_by_hand=8)
    stage.run(1)
    assert stage.ledger.totals()["delivered"] == 20
    first, *later = (data(64, (0, 2, 1), packet) for packet in range(20, 24))
    for frame in later:
        stage.media[1].send(0, frame)
    stage.router.failed(0, first, 0)
    in_radio = later[0]
    assert [frame for frame in stage.media[1].held() if frame.route == (0, 2, 1)] == [in_radio]
    assert {frame.route for medium in stage.media for frame in medium.held()} == {(0, 2, 1), (0, 3, 1)}
    first, *later = (data(64, (0, 2, 1), packet) for packet in range(24, 28))
    for frame in (first, *later):
        frame.at = 1
    for frame in later:
        stage.media[1].send(2, frame)
    stage.router.failed(2, first, 0)
    assert [stage.ledger.fate[packet] for packet in range(24, 28)] == [
        Fate.LINK_BREAK,
        Fate.IN_FLIGHT,
    ] + 2 * [Fate.LINK_BREAK]
    assert [frame.kind for medium in stage.media for frame in medium.held() if frame.packet < 0] == [
        Kind.ERROR
    ]
    stage.run(2)
    assert stage.ledger.totals()["delivered"] == 25


def test_a_full_buffer_loses_packets() -> None:
    stage = Stage(Protocol.SINGLE_PATH, DIAMOND | {2: AWAY, 3: AWAY})
    stage.run(5)
    assert stage.ledger.totals()["lost: buffer full"] == 250 - 64
    assert len(stage.router.waiting()) == 64


@pytest.mark.parametrize("protocol", Protocol)
def test_a_source_is_told_of_a_break_farther_on(protocol: Protocol) -> None:
    chain: Places = {0: (0, 0), 1: (720, 0), 2: (240, 0), 3: (480, 0), 4: (480, 200)}
    stage = Stage(protocol, chain)
    stage.run(2)
    stage.place({3: AWAY, 4: (480.0, 0.0)})
    stage.run(8)
    assert len(stage.came(6, 7)) == 50
    assert stage.router.counts.discoveries > 1
    assert 0 < stage.ledger.totals()["lost: link break"] < 20
    # IP header, fixed fields, the link's two ends, and the way back from the node before the break
    assert {medium.counts.sent_bytes[Kind.ERROR] % (20 + 12 + 4 * (2 + 2)) for medium in stage.media} == {0}
    assert sum(medium.counts.sent[Kind.ERROR] for medium in stage.media) > 0


def test_packets_count_as_handed_on_once_the_next_node_has_them() -> None:
    stage = Stage(Protocol.SINGLE_PATH, DIAMOND)
    stage.run(2)
    stage.place({1: AWAY})
    stage.run(4)
    assert stage.ledger.totals()["lost: link break"] > 0
    assert sum(stage.router.counts.relayed) == stage.ledger.totals()["delivered"]


def test_neighbours_use_their_link_and_a_way_around_it() -> None:
    stage = Stage(Protocol.MULTIPATH, DIAMOND | {1: (200.0, 0.0)})
    stage.run(1)
    (found,) = stage.router.found.values()
    assert found.paths[0] == (0, 1)
    assert len(found.paths[1]) == 3


def missed(trace: NetworkTrace) -> int:
    """Answered discoveries that did not give two disjoint paths where there are two."""
    some = 0
    for found in trace.found:
        links = [(node, other) for node, reached in enumerate(found.reach) for other in members(reached)]
        two = disjoint_paths(links, found.source, found.target) >= 2
        assert not found.paths or two or shared_nodes(found.paths) > 0
        some += bool(found.paths) and two and shared_nodes(found.paths) > 0
    return some


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_discoveries_on_a_quiet_network_give_disjoint_paths_where_there_are_any(seed: int) -> None:
    trace = simulate(NetworkSettings(load=10, seconds=5, max_speed=0, seed=seed, area_metres=900))
    assert len(trace.found) >= 10
    assert missed(trace) == 0
    figures = measure(trace)
    assert figures.delivery_ratio > 0.9
    assert figures.throughput == 8 * 64 * trace.fates()["delivered"] / 5


def test_a_second_path_that_a_flood_lost_is_searched_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = NetworkSettings(load=10, seconds=10, max_speed=0, seed=5)
    trace = simulate(settings)
    assert missed(trace) == 0
    assert trace.routing.searches > 0
    monkeypatch.setattr(routing, "MORE_SEARCHES", 0)
    assert missed(simulate(settings)) > 0


def test_what_cannot_be_found_is_searched_for_so_often() -> None:
    stage = Stage(Protocol.DUAL_CHANNEL, DIAMOND | {3: AWAY})
    stage.run(9)
    assert stage.router.counts.discoveries == 1
    assert stage.router.counts.searches == routing.MORE_SEARCHES
