"""How many disjoint paths there are, by networkx."""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx


def disjoint_paths(links: Iterable[tuple[int, int]], source: int, target: int) -> int:
    """The most node-disjoint paths between two nodes, the link between them counted as one.

    Args:
        links: in both directions.
        source, target: the two nodes.
    """
    flows = nx.DiGraph()
    flows.add_nodes_from([(source, "out"), (target, "in")])
    for one, other in links:
        flows.add_edge((one, "out"), (other, "in"), capacity=1)
        for node in (one, other):
            if node not in (source, target):
                flows.add_edge((node, "in"), (node, "out"), capacity=1)
    return int(nx.maximum_flow_value(flows, (source, "out"), (target, "in")))
