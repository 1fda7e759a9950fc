"""A second path by a flooded reply: node-disjoint from the first wherever two disjoint paths exist.

The request found one path. The reply is flooded back from the target and searches, as it spreads, the residual graph of that
path, each node split into an entry and an exit (the augmenting step of Ford and Fulkerson, as in Suurballe's pair of disjoint
paths; distributed by Ogier, Rutenburg and Shacham 1993). What reaches the source is an augmenting trail; cancelled against the
path it leaves two disjoint ones. Where none exists, the trail that shares the fewest nodes and links gives the pair.

A node off the path sends a reply on once, and again only where it came with less shared. A node on the path sends at most twice
at the same cost: to its successor alone where the reply entered from outside (so it goes back along the path), and to all where
it came back along the path. To let a reply pass through in the path's own direction shares the node; that waits (`shares`), so
that disjoint trails come first.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from penstock_lab.simulate.networks.frames import PairReply, Route


class Forward(NamedTuple):
    """A reply to be sent on; one that `shares` only after a wait, and only if it is still wanted then."""

    reply: PairReply
    shares: bool


class ReplySearch:
    """What the nodes remember of the replies of one search: the least shared at their entries and exits."""

    def __init__(self) -> None:
        self._entries: dict[int, int] = {}
        self._exits: dict[int, int] = {}

    def heard(self, node: int, reply: PairReply) -> list[Forward]:
        """What a node sends on of a reply it hears; the source and the target send nothing.

        Args:
            node: who hears it.
            reply: of this search.
        """
        path = reply.path
        if node in (path[0], path[-1]):
            return []
        sender = reply.trail[-1]
        trail = (*reply.trail, node)
        if node not in path:
            if not reply.opened or reply.shared >= self._exits.get(node, _NEVER):
                return []
            self._exits[node] = reply.shared
            return [Forward(replace(reply, trail=trail), False)]
        place = path.index(node)
        if place > 1 and sender == path[place - 1]:
            return self._left(node, replace(reply, trail=trail, opened=True))
        if not reply.opened:
            return []
        entered = replace(reply, trail=trail, shared=reply.shared + (sender == path[place + 1]), opened=False)
        if entered.shared >= self._entries.get(node, _NEVER):
            return []
        self._entries[node] = entered.shared
        through = Forward(replace(entered, shared=entered.shared + 1, opened=True), True)
        if place + 2 == len(path):
            return [through]
        return [Forward(entered, False), through]

    def _left(self, node: int, reply: PairReply) -> list[Forward]:
        if reply.shared >= self._exits.get(node, _NEVER):
            return []
        self._exits[node] = reply.shared
        self._entries[node] = min(reply.shared, self._entries.get(node, _NEVER))
        return [Forward(reply, False)]

    def passes(self, node: int, reply: PairReply) -> bool:
        """Whether a reply that shares its node is still wanted after its wait; then it counts as sent."""
        return bool(self._left(node, reply))


_NEVER = 1 << 30


def pair(path: Route, trail: Route) -> tuple[Route, Route]:
    """Two paths out of the request's and a trail that reached the source, the shorter one first.

    Args:
        path: source to target.
        trail: target to source.
    """
    links: Counter[tuple[int, int]] = Counter(itertools.pairwise(path))
    back = trail[::-1]
    for link in itertools.pairwise(back):
        if links[link[::-1]] > 0:
            links[link[::-1]] -= 1
        else:
            links[link] += 1
    following: dict[int, list[int]] = {}
    for (tail, head), count in links.items():
        following.setdefault(tail, []).extend([head] * count)
    first, second = (_walked(following, path[0], path[-1]) for _ in range(2))
    return (first, second) if len(first) <= len(second) else (second, first)


def _walked(following: dict[int, list[int]], source: int, target: int) -> Route:
    """A path along links that are used up, its loops left out."""
    walk = [source]
    while walk[-1] != target:
        head = following[walk[-1]].pop(0)
        if head in walk:
            del walk[walk.index(head) + 1 :]
        else:
            walk.append(head)
    return tuple(walk)


def shared_nodes(paths: tuple[Route, ...]) -> int:
    """How many nodes between source and target lie on both of two paths; of paths that are the same link, one."""
    first, second = paths
    return len(set(first[1:-1]) & set(second[1:-1])) + (first == second and len(first) == 2)
