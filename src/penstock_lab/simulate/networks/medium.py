"""One channel: stations that contend for it as IEEE 802.11 DCF has them, one event a transmission opportunity.

A station with a frame draws a back-off and counts it down while it senses nobody; who finishes first transmits. Stations count
for themselves, so the event is not the slot but the next opportunity: the least due time of those that count. A transmission
stops those who sense it, with the slots they have left; its end lets them go on after DIFS. Two that are due within a slot of
each other cannot sense each other and both transmit. A frame is lost at its receiver if another transmission overlaps it from
so near that the capture threshold is not reached, from the receiver itself, or if the receiver is out of range: hidden terminals
are those whom the sender does not sense. In one collision domain this is Bianchi's model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol as Interface

import simpy

from penstock_lab.simulate.networks.frames import Frame, Kind
from penstock_lab.simulate.networks.radio import RadioTiming
from penstock_lab.simulate.networks.topology import Topology, members

#: an interferer farther away than this many times the sender does no harm: 10 dB with a path loss exponent of 4
CAPTURE_RATIO = 10 ** (10 / 40)
_NEVER = 1 << 62


class Receiver(Interface):
    """What lies above the channel."""

    def received(self, node: int, frame: Frame, channel: int) -> None:
        """A node got a frame: one for it, or a broadcast."""

    def failed(self, node: int, frame: Frame, channel: int) -> None:
        """A node gave a frame up after its last repetition."""

    def dropped(self, node: int, frame: Frame, channel: int) -> None:
        """A node's queue was full."""


@dataclass(slots=True)
class ChannelCounts:
    """What happened on a channel.

    Attributes:
        transmissions: frames that went on the air, repetitions included.
        unicast: of these, those to one receiver.
        acknowledged: of these, those that came through.
        collisions: unicast transmissions that another one destroyed at their receiver.
        lost_broadcasts: receptions of broadcasts that another transmission destroyed.
        out_of_range: unicast transmissions whose receiver was out of range.
        air: nanoseconds of all transmissions.
        sent: frames that were sent with success or as broadcasts, by kind.
        sent_bytes: bytes of these and of all repetitions, by kind.
        waited: nanoseconds from queue to success, of all unicast frames together.
    """

    transmissions: int = 0
    unicast: int = 0
    acknowledged: int = 0
    collisions: int = 0
    lost_broadcasts: int = 0
    out_of_range: int = 0
    air: int = 0
    sent: list[int] = field(default_factory=lambda: [0] * len(Kind))
    sent_bytes: list[int] = field(default_factory=lambda: [0] * len(Kind))
    waited: int = 0


@dataclass(slots=True, eq=False)
class _Station:
    """A node's radio."""

    node: int
    queue: deque[Frame] = field(default_factory=deque)
    frame: Frame | None = None
    slots: int = 0
    due: int = _NEVER
    window: int = 0
    failures: int = 0


@dataclass(slots=True, eq=False)
class _Transmission:
    """A frame on the air."""

    station: _Station
    frame: Frame
    receiver: int
    data_end: int
    #: interferers nearer to the receiver than this destroy it, metres
    reach: float
    destroyed: bool
    reached: bool
    #: nodes that transmitted at the same time, as bits; kept for broadcasts
    overlaps: int = 0


def _of(event: simpy.Event) -> _Transmission:
    transmission: _Transmission = event.value  # type: ignore[assignment]
    return transmission


