"""Resolved expressions as trees that workers compute to the same values as Spark: a whitelist of Catalyst's nodes.

What is not known here is left to Spark, which costs time and never a wrong result. Catalyst's JSON does not tell an operation that
raises from one that gives NULL (`try_cast`), so that casts are taken only where no value can make them raise. Functions of a time zone are taken where it is UTC.
Where Spark's optimiser may leave out something that raises, or reorders it (`rearranged`), the expression is left to Spark too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

from penstock.plan.scalar_trees import ColumnValue, Constant, Scalar
from penstock.spark.analysis.catalyst_trees import MOST_DEPTH, Node, names
from penstock.spark.analysis.computable import choices, moments, numbers, texts
from penstock.spark.analysis.computable.typed import (
    LeftToSparkError,
    Typed,
    arrow_type,
    literal,
    require,
    scalar_kind,
)

#: nodes that stand for the one expression they hold
_REPLACED = frozenset(("Alias", "Extract", "DatePart", "Nvl", "Nvl2", "Between", "NullIf"))
_FORMS: Mapping[str, Callable[[Node, list[Typed]], Typed]] = MappingProxyType(
    {**numbers.FORMS, **choices.FORMS, **moments.FORMS, **texts.FORMS}
)


def scalar_tree(expression: Node, columns: Iterable[str], others: Collection[str] = ()) -> Scalar | None:
    """The tree of a resolved expression; None where Spark has to compute it.

    Args:
        expression: as analysed under ANSI rules; it spells columns as its text does.
        columns: the stream's, by the names that batches have.
        others: nodes that the session's settings give another meaning.
    """
    named = {name.lower(): name for name in columns}
    try:
        require(expression.depth <= MOST_DEPTH and not any(name in others for name in names(expression)))
        return _tree(expression, named, None).tree
    except LeftToSparkError:
        return None


def _tree(node: Node, named: Mapping[str, str], shared: Typed | None) -> Typed:
    """The tree of an expression.

    Args:
        node: the expression.
        named: the columns' names by these in lower case.
        shared: what it refers to as common, as `BETWEEN` does to its operand.
    """
    if node.name in _REPLACED:
        require(len(node.children) == 1)
        return _tree(node.children[0], named, shared)
    if node.name == "With":
        # the JSON does not tell several common expressions apart
        require(len(node.children) == 2 and shared is None)
        common = _tree(node.children[1].children[0], named, None)
        # Spark computes it beforehand, whoever needs it
        require(not common.raises)
        return _tree(node.children[0], named, common)
    if node.name == "CommonExpressionRef":
        require(shared is not None)
        assert shared is not None, "it was required"
        return shared
    if node.name in ("AttributeReference", "GetStructField"):
        return _column(node, named)
    if node.name == "Literal":
        kind = scalar_kind(node.fields["dataType"])
        value = literal(node.fields["value"], kind)
        return Typed(Constant(value, arrow_type(kind)), kind, nullable=value is None)
    if node.name == "Cast" and _is_null_literal(node.children[0]):
        kind = scalar_kind(node.fields["dataType"])
        return Typed(Constant(None, arrow_type(kind)), kind)
    arguments = [_tree(child, named, shared) for child in node.children]
    made = _FORMS.get(node.name)
    require(made is not None)
    assert made is not None, "it was required"
    return made(node, arguments)


def _column(node: Node, named: Mapping[str, str]) -> Typed:
    """A column, or a field within it."""
    path: list[int] = []
    while node.name == "GetStructField":
        path.insert(0, int(node.fields["ordinal"]))
        (node,) = node.children
    require(node.name == "AttributeReference")
    kind = node.fields["dataType"]
    for place in path:
        kind = kind["fields"][place]["type"]
    kind, name = scalar_kind(kind), named.get(str(node.fields["name"]).lower())
    require(name is not None)
    column = ColumnValue(str(name), arrow_type(kind), tuple(path))
    return Typed(column, kind, nullable=bool(path) or bool(node.fields["nullable"]))


def _is_null_literal(node: Node) -> bool:
    return node.name == "Literal" and node.fields["value"] is None
