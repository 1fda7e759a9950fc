"""Conditions, and choices by them."""

from __future__ import annotations

from dataclasses import replace

from penstock.plan.scalar_trees import Computation, Constant
from penstock.spark.analysis.catalyst_trees import Node
from penstock.spark.analysis.computable.typed import Typed, arrow_type, call, common, require
from penstock.spark.analysis.rearranged import has_distinct_tests, is_of_functions


def _logic(node: Node, arguments: list[Typed]) -> Typed:
    require(all(each.kind == "boolean" for each in arguments))
    made = call(node.name.lower(), arguments, "boolean")
    require(not made.raises or has_distinct_tests(made.tree))
    return made


def _is_null(node: Node, arguments: list[Typed]) -> Typed:
    (value,) = arguments
    require(not value.raises or (value.nullable and is_of_functions(value.tree)))
    made = call("is_null" if node.name == "IsNull" else "is_not_null", arguments, "boolean")
    return replace(made, nullable=False)


def _coalesce(_: Node, arguments: list[Typed]) -> Typed:
    made = call("coalesce", arguments, common(arguments))
    return replace(made, nullable=all(each.nullable for each in arguments))


def _case(_: Node, arguments: list[Typed]) -> Typed:
    """`If` and `CaseWhen`: conditions and values in turn, then the value of the rest."""
    conditions = arguments[0 : len(arguments) - 1 : 2]
    values = arguments[1::2] + arguments[2 * len(conditions) :]
    kind = common(values)
    require(kind is not None and all(each.kind == "boolean" and not each.raises for each in conditions))
    assert kind is not None, "it was required"
    has_rest = len(values) > len(conditions)
    rest = [] if has_rest else [Constant(None, arrow_type(kind))]
    tree = Computation("case", (*(each.tree for each in arguments), *rest), arrow_type(kind))
    nullable = not has_rest or any(each.nullable for each in values)
    return Typed(tree, kind, any(each.raises for each in values), nullable)


def _null_if(node: Node, arguments: list[Typed]) -> Typed:
    condition, value = arguments
    null = Typed(Constant(None, value.tree.type), value.kind)
    return _case(node, [condition, null, value])


#: by Catalyst's node
FORMS = {
    **dict.fromkeys(("And", "Or", "Not"), _logic),
    **dict.fromkeys(("IsNull", "IsNotNull"), _is_null),
    "Coalesce": _coalesce,
    **dict.fromkeys(("If", "CaseWhen"), _case),
    "NullIfResult": _null_if,
}
