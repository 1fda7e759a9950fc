"""The simulated channel: Bianchi's figures, hidden terminals, capture, what a radio gives up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pytest
import simpy
from scipy.optimize import brentq

from penstock_lab.simulate.networks.frames import Frame, Kind
from penstock_lab.simulate.networks.medium import Medium
from penstock_lab.simulate.networks.radio import MICROSECOND, SECOND, RadioTiming
from penstock_lab.simulate.networks.saturation import (
    BIANCHI,
    PAYLOAD,
    analytic,
    fixed_point,
    simulated,
    transmission_probability,
)
from penstock_lab.simulate.networks.topology import Topology


@pytest.mark.parametrize("stations", [1, 2, 5, 10, 20, 50])
@pytest.mark.parametrize(("window", "stages"), [(32, 3), (32, 5), (128, 3)])
def test_the_fixed_point_is_scipys(stations: int, window: int, stages: int) -> None:
    def off(collision: float) -> float:
        tau = transmission_probability(collision, window, stages)
        return 1 - (1 - tau) ** (stations - 1) - collision

    tau, collision = fixed_point(stations, window, stages)
    assert collision == pytest.approx(0.0 if stations == 1 else brentq(off, 0, 1, xtol=1e-14), abs=1e-12)
    if collision < 0.5:  # as equation 7 is printed
        doubled = 2 * collision
        printed = (
            2 * (1 - doubled) / ((1 - doubled) * (window + 1) + collision * window * (1 - doubled**stages))
        )
        assert tau == pytest.approx(printed)


@pytest.mark.parametrize("stations", [1, 5, 20, 50])
def test_saturation_throughput_is_bianchis_within_five_per_cent(stations: int) -> None:
    timing = replace(BIANCHI, least_window=32, largest_window=256)
    model, seen = analytic(stations, timing), simulated(stations, 60, 7, timing)
    assert seen.throughput == pytest.approx(model.throughput, rel=0.05)
    assert seen.collision == pytest.approx(model.collision, rel=0.05, abs=0.01)


def test_air_times_are_those_of_bianchis_table() -> None:
    # section V.A, microseconds at 1 Mbit/s: headers 272 + 128, payload 8184, SIFS 28, acknowledgement 112 + 128, DIFS 128, delay 1
    assert BIANCHI.airtime(PAYLOAD) + BIANCHI.acknowledgement + BIANCHI.difs == 8982 * MICROSECOND
    assert BIANCHI.airtime(PAYLOAD) + BIANCHI.difs == 8713 * MICROSECOND
    never_waits = replace(BIANCHI, least_window=1, largest_window=1)
    assert analytic(1, never_waits).throughput == pytest.approx(8184 / 8982)
    # simulated: a thousand frames of a single station, and of two that collide for ever
    assert simulated(1, 8.982, 1, never_waits).throughput == pytest.approx(8184 / 8982, abs=0.001)
    line = Line(0, 200, 400, timing=replace(never_waits, retries=9))
    for sender in (0, 2):
        line.send(sender, 1, octets=PAYLOAD)
    line.run((10 * 8713 - 1) / 1e6)
    assert line.heard.given_up == []
    line.run(2e-6)
    assert len(line.heard.given_up) == 2


@pytest.mark.parametrize("stations", [1, 5, 50])
def test_two_channels_of_half_the_bandwidth_carry_what_a_whole_one_does(stations: int) -> None:
    whole, half = RadioTiming(), RadioTiming().narrowed(0.5)
    capacity, of_each = (
        analytic(stations, timing, 100).throughput * timing.bits_per_second for timing in (whole, half)
    )
    assert 2 * of_each == pytest.approx(capacity, rel=0.01)
    assert 2 * half.bits_per_second == whole.bits_per_second


@dataclass
class Heard:
    """Notes what the channel says."""

    received_at: list[tuple[int, Frame]] = field(default_factory=list)
    given_up: list[Frame] = field(default_factory=list)
    full: list[Frame] = field(default_factory=list)

    def received(self, node: int, frame: Frame, channel: int) -> None:  # noqa: ARG002
        self.received_at.append((node, frame))

    def failed(self, node: int, frame: Frame, channel: int) -> None:  # noqa: ARG002
        self.given_up.append(frame)

    def dropped(self, node: int, frame: Frame, channel: int) -> None:  # noqa: ARG002
        self.full.append(frame)


class Line:
    """Nodes on a line that reach 250 m and sense 550 m."""

    def __init__(
        self, *metres: float, timing: RadioTiming | None = None, queue: int = 10, random: Random | None = None
    ) -> None:
        self.environment = simpy.Environment()
        self.topology = Topology(250, 550)
        self.stand(*metres)
        self.heard = Heard()
        self.medium = Medium(
            self.environment, self.topology, timing or RadioTiming(), random or Random(1), self.heard, 0, len(metres), queue
        )  # fmt: skip

    def stand(self, *metres: float) -> None:
        self.topology.move(np.column_stack([metres, np.zeros(len(metres))]))

    def send(self, *route: int, kind: Kind = Kind.DATA, octets: int = 1000) -> Frame:
        frame = Frame(kind, octets, route)
        self.medium.send(route[0], frame)
        return frame

    def run(self, seconds: float = 1.0) -> None:
        self.environment.run(until=self.environment.now + round(seconds * SECOND))


def alike(slots: int = 1) -> RadioTiming:
    """Back-offs of fewer than so many slots, one attempt."""
    return RadioTiming(least_window=slots, largest_window=slots, retries=0)


def test_a_frame_takes_its_time() -> None:
    line = Line(0, 200, timing=alike())
    frame = line.send(0, 1)
    timing = alike()
    line.run((timing.difs + timing.airtime(1000) + timing.acknowledgement - 1) / SECOND)
    assert line.heard.received_at == []
    line.run(2 * MICROSECOND / SECOND)
    assert line.heard.received_at == [(1, frame)]
    assert line.medium.counts.waited == timing.difs + timing.airtime(1000) + timing.acknowledgement


def test_who_senses_the_other_waits() -> None:
    line = Line(0, 200, 400, timing=RadioTiming(retries=0))
    for _ in range(5):
        line.send(0, 1)
        line.send(2, 1)
    line.run()
    assert len(line.heard.received_at) >= 8


class Drawn(Random):
    """Gives back-offs of so many slots in a window of 32."""

    def __init__(self, *slots: int) -> None:
        super().__init__()
        self._slots = iter(slots)

    def random(self) -> float:
        return next(self._slots) / 32


@pytest.mark.parametrize(
    ("late", "left"),
    [(0, 10 - 3), (7, 10 - 2), (20, 10 - 2), (21, 10 - 1)],
    ids=["in step", "a part of a slot is not counted", "whole slots", "one slot less"],
)
def test_a_back_off_stands_still_while_another_is_sensed(late: int, left: int) -> None:
    line = Line(0, 200, 400, random=Drawn(3, 10))
    first = line.send(0, 1)
    if late:
        line.run(late * MICROSECOND / SECOND)
    second = line.send(2, 1)
    # preamble 192, 1034 bytes at 2 Mbit/s 4136, delay 1; SIFS 10, preamble 192, 112 bits at 1 Mbit/s, delay 1; DIFS 50, slots 20
    exchange = 192 + 4136 + 1 + 10 + 192 + 112 + 1
    second_starts = (50 + 3 * 20 + exchange) + 50 + left * 20
    comes = (second_starts + exchange) * MICROSECOND
    line.environment.run(until=comes)
    assert line.heard.received_at == [(1, first)]
    line.environment.run(until=comes + 1)
    assert line.heard.received_at == [(1, first), (1, second)]


def test_hidden_terminals_destroy_each_others_frames() -> None:
    line = Line(0, 245, 600, timing=alike(8))
    line.send(0, 1)
    line.send(2, 1)
    line.run()
    # 600 m apart they do not sense each other; at the receiver the far one is within 1.78 times the near one's distance
    assert line.medium.counts.collisions == 1
    assert line.medium.counts.out_of_range == 1
    assert len(line.heard.given_up) == 2


def test_a_near_sender_is_heard_over_a_far_one() -> None:
    line = Line(0, 100, 600, 700, timing=alike())
    line.send(0, 1)
    line.send(2, 3)
    line.run()
    assert len(line.heard.received_at) == 2


def test_nobody_receives_while_it_sends() -> None:
    line = Line(0, 200, timing=alike())
    line.send(0, 1)
    line.send(1, 0)
    line.run()
    assert line.medium.counts.collisions == 2


def test_broadcasts_reach_all_who_are_not_disturbed() -> None:
    line = Line(0, 200, 240, 700, 800, timing=alike())
    line.send(0, kind=Kind.REQUEST)
    line.send(3, 4)
    line.run()
    assert sorted(node for node, _ in line.heard.received_at) == [1, 2, 4]
    line = Line(0, 245, 600, timing=alike())
    line.send(0, kind=Kind.REQUEST)
    line.send(2, kind=Kind.REQUEST)
    line.run()
    assert line.heard.received_at == []
    assert line.medium.counts.lost_broadcasts == 1


def test_a_frame_is_given_up_after_its_repetitions() -> None:
    line = Line(0, 300, timing=RadioTiming(retries=3))
    frame = line.send(0, 1)
    line.run()
    assert line.heard.given_up == [frame]
    assert line.medium.counts.out_of_range == 4
    assert line.medium.held() == []


def test_queues_are_limited_for_data_and_control_comes_first() -> None:
    line = Line(0, 200, queue=2)
    frames = [line.send(0, 1) for _ in range(4)]
    urgent = line.send(0, 1, kind=Kind.ERROR)
    assert line.heard.full == [frames[3]]
    line.run()
    assert [frame for _, frame in line.heard.received_at] == [frames[0], urgent, frames[1], frames[2]]


def test_data_for_a_broken_link_is_withdrawn() -> None:
    line = Line(0, 200, 200)
    first, second, third = line.send(0, 1), line.send(0, 1), line.send(0, 2)
    assert line.medium.withdraw(0, 1) == [second]
    assert line.medium.held() == [third, first]