class Medium:
    """A channel and the radios on it.

    Args:
        environment: the clock, in nanoseconds.
        topology: who senses and reaches whom now.
        timing: of the radios.
        random: for back-offs.
        receiver: what lies above.
        channel: its number.
        nodes: how many radios.
        queue_packets: a radio's queue is full with so many.
    """

    def __init__(
        self,
        environment: simpy.Environment,
        topology: Topology,
        timing: RadioTiming,
        random: Random,
        receiver: Receiver,
        channel: int,
        nodes: int,
        queue_packets: int,
    ) -> None:
        self.counts = ChannelCounts()
        self._environment = environment
        self._topology = topology
        self._timing = timing
        self._random = random.random
        self._receiver = receiver
        self._channel = channel
        self._stations = [_Station(node) for node in range(nodes)]
        self._queue_packets = queue_packets
        self._contending: dict[int, _Station] = {}
        self._on_air: list[_Transmission] = []
        self._active = 0
        self._wake = _NEVER

    def send(self, node: int, frame: Frame) -> None:
        """Queues a frame at a node, control packets before data."""
        station = self._stations[node]
        queue = station.queue
        frame.queued = int(self._environment.now)
        if frame.kind is Kind.DATA:
            if len(queue) >= self._queue_packets:
                self._receiver.dropped(node, frame, self._channel)
                return
            queue.append(frame)
        else:
            place = 0
            while place < len(queue) and queue[place].kind is not Kind.DATA:
                place += 1
            queue.insert(place, frame)
        if station.frame is None:
            self._next_frame(station)
            self._look_ahead()

    def withdraw(self, node: int, receiver: int) -> list[Frame]:
        """Takes data for a next node from a queue."""
        queue = self._stations[node].queue
        gone = [frame for frame in queue if frame.kind is Kind.DATA and frame.receiver == receiver]
        if gone:
            kept = [frame for frame in queue if frame.kind is not Kind.DATA or frame.receiver != receiver]
            queue.clear()
            queue.extend(kept)
        return gone

    def held(self) -> list[Frame]:
        """The frames in queues and radios."""
        frames = [frame for station in self._stations for frame in station.queue]
        return frames + [station.frame for station in self._stations if station.frame is not None]

    def _next_frame(self, station: _Station) -> None:
        if not station.queue:
            station.frame = None
            return
        station.frame = station.queue.popleft()
        station.failures = 0
        station.window = self._timing.least_window
        self._contend(station)

    def _contend(self, station: _Station) -> None:
        station.slots = int(self._random() * station.window)
        station.due = _NEVER
        self._contending[station.node] = station
        if not self._active & self._topology.sense[station.node]:
            station.due = int(self._environment.now) + self._timing.difs + station.slots * self._timing.slot

    def _look_ahead(self) -> None:
        """Sees to it that there is an event at the next opportunity; one that comes too early does no harm."""
        due = min([station.due for station in self._contending.values()], default=_NEVER)
        if due < self._wake:
            self._wake = due
            self._at(due - int(self._environment.now), self._opportunity)

    def _at(self, delay: int, callback: Callable[[simpy.Event], None], value: object = None) -> None:
        timeout = self._environment.timeout(delay, value)
        assert timeout.callbacks is not None
        timeout.callbacks.append(callback)

    def _opportunity(self, _: simpy.Event) -> None:
        now = int(self._environment.now)
        if now != self._wake:
            return
        self._wake = _NEVER
        for station in [each for each in self._contending.values() if each.due == now]:
            self._transmit(station, now)
        self._look_ahead()

    def _transmit(self, station: _Station, now: int) -> None:
        node, frame, timing = station.node, station.frame, self._timing
        assert frame is not None
        del self._contending[node]
        station.due = _NEVER
        slot = timing.slot
        sensed = self._topology.sense[node]
        for other in self._contending.values():
            left = other.due - now
            if left >= slot and other.due != _NEVER and sensed >> other.node & 1:
                other.slots = min(other.slots, -(-left // slot))
                other.due = _NEVER
        airtime = timing.airtime(frame.octets)
        receiver = frame.receiver
        transmission = _Transmission(station, frame, receiver, now + airtime, 0.0, False, True)
        if receiver >= 0:
            transmission.reached = bool(self._topology.reach[node] >> receiver & 1)
            transmission.reach = self._topology.distance[node][receiver] * CAPTURE_RATIO
        self._interfere(transmission, now)
        self._on_air.append(transmission)
        self._active |= 1 << node
        counts = self.counts
        counts.transmissions += 1
        counts.unicast += receiver >= 0
        counts.sent_bytes[frame.kind] += frame.octets
        counts.air += airtime
        self._at(airtime, self._data_ended, transmission)

    def _interfere(self, new: _Transmission, now: int) -> None:
        """Two-way harm between a transmission that begins and those on the air."""
        node, receiver = new.station.node, new.receiver
        distance = self._topology.distance
        for other in self._on_air:
            if now >= other.data_end:
                # an acknowledgement is under way: its sender cannot receive
                new.destroyed |= receiver in (other.receiver, other.station.node)
                continue
            talks = other.station.node
            new.overlaps |= 1 << talks
            other.overlaps |= 1 << node
            if receiver >= 0 and (talks == receiver or distance[talks][receiver] < new.reach):
                new.destroyed = True
            heard_by = other.receiver
            if heard_by >= 0 and (node == heard_by or distance[node][heard_by] < other.reach):
                other.destroyed = True

    def _data_ended(self, event: simpy.Event) -> None:
        transmission = _of(event)
        if transmission.receiver >= 0 and transmission.reached and not transmission.destroyed:
            self.counts.air += self._timing.acknowledgement
            self._at(self._timing.acknowledgement, self._ended, transmission)
        else:
            self._ended(event)

    def _ended(self, event: simpy.Event) -> None:
        transmission = _of(event)
        station, frame, counts = transmission.station, transmission.frame, self.counts
        self._on_air.remove(transmission)
        self._active ^= 1 << station.node
        self._resume()
        if transmission.receiver < 0:
            counts.sent[frame.kind] += 1
            self._next_frame(station)
            self._spread(transmission)
        elif transmission.reached and not transmission.destroyed:
            counts.sent[frame.kind] += 1
            counts.acknowledged += 1
            counts.waited += int(self._environment.now) - frame.queued
            self._next_frame(station)
            self._receiver.received(transmission.receiver, frame, self._channel)
        else:
            self._repeat(station, frame, transmission.reached)
        self._look_ahead()

    def _repeat(self, station: _Station, frame: Frame, reached: bool) -> None:
        if reached:
            self.counts.collisions += 1
        else:
            self.counts.out_of_range += 1
        station.failures += 1
        if station.failures <= self._timing.retries:
            station.window = min(2 * station.window, self._timing.largest_window)
            self._contend(station)
        else:
            # told before the next frame is taken, which may be withdrawn
            self._receiver.failed(station.node, frame, self._channel)
            self._next_frame(station)

    def _resume(self) -> None:
        now, active, sense = int(self._environment.now), self._active, self._topology.sense
        difs, slot = self._timing.difs, self._timing.slot
        for station in self._contending.values():
            if station.due == _NEVER and not active & sense[station.node]:
                station.due = now + difs + station.slots * slot

    def _spread(self, transmission: _Transmission) -> None:
        """A broadcast, at those whom nobody disturbed."""
        sender, overlaps = transmission.station.node, list(members(transmission.overlaps))
        distance = self._topology.distance
        for node in members(self._topology.reach[sender]):
            reach = distance[sender][node] * CAPTURE_RATIO
            if any(other == node or distance[other][node] < reach for other in overlaps):
                self.counts.lost_broadcasts += 1
            else:
                self._receiver.received(node, transmission.frame, self._channel)
