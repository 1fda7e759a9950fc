"""Resolved expressions as trees, read from Catalyst's JSON of a plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

#: the package of expressions
CATALYST = "org.apache.spark.sql.catalyst.expressions."
#: expressions that are deeper are left to Spark: Python's stack has room for some hundreds
MOST_DEPTH = 60


@dataclass(frozen=True, slots=True)
class Node:
    """An expression.

    Attributes:
        name: Catalyst's class, without its package.
        fields: what the JSON says of it.
        children: the expressions it is made of.
        depth: nodes on the longest way down, itself among them.
    """

    name: str
    fields: dict[str, Any]
    children: tuple[Node, ...]
    depth: int


def projection(plan_json: str) -> list[Node]:
    """The expressions of a projection.

    Args:
        plan_json: Catalyst's JSON of the projection's analysed plan.
    """
    return [tree(nodes) for nodes in json.loads(plan_json)[0]["projectList"]]


def names(tree: Node) -> Iterator[str]:
    """The names of all nodes."""
    yield tree.name
    for child in tree.children:
        yield from names(child)


def tree(nodes: list[dict[str, Any]]) -> Node:
    """The tree that Catalyst's JSON lists in preorder."""
    built: list[Node] = []
    for fields in reversed(nodes):
        children = tuple(built.pop() for _ in range(fields["num-children"]))
        depth = 1 + max((child.depth for child in children), default=0)
        built.append(Node(str(fields["class"]).removeprefix(CATALYST), fields, children, depth))
    (root,) = built
    return root
