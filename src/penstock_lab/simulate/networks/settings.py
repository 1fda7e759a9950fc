"""What is simulated: the network, its radios, its traffic and the protocol that routes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self

from penstock.errors import InputError, OptionError


class Protocol(StrEnum):
    """How sources find and use routes."""

    DUAL_CHANNEL = "dual-channel"
    MULTIPATH = "multipath"
    SINGLE_PATH = "single-path"

    @property
    def channels(self) -> int:
        """Radios of a node, each on a channel of its own."""
        return 2 if self is Protocol.DUAL_CHANNEL else 1

    @property
    def paths(self) -> int:
        """Paths that one discovery looks for."""
        return 1 if self is Protocol.SINGLE_PATH else 2


class Mobility(StrEnum):
    """How nodes move."""

    RANDOM_WAYPOINT = "random-waypoint"
    GAUSS_MARKOV = "gauss-markov"


class Traffic(StrEnum):
    """Where packets go: all to one node that stands in the middle, or each sensor's to a node of its own."""

    SINK = "sink"
    PAIRS = "pairs"


#: least, most and whether whole numbers only, by option
_NUMBERS: dict[str, tuple[float, float, bool]] = {
    "nodes": (2, 1000, True),
    "load": (0.001, 100_000, False),
    "seed": (0, 2**63 - 1, True),
    "seconds": (0.001, 86_400, False),
    "max_speed": (0, 100, False),
    "pause_seconds": (0, 86_400, False),
    "area_metres": (1, 1_000_000, False),
    "range_metres": (1, 100_000, False),
    "sensing_metres": (1, 1_000_000, False),
    "sources": (1, 999, True),
    "packet_bytes": (1, 2304, True),
    "bits_per_second": (100_000, 1_000_000_000, False),
    "queue_packets": (1, 100_000, True),
    "buffer_packets": (1, 100_000, True),
    "buffer_seconds": (0.001, 86_400, False),
}
#: most packets of a simulation: each is kept, some 100 bytes, until its end
MOST_PACKETS = 20_000_000
_NUMERALS = frozenset("0123456789.eE+-")
_CHOICES: dict[str, type[StrEnum]] = {"protocol": Protocol, "mobility": Mobility, "traffic": Traffic}


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """A simulated network; the same settings give the same trace in any process.

    Attributes:
        protocol: how sources find and use routes.
        nodes: how many, the sink included.
        load: packets a second that all sensors create together.
        seed: of positions, movements, traffic, back-offs and measured values.
        seconds: simulated time.
        mobility: how nodes move.
        max_speed: metres a second; the slowest are a tenth as fast; 0: nobody moves.
        pause_seconds: rest at each waypoint.
        area_metres: side of the square.
        range_metres: a frame is received up to this distance.
        sensing_metres: a transmission is sensed up to this distance.
        sources: sensors; the nodes that create packets.
        packet_bytes: payload of a packet.
        bits_per_second: of the payload; preambles and acknowledgements have the radio's basic rate.
        traffic: where packets go.
        queue_packets: a radio's queue is full with so many.
        buffer_packets, buffer_seconds: so many packets of a source wait for a route, and for so long.

    Raises:
        OptionError: an option has a value that is not allowed; the message names all three.
    """

    protocol: Protocol = Protocol.DUAL_CHANNEL
    nodes: int = 50
    load: float = 200.0
    seed: int = 1
    seconds: float = 600.0
    mobility: Mobility = Mobility.RANDOM_WAYPOINT
    max_speed: float = 5.0
    pause_seconds: float = 0.0
    area_metres: float = 1000.0
    range_metres: float = 250.0
    sensing_metres: float = 550.0
    sources: int = 10
    packet_bytes: int = 64
    bits_per_second: float = 2_000_000.0
    traffic: Traffic = Traffic.SINK
    queue_packets: int = 50
    buffer_packets: int = 64
    buffer_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            object.__setattr__(self, name, _choice(name, getattr(self, name), choices))
        for name in _NUMBERS:
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        if self.load * self.seconds > MOST_PACKETS:
            raise OptionError(
                f"Options load and seconds are {self.load:g} and {self.seconds:g}, {self.load * self.seconds:,.0f} packets; "
                f"allowed: {MOST_PACKETS:,} packets at most",
                "load",
            )
        sensors = self.nodes - (self.traffic is Traffic.SINK)
        if self.sources > sensors:
            raise OptionError(
                f"Option sources is {self.sources}; with {self.nodes} nodes at most {sensors}", "sources"
            )
        if self.sensing_metres < self.range_metres:
            raise OptionError(
                f"Option sensing_metres is {self.sensing_metres:g}; at least range_metres, {self.range_metres:g}",
                "sensing_metres",
            )

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """From texts, as SQL and the command line have them.

        Raises:
            InputError: an unknown option, or a value that is not allowed.
        """
        for name in options:
            if name not in option_names():
                raise InputError(f"Unknown option {name} of a network. Options: {', '.join(option_names())}")
        return cls(**dict[str, Any](options))


def option_names() -> tuple[str, ...]:
    """The options of a simulated network."""
    return tuple(field.name for field in fields(NetworkSettings))


def _choice(name: str, value: str, choices: type[StrEnum]) -> StrEnum:
    try:
        return choices(value)
    except ValueError:
        allowed = ", ".join(f"'{each}'" for each in choices)
        raise OptionError(f"Option {name} is '{value}'; allowed: {allowed}", name) from None


def _number(name: str, value: float | str) -> float:
    least, most, whole = _NUMBERS[name]
    try:
        if isinstance(value, str) and not set(value) <= _NUMERALS:
            raise ValueError
        number: float = int(value) if whole else float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not least <= number <= most or (whole and not isinstance(value, str) and number != value):
        kind = "whole numbers" if whole else "numbers"
        raise OptionError(f"Option {name} is '{value}'; allowed: {kind} from {least:g} to {most:g}", name)
    return number
