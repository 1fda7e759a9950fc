"""Numbers: arithmetic, comparisons, rounding and casts."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa

from penstock.plan.scalar_trees import Constant
from penstock.spark.analysis.catalyst_trees import Node
from penstock.spark.analysis.catalyst_types import FLOATING, TIMES, WHOLE, WIDTH, exact_decimal, is_among
from penstock.spark.analysis.computable.typed import (
    TYPES,
    UTC,
    Typed,
    arrow_type,
    call,
    common,
    constant_of,
    require,
    scalar_kind,
)
from penstock.spark.analysis.rearranged import raises_alike_in_any_order

_ARITHMETIC = {"Add": "add", "Subtract": "subtract", "Multiply": "multiply"}
_DIVISIONS = {"Remainder": "remainder", "Pmod": "pmod"}
_COMPARISONS = {
    "EqualTo": "equal",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
}
_BITS = {"BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor"}
#: digits of `round`: with more of them too many numbers are near a half
_ROUNDED = range(9)


def _arithmetic(node: Node, arguments: list[Typed]) -> Typed:
    kind = common(arguments)
    if all(each.kind.startswith("decimal") for each in arguments):
        kind = exact_decimal(node.name, *(each.kind for each in arguments))
    require(kind is not None and (kind in WIDTH or kind.startswith("decimal")))
    made = call(_ARITHMETIC[node.name], arguments, kind, raises=kind in WHOLE)
    require(kind not in WHOLE or raises_alike_in_any_order(made.tree))
    return made


def _division(node: Node, arguments: list[Typed]) -> Typed:
    kind, divisor = common(arguments), arguments[1].tree
    never = isinstance(divisor, Constant) and divisor.value not in (None, 0)
    if node.name == "Divide":
        require(kind == "double")
        return call("divide", arguments, kind, raises=not never)
    require(kind in WHOLE)
    if node.name == "IntegralDivide":
        require(kind == "long")
        never = never and divisor != Constant(-1, pa.int64())
        return call("integral_divide", arguments, "long", raises=not never)
    return call(_DIVISIONS[node.name], arguments, kind, raises=not never)


def _sign(node: Node, arguments: list[Typed]) -> Typed:
    (value,) = arguments
    require(value.kind in WIDTH or value.kind.startswith("decimal"))
    if node.name == "UnaryPositive":
        return value
    if node.name == "UnaryMinus" and isinstance(value.tree, Constant) and value.kind in WIDTH:
        number = constant_of(value)
        assert isinstance(number, int | float), "it is of a number's type"
        require(number != 0 if value.kind in FLOATING else _fits(-number, value.kind))
        return Typed(Constant(-number, value.tree.type), value.kind, nullable=False)
    function = "negate" if node.name == "UnaryMinus" else "absolute"
    return call(function, arguments, value.kind, raises=value.kind in WHOLE)


def _bits(node: Node, arguments: list[Typed]) -> Typed:
    kind = common(arguments)
    require(kind in WHOLE)
    return call(_BITS[node.name], arguments, kind)


def _comparison(node: Node, arguments: list[Typed]) -> Typed:
    kind = common(arguments)
    require(kind is not None and (kind != "boolean" or node.name == "EqualTo"))
    made = call(_COMPARISONS[node.name], arguments, "boolean")
    # of what cannot be NULL Spark may know the outcome, and does not compute it
    require(not made.raises or made.nullable)
    return made


def _in(_: Node, arguments: list[Typed]) -> Typed:
    kind = common(arguments)
    require(kind is not None and kind not in (*FLOATING, "boolean"))
    for member in arguments[1:]:
        constant_of(member)
    return call("in", arguments, "boolean")


def _extreme(node: Node, arguments: list[Typed]) -> Typed:
    kind = common(arguments)
    require(kind is not None and kind not in (*FLOATING, "boolean", "string"))
    require(not any(each.raises for each in arguments))
    made = call(node.name.lower(), arguments, kind)
    return replace(made, nullable=all(each.nullable for each in arguments))


def _rounded(_: Node, arguments: list[Typed]) -> Typed:
    value, scale = arguments
    require(constant_of(scale) in _ROUNDED)
    if value.kind in WHOLE:
        return value
    require(value.kind == "double")
    return call("round", arguments, "double")


def _next_whole(node: Node, arguments: list[Typed]) -> Typed:
    require(arguments[0].kind == "double" and len(arguments) == 1)
    return call(node.name.lower(), arguments, "long", raises=True)


def _cast(node: Node, arguments: list[Typed]) -> Typed:
    (value,), target = arguments, scalar_kind(node.fields["dataType"])
    source, zone = value.kind, str(node.fields.get("timeZoneId"))
    if source == target:
        return value
    require(_is_exact(value, target) or (source in TIMES and target == "date"))
    if source == "timestamp":
        require(zone in UTC)
    if isinstance(value.tree, Constant) and value.tree.value is not None:
        constant = Constant(_cast_constant(value.tree.value, target), arrow_type(target))
        return Typed(constant, target, nullable=False)
    return call("date" if target == "date" else "cast", arguments, target)


def _is_exact(value: Typed, target: str) -> bool:
    """Whether a cast raises for no value, and Arrow's gives what Spark's does."""
    source = value.kind
    if source in WIDTH and target in WIDTH:
        return WIDTH[source] < WIDTH[target]
    if source in WHOLE and target == "string":
        return not isinstance(value.tree, Constant)
    if source.startswith("decimal") and target == "double":
        return isinstance(value.tree, Constant)
    number = value.tree.value if isinstance(value.tree, Constant) else None
    return target.startswith("decimal") and is_among(source, target, number)


def _cast_constant(value: object, target: str) -> object:
    if target.startswith("decimal"):
        return Decimal(str(value))
    if target == "float":
        return float(np.asarray(value, np.int64).astype(np.float32))
    return float(str(value)) if target in FLOATING else value


def _fits(value: float, kind: str) -> bool:
    bits: int = TYPES[kind].bit_width
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


#: by Catalyst's node
FORMS = {
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(("Divide", "IntegralDivide", *_DIVISIONS), _division),
    **dict.fromkeys(("UnaryMinus", "UnaryPositive", "Abs"), _sign),
    **dict.fromkeys(_BITS, _bits),
    **dict.fromkeys(_COMPARISONS, _comparison),
    "In": _in,
    **dict.fromkeys(("Greatest", "Least"), _extreme),
    "Round": _rounded,
    **dict.fromkeys(("Floor", "Ceil"), _next_whole),
    "Cast": _cast,
}
