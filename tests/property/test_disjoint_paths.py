"""One discovery over any graph, its replies delayed in any way: two disjoint paths wherever networkx finds a flow of two."""

from __future__ import annotations

import heapq
from itertools import combinations, pairwise
from random import Random

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from network_paths import disjoint_paths
from penstock_lab.simulate.networks.disjoint import ReplySearch, pair, shared_nodes
from penstock_lab.simulate.networks.frames import Discovery, PairReply, Route

SOURCE, TARGET = 0, 1


@st.composite
def graphs(draw: st.DrawFn) -> nx.Graph:
    """Connected source and target, sparse graphs more often than dense ones."""
    nodes = draw(st.integers(2, 16))
    density = draw(st.floats(0.05, 0.6))
    random = Random(draw(st.integers(0, 2**32)))
    graph = nx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(link for link in combinations(range(nodes), 2) if random.random() < density)
    if not nx.has_path(graph, SOURCE, TARGET):
        graph.add_edges_from(pairwise([SOURCE, *random.sample(range(2, nodes), (nodes - 2) // 2), TARGET]))
    return graph


def found(graph: nx.Graph, path: Route, random: Random) -> tuple[Route, Route]:
    """What the source has in the end, each hop with a delay of its own; a pass through a node of the path is later."""
    search, number = ReplySearch(), 0
    best = (path, path)
    underway = [(0.0, 0, TARGET, PairReply(Discovery(SOURCE, TARGET, 1), 0, path, (TARGET,), 0), False)]
    while underway:
        now, _, sender, reply, shares = heapq.heappop(underway)
        if shares and not search.passes(sender, reply):
            continue
        for node in sorted(graph[sender]):
            if node == SOURCE and reply.opened:
                paths = pair(path, (*reply.trail, node))
                best = min(best, paths, key=shared_nodes)
            for forward, through in search.heard(node, reply):
                number += 1
                later = now + random.random() + 3 * through
                heapq.heappush(underway, (later, number, node, forward, through))
    assert number < 60 * len(graph)
    return best


@settings(max_examples=examples(150), deadline=None)
@given(graphs(), st.integers(0, 2**32))
def test_two_disjoint_paths_wherever_there_are_two(graph: nx.Graph, seed: int) -> None:
    random = Random(seed)
    paths = list(nx.all_simple_paths(graph, SOURCE, TARGET, cutoff=5)) or [
        nx.shortest_path(graph, SOURCE, TARGET)
    ]
    first = tuple(random.choice(paths))
    pairs = found(graph, first, random)
    for path in pairs:
        assert path[0] == SOURCE
        assert path[-1] == TARGET
        assert len(set(path)) == len(path)
        assert all(graph.has_edge(*link) for link in pairwise(path))
    disjoint = shared_nodes(pairs) == 0
    links = [*graph.edges, *(link[::-1] for link in graph.edges)]
    assert disjoint == (disjoint_paths(links, SOURCE, TARGET) >= 2)
    if not disjoint:
        cuts = {
            node
            for node in graph
            if node > TARGET and not nx.has_path(graph.subgraph(set(graph) - {node}), SOURCE, TARGET)
        }
        shared = set(pairs[0][1:-1]) & set(pairs[1][1:-1])
        assert shared == cuts
