"""Which resolved expressions cannot raise, whatever the row: a whitelist of Catalyst's nodes.

Under ANSI rules most of Spark's arithmetic, casts and element accesses raise for some value. An
expression passes only if every node of it is known not to; anything unknown counts as raising,
which costs time and never a wrong result.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.spark.analysis.catalyst_trees import MOST_DEPTH, Node, projection
from penstock.spark.analysis.catalyst_types import FLOATING, TIMES, WIDTH, exact_decimal, is_among


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

#: those of them that decimals have enough digits for, as far as `exact_decimal` knows the type
_EXACT = frozenset(("Add", "Subtract", "Multiply"))
_DIVISIONS = frozenset(("Divide", "IntegralDivide", "Remainder", "Pmod"))


def raising(plan_json: str, expressions: Sequence[str]) -> list[bool]:
    """Whether each expression of a resolved projection may raise.

    Args:
        plan_json: Catalyst's JSON of the projection's analysed plan.
        expressions: the texts it was made from, in order.
    """
    return [
        node.depth > MOST_DEPTH or not _safe(node, text)
        for node, text in zip(projection(plan_json), expressions, strict=True)
    ]


def _safe(node: Node, text: str) -> bool:
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
    if node.name in _DIVISIONS:
        return _divides_by_a_number(node)
    kind = _type(node)
    if kind is not None and kind.startswith("decimal"):
        return node.name in _EXACT
    return node.name in _FLOATING_ARITHMETIC and kind in FLOATING


def _divides_by_a_number(node: Node) -> bool:
    """Whether a division is by a constant that makes no value raise."""
    divisor = node.children[1]
    while divisor.name == "Cast":
        (divisor,) = divisor.children
    value = divisor.fields.get("value") if divisor.name == "Literal" else None
    if value is None or _type(node.children[1]) not in WIDTH or _type(divisor) == "boolean":
        return False
    # -1 is what the smallest whole number cannot be divided by; with a remainder it can
    return float(value) not in ((0.0, -1.0) if node.name == "IntegralDivide" else (0.0,))


def _type(node: Node) -> str | None:
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
    if node.name == "Divide" and {_type(child) for child in node.children} == {"double"}:
        return "double"
    if node.name in _FLOATING_ARITHMETIC:
        kinds = [_type(child) for child in node.children]
        if node.name in _EXACT and all(kind and kind.startswith("decimal") for kind in kinds):
            return exact_decimal(node.name, *map(str, kinds))
        return kinds[0] if len(set(kinds)) == 1 else None
    return None


def _safe_cast(value: Node, target: str) -> bool:
    source = _type(value)
    if source is None:
        return False
    if source == target or target == "string":
        return True
    if source in WIDTH and target in WIDTH:
        return WIDTH[source] <= WIDTH[target]
    if source == "boolean":
        return target in WIDTH
    if source in TIMES:
        return target == "date"
    if source.startswith("decimal") and target == "double":
        return True
    number = value.fields["value"] if value.name == "Literal" else None
    return target.startswith("decimal") and is_among(source, target, number)
