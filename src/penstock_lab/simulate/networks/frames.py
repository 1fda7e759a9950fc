"""What is sent: data along a route, requests and replies of discoveries, errors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

Route = tuple[int, ...]

#: bytes of an IP header, of a control packet's fixed fields, and of each address
IP_BYTES, CONTROL_BYTES, ADDRESS_BYTES = 20, 12, 4


class Kind(IntEnum):
    """What a frame is."""

    DATA = 0
    REQUEST = 1
    REPLY = 2
    ERROR = 3


@dataclass(slots=True, eq=False)
class Frame:
    """A packet on its way.

    Attributes:
        kind: what it is.
        octets: bytes behind the MAC header.
        route: the nodes it goes along; of a broadcast its sender alone.
        at: place in the route of the node that has it.
        packet: number of a created packet; -1 of control packets.
        body: what a control packet says.
        queued: nanoseconds, when its present queue took it.
    """

    kind: Kind
    octets: int
    route: Route
    at: int = 0
    packet: int = -1
    body: object = None
    queued: int = 0

    @property
    def receiver(self) -> int:
        """The next node; -1: all that hear it."""
        return self.route[self.at + 1] if self.at + 1 < len(self.route) else -1


@dataclass(frozen=True, slots=True)
class Discovery:
    """Which discovery a request or a reply belongs to."""

    source: int
    target: int
    number: int


@dataclass(frozen=True, slots=True)
class Request:
    """A flooded request and the nodes it came along, its sender last."""

    discovery: Discovery
    path: Route


@dataclass(frozen=True, slots=True)
class PathReply:
    """The one path that a request found, sent back along it."""

    discovery: Discovery
    path: Route


@dataclass(frozen=True, slots=True)
class SearchAgain:
    """A source asks its target to flood the reply once more, for the so-manieth time: the paths it has share nodes."""

    discovery: Discovery
    path: Route
    search: int


@dataclass(frozen=True, slots=True)
class PairReply:
    """A flooded reply that looks for a second path.

    Attributes:
        discovery: to which it belongs.
        search: how often the target was asked to flood it once more; what nodes remember is of one search.
        path: the path of the request, source first.
        trail: the nodes it came along, the target first, its sender last.
        shared: nodes and links of the path that it uses as the path does.
        opened: its sender sends it to all; else only to its successor on the path.
    """

    discovery: Discovery
    search: int
    path: Route
    trail: Route
    shared: int
    opened: bool = True


@dataclass(frozen=True, slots=True)
class LinkError:
    """The link between two nodes broke."""

    link: tuple[int, int]


def data(octets: int, route: Route, packet: int) -> Frame:
    """A packet with its source route."""
    return Frame(Kind.DATA, IP_BYTES + octets + ADDRESS_BYTES * len(route), route, 0, packet)


def control(kind: Kind, body: object, addresses: int, route: Route) -> Frame:
    """A control packet that names so many addresses."""
    return Frame(kind, IP_BYTES + CONTROL_BYTES + ADDRESS_BYTES * addresses, route, 0, -1, body)
