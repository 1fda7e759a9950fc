"""Which resolved expressions cannot raise, whatever the row: a whitelist of Catalyst's nodes.

Under ANSI rules most of Spark's arithmetic, casts and element accesses raise for some value. An
expression passes only if every node of it is known not to; anything unknown counts as raising,
which costs time and never a wrong result.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_CATALYST = "org.apache.spark.sql.catalyst.expressions."


def _nodes(names: str) -> frozenset[str]:
    return frozenset(names.split())


#: nodes whose result is boolean
_PREDICATES = _nodes(
    "EqualTo EqualNullSafe LessThan LessThanOrEqual GreaterThan GreaterThanOrEqual In InSet And"
    " Or Not IsNull IsNotNull IsNaN StartsWith EndsWith Contains ArrayContains"
)
#: nodes whose result is a 32-bit integer
_NUMBERS = _nodes(
    "Length OctetLength BitLength StringInstr StringLocate Ascii FindInSet Size Year Month"
    " DayOfMonth DayOfWeek WeekDay WeekOfYear DayOfYear Quarter Hour Minute Second"
)
#: nodes whose result is a string
_STRINGS = _nodes(
    "Lower Upper Substring StringTrim StringTrimLeft StringTrimRight StringReplace InitCap"
    " SoundEx SubstringIndex StringTranslate"
)
#: nodes that hand on one of their children, or wrap the expression they stand for
_TRANSPARENT = _nodes(
    "Alias Coalesce If CaseWhen NaNvl Greatest Least GetStructField Nvl Nvl2 NullIf Between Left"
    " Right Collate"
    " With CommonExpressionDef CommonExpressionRef"
)
_NEVER_RAISE = _PREDICATES | _NUMBERS | _STRINGS | _TRANSPARENT | {"AttributeReference", "Literal"}

#: arithmetic that raises on integers and decimals and never on floating-point numbers
_FLOATING_ARITHMETIC = frozenset(("Add", "Subtract", "Multiply", "UnaryMinus", "UnaryPositive", "Abs"))

_INTEGER_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_WIDTH = {name: rank for rank, name in enumerate(("byte", "short", "integer", "long", "float", "double"))}


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    fields: dict[str, Any]
    children: tuple[_Node, ...]


def raising(plan_json: str, expressions: Sequence[str]) -> list[bool]:
    """Whether each expression of a resolved projection may raise.

    Args:
        plan_json: Catalyst's JSON of the projection's analysed plan.
        expressions: the texts it was made from, in order.
    """
    projection = json.loads(plan_json)[0]["projectList"]
    return [not _safe(_tree(nodes), text) for nodes, text in zip(projection, expressions, strict=True)]


def _tree(nodes: list[dict[str, Any]]) -> _Node:
    """The tree that Catalyst's JSON lists in preorder."""
    remaining = iter(nodes)

    def build() -> _Node:
        fields = next(remaining)
        children = tuple(build() for _ in range(fields["num-children"]))
        return _Node(str(fields["class"]).removeprefix(_CATALYST), fields, children)

    return build()


def _safe(node: _Node, text: str) -> bool:
    if not all(_safe(child, text) for child in node.children):
        return False
    if node.name in _NEVER_RAISE:
        return True
    if node.name == "Cast":
        return _safe_cast(node.children[0], str(node.fields["dataType"]))
    if node.name == "Like":
        # the escape character is not in the JSON; a pattern that ends with it raises
        pattern = node.children[1]
        return (
            pattern.name == "Literal"
            and "\\" not in str(pattern.fields["value"])
            and "escape" not in text.lower()
        )
    return node.name in _FLOATING_ARITHMETIC and _type(node) in ("float", "double")


def _type(node: _Node) -> str | None:
    """The type of a node's value as Catalyst's JSON names it, None where it is not evident."""
    if node.name in ("AttributeReference", "CommonExpressionRef", "Literal", "Cast"):
        kind = node.fields["dataType"]
        return kind if isinstance(kind, str) else None
    if node.name in _PREDICATES or node.name == "Like":
        return "boolean"
    if node.name in _NUMBERS:
        return "integer"
    if node.name in _STRINGS:
        return "string"
    if node.name in _FLOATING_ARITHMETIC:
        kinds = {_type(child) for child in node.children}
        return kinds.pop() if len(kinds) == 1 else None
    return None


def _safe_cast(value: _Node, target: str) -> bool:
    source = _type(value)
    if source is None:
        return False
    if source == target or target == "string":
        return True
    if source in _WIDTH and target in _WIDTH:
        return _WIDTH[source] <= _WIDTH[target]
    if source == "boolean":
        return target in _WIDTH
    if source in ("timestamp", "timestamp_ntz"):
        return target == "date"
    if source.startswith("decimal") and target == "double":
        return True
    if not target.startswith("decimal"):
        return False
    if source in _INTEGER_DIGITS:
        literal = str(value.fields["value"]).lstrip("-") if value.name == "Literal" else None
        whole, fraction = len(literal) if literal else _INTEGER_DIGITS[source], 0
    elif source.startswith("decimal"):
        whole, fraction = _digits(source)
    else:
        return False
    target_whole, target_fraction = _digits(target)
    return whole <= target_whole and fraction <= target_fraction


def _digits(kind: str) -> tuple[int, int]:
    """Digits before and after the point of `decimal(p,s)`."""
    precision, scale = (int(part) for part in kind.removeprefix("decimal(").removesuffix(")").split(","))
    return precision - scale, scale
