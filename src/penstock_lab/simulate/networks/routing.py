"""On-demand routing by source routes: one discovery, one or two paths, one or two channels.

The same steps for all protocols, so that what differs is what is compared (docs/decisions/0033): a source with a packet and no
route floods a request; the target sends the first one that arrives back, along its path (one path) or as a flood that finds the
second path (two paths, `disjoint`); packets alternate between the paths; a frame that a radio gives up is a broken link, of which
the sources of the packets behind it are told; when no path is left and there is a packet, there is a new discovery.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from random import Random

import simpy

from penstock_lab.simulate.networks.disjoint import ReplySearch, pair, shared_nodes
from penstock_lab.simulate.networks.frames import (
    Discovery,
    Frame,
    Kind,
    LinkError,
    PairReply,
    PathReply,
    Request,
    Route,
    SearchAgain,
    control,
    data,
)
from penstock_lab.simulate.networks.ledger import Fate, Ledger
from penstock_lab.simulate.networks.medium import Medium
from penstock_lab.simulate.networks.radio import SECOND
from penstock_lab.simulate.networks.settings import NetworkSettings
from penstock_lab.simulate.networks.topology import Topology

#: a broadcast waits up to this long before it is queued, so that neighbours do not all answer at once
JITTER = 10 * SECOND // 1000
#: before a reply passes through a node of the path as the path does: longer than disjoint trails take over several hops
SHARING_WAIT = 60 * SECOND // 1000
#: requests and replies go no farther; a path put together of both has less than 128 hops
MOST_HOPS = 60
#: a discovery is begun anew after so long without an answer, then after twice as long, up to
FIRST_WAIT, LARGEST_WAIT = SECOND // 2, 4 * SECOND
#: so often a source whose two paths share nodes asks for another reply of the same discovery, after waits as those of requests
MORE_SEARCHES = 3


@dataclass(frozen=True, slots=True)
class FoundPaths:
    """What a discovery gave its source.

    Attributes:
        at: nanoseconds, when it began.
        source, target: its ends.
        reach: who reached whom then: by node, a bit for each neighbour.
        paths: one or two, source first.
    """

    at: int
    source: int
    target: int
    reach: list[int] = field(repr=False)
    paths: tuple[Route, ...]


@dataclass(slots=True)
class RoutingCounts:
    """What routing did.

    Attributes:
        discoveries: requests that sources flooded.
        searches: replies that were flooded once more, as the paths of a discovery shared nodes.
        breaks: links that were given up.
        false_breaks: of these, those whose nodes were in range of each other: contention looked like a break.
        relayed: data packets of others that were handed on and acknowledged, by node.
        lost_control: control packets that a radio gave up.
    """

    relayed: list[int]
    discoveries: int = 0
    searches: int = 0
    breaks: int = 0
    false_breaks: int = 0
    lost_control: int = 0


@dataclass(slots=True, eq=False)
class _Session:
    """A source and what it knows of its target."""

    source: int
    target: int
    routes: list[Route] = field(default_factory=list)
    #: the channel that goes with each route
    channels: list[int] = field(default_factory=list)
    turn: int = 0
    number: int = 0
    #: shared nodes of the present pair; -1: a route of the present discovery broke, it is not improved any more
    shared: int = -1
    waiting: deque[int] = field(default_factory=deque)
    discovering: bool = False
    answered: simpy.Event | None = None


class Router:
    """All nodes' routing: takes packets from sensors, frames from the channels.

    Args:
        environment: the clock, in nanoseconds.
        settings: protocol and limits.
        topology: who reaches whom now, to tell false breaks and to note what a discovery could have found.
        random: for jitter.
        ledger: told of each packet's fate.
        targets: by source, where its packets go.
    """

    def __init__(
        self,
        environment: simpy.Environment,
        settings: NetworkSettings,
        topology: Topology,
        random: Random,
        ledger: Ledger,
        targets: dict[int, int],
    ) -> None:
        self.counts = RoutingCounts([0] * settings.nodes)
        self.found: dict[Discovery, FoundPaths] = {}
        self._environment = environment
        self._settings = settings
        self._topology = topology
        self._random = random.random
        self._ledger = ledger
        self._sessions = {source: _Session(source, target) for source, target in targets.items()}
        self._media: list[Medium] = []
        self._seen: dict[Discovery, int] = {}
        self._searches: dict[tuple[Discovery, int], ReplySearch] = {}

    def attach(self, media: list[Medium]) -> None:
        """The channels, which call back."""
        self._media = media

    @property
    def now(self) -> int:
        """Nanoseconds."""
        return int(self._environment.now)

    def waiting(self) -> list[int]:
        """The packets that wait for a route."""
        return [packet for session in self._sessions.values() for packet in session.waiting]

    # packets at their source

    def originate(self, packet: int) -> None:
        """A sensor created a packet."""
        self._send(self._sessions[int(self._ledger.sensor[packet])], packet)

    def _send(self, session: _Session, packet: int) -> None:
        if not session.routes:
            self._wait(session, packet)
            return
        session.turn += 1
        which = session.turn % len(session.routes)
        both = len(session.routes) > 1
        channel = session.channels[which] if both else session.turn % len(self._media)
        frame = data(self._settings.packet_bytes, session.routes[which], packet)
        self._media[channel].send(session.source, frame)

    def _wait(self, session: _Session, packet: int) -> None:
        self._expire(session)
        if self._is_old(packet):
            self._ledger.lose(packet, Fate.NO_ROUTE)
        elif len(session.waiting) >= self._settings.buffer_packets:
            self._ledger.lose(packet, Fate.BUFFER_FULL)
        else:
            session.waiting.append(packet)
        if session.waiting and not session.discovering:
            session.discovering = True
            self._environment.process(self._discover(session))

    def _is_old(self, packet: int) -> bool:
        return self.now - int(self._ledger.created[packet]) > self._settings.buffer_seconds * SECOND

    def _expire(self, session: _Session) -> None:
        waiting = session.waiting
        old = [packet for packet in waiting if self._is_old(packet)]
        for packet in old:
            waiting.remove(packet)
            self._ledger.lose(packet, Fate.NO_ROUTE)

    # discovery

    def _discover(self, session: _Session) -> Generator[simpy.Event, None, None]:
        wait = FIRST_WAIT
        while session.waiting and not session.routes:
            self.counts.discoveries += 1
            session.number += 1
            session.shared = -1
            session.answered = self._environment.event()
            discovery = Discovery(session.source, session.target, session.number)
            self._seen[discovery] = 1 << session.source
            self.found[discovery] = FoundPaths(
                self.now, session.source, session.target, self._topology.reach, ()
            )
            self._broadcast(Kind.REQUEST, Request(discovery, (session.source,)), 1, 0)
            yield session.answered | self._environment.timeout(wait)
            self._expire(session)
            wait = min(2 * wait, LARGEST_WAIT)
        session.discovering = False

    def _broadcast(self, kind: Kind, body: Request | PairReply, addresses: int, channel: int) -> None:
        sender = body.path[-1] if isinstance(body, Request) else body.trail[-1]
        self._media[channel].send(sender, control(kind, body, addresses, (sender,)))

    def _later(self, delay: int, action: Callable[[], None]) -> None:
        timeout = self._environment.timeout(delay)
        assert timeout.callbacks is not None
        timeout.callbacks.append(lambda _: action())

    def _jitter(self) -> int:
        return int(self._random() * JITTER)

    def _hear_request(self, node: int, request: Request) -> None:
        discovery = request.discovery
        seen = self._seen[discovery]
        if seen >> node & 1:
            return
        self._seen[discovery] = seen | 1 << node
        path = (*request.path, node)
        if node == discovery.target:
            self._answer(discovery, path)
            return
        if len(path) > MOST_HOPS:
            return
        onward = Request(discovery, path)
        self._later(self._jitter(), lambda: self._broadcast(Kind.REQUEST, onward, len(path), 0))

    def _answer(self, discovery: Discovery, path: Route) -> None:
        if self._settings.protocol.paths == 1:
            frame = control(Kind.REPLY, PathReply(discovery, path), len(path), path[::-1])
            self._media[0].send(discovery.target, frame)
            return
        self._search(discovery, path, 0)

    def _search(self, discovery: Discovery, path: Route, search: int) -> None:
        self._searches[discovery, search] = ReplySearch()
        self._flood_reply(PairReply(discovery, search, path, (discovery.target,), 0))

    def _improve(
        self, session: _Session, discovery: Discovery, path: Route
    ) -> Generator[simpy.Event, None, None]:
        wait = FIRST_WAIT
        for search in range(1, MORE_SEARCHES + 1):
            yield self._environment.timeout(wait)
            if session.number != discovery.number or session.shared <= 0:
                return
            self.counts.searches += 1
            again = SearchAgain(discovery, path, search)
            self._media[0].send(session.source, control(Kind.REQUEST, again, len(path), path))
            wait *= 2

    def _flood_reply(self, reply: PairReply) -> None:
        self._broadcast(Kind.REPLY, reply, len(reply.path) + len(reply.trail), len(self._media) - 1)

    def _hear_pair_reply(self, node: int, reply: PairReply) -> None:
        if node == reply.discovery.source:
            if reply.opened:
                self._accept(reply.discovery, reply.path, pair(reply.path, (*reply.trail, node)))
            return
        if len(reply.trail) >= MOST_HOPS:
            return
        search = self._searches[reply.discovery, reply.search]
        for forward, shares in search.heard(node, reply):
            self._later(
                self._jitter() + shares * SHARING_WAIT,
                lambda forward=forward, shares=shares: self._pass_on(search, node, forward, shares),  # type: ignore[misc]
            )

    def _pass_on(self, search: ReplySearch, node: int, reply: PairReply, shares: bool) -> None:
        if not shares or search.passes(node, reply):
            self._flood_reply(reply)

    def _accept(self, discovery: Discovery, asked: Route, paths: tuple[Route, ...]) -> None:
        session = self._sessions[discovery.source]
        if discovery.number != session.number:
            return
        shared = shared_nodes(paths) if len(paths) > 1 else 0
        answered = session.answered
        assert answered is not None
        if answered.triggered and shared >= session.shared:
            return
        session.shared = shared
        session.routes = list(paths)
        session.channels = [which % len(self._media) for which in range(len(paths))]
        known = self.found[discovery]
        self.found[discovery] = FoundPaths(known.at, known.source, known.target, known.reach, paths)
        if not answered.triggered:
            answered.succeed()
            if shared:
                self._environment.process(self._improve(session, discovery, asked))
        self._expire(session)
        waiting, session.waiting = session.waiting, deque()
        for packet in waiting:
            self._send(session, packet)

    # frames from the channels

    def received(self, node: int, frame: Frame, channel: int) -> None:
        """A node got a frame: one for it, or a broadcast."""
        body = frame.body
        if isinstance(body, Request):
            self._hear_request(node, body)
            return
        if isinstance(body, PairReply):
            self._hear_pair_reply(node, body)
            return
        if frame.at > 0:
            self.counts.relayed[frame.route[frame.at]] += frame.kind is Kind.DATA
        frame.at += 1
        if frame.receiver >= 0:
            self._media[channel].send(node, frame)
        elif isinstance(body, PathReply):
            self._accept(body.discovery, body.path, (body.path,))
        elif isinstance(body, SearchAgain):
            self._search(body.discovery, body.path, body.search)
        elif isinstance(body, LinkError):
            self._broken(self._sessions[node], body.link)
        else:
            self._ledger.deliver(frame.packet, self.now, channel, frame.at)

    def dropped(self, node: int, frame: Frame, channel: int) -> None:  # noqa: ARG002
        """A node's queue was full."""
        self._ledger.lose(frame.packet, Fate.QUEUE_FULL)

    def failed(self, node: int, frame: Frame, channel: int) -> None:
        """A node gave a frame up: if it is data, the link is broken for all data that waits for it, on either channel."""
        if frame.kind is not Kind.DATA:
            self.counts.lost_control += 1
            return
        link = (node, frame.receiver)
        self.counts.breaks += 1
        self.counts.false_breaks += self._topology.reach[node] >> frame.receiver & 1
        told: dict[int, tuple[Frame, Medium]] = {}
        own: list[int] = []
        behind = [(each, medium) for medium in self._media for each in medium.withdraw(node, frame.receiver)]
        for each, medium in [(frame, self._media[channel]), *behind]:
            source = each.route[0]
            if source == node:
                own.append(each.packet)
            else:
                self._ledger.lose(each.packet, Fate.LINK_BREAK)
                told.setdefault(source, (each, medium))
        for each, medium in told.values():
            back = each.route[each.at :: -1]
            medium.send(node, control(Kind.ERROR, LinkError(link), 2 + len(back), back))
        if own:
            session = self._sessions[node]
            self._broken(session, link)
            for packet in own:
                self._send(session, packet)

    def _broken(self, session: _Session, link: tuple[int, int]) -> None:
        """Routes over a link are given up; the source goes on with what is left."""
        kept = [
            (route, channel)
            for route, channel in zip(session.routes, session.channels, strict=True)
            if link not in itertools.pairwise(route)
        ]
        if len(kept) < len(session.routes):
            session.shared = -1
            session.routes = [route for route, _ in kept]
            session.channels = [channel for _, channel in kept]
