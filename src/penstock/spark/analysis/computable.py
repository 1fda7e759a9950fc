"""Resolved expressions as trees that workers compute to the same values as Spark: a whitelist of Catalyst's nodes.

What is not known here is left to Spark, which costs time and never a wrong result. Catalyst's JSON does not tell an operation that
raises from one that gives NULL (`try_cast`), so that casts are taken only where no value can make them raise. Functions of a time zone are taken where it is UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from types import MappingProxyType

import pyarrow as pa

from penstock.operators.scalars.texts import is_extractable
from penstock.plan.date_patterns import date_pattern
from penstock.plan.scalar_trees import ColumnValue, Computation, Constant, Scalar
from penstock.spark.analysis.catalyst_trees import MOST_DIGITS, Node, digits, exact_decimal

_TYPES: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "string": pa.string(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
)
_WIDTH = {name: rank for rank, name in enumerate(("byte", "short", "integer", "long", "float", "double"))}
_WHOLE = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_FLOATING = ("float", "double")
_TIMES = ("timestamp", "timestamp_ntz")
_UTC = ("UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "+00:00", "UCT", "Etc/UCT", "Zulu", "Universal")

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
_FIELDS_OF_TIMES = {"Hour": "hour", "Minute": "minute", "Second": "second"}
_FIELDS_OF_DATES = {"Year": "year", "Quarter": "quarter", "Month": "month", "DayOfMonth": "day"}
_TRIMS = {"StringTrim": "trim", "StringTrimLeft": "ltrim", "StringTrimRight": "rtrim"}
_SEARCHES = {"StartsWith": "starts_with", "EndsWith": "ends_with", "Contains": "contains"}
#: nodes that stand for the one expression they hold
_REPLACED = frozenset(("Alias", "Extract", "DatePart", "Nvl", "Nvl2", "Between", "NullIf"))
_ROUNDED = range(16)
_UNITS = {
    "SECOND": "second", "MINUTE": "minute", "HOUR": "hour", "DAY": "day", "DD": "day", "MONTH": "month", "MON": "month", "MM": "month",
    "YEAR": "year", "YYYY": "year", "YY": "year",
}  # fmt: skip


class _LeftToSparkError(Exception):
    """An expression is none that workers compute."""


@dataclass(frozen=True, slots=True)
class _Typed:
    """A tree, and its type as Catalyst's JSON names it."""

    tree: Scalar
    kind: str


def scalar_tree(expression: Node) -> Scalar | None:
    """The tree of a resolved expression; None where Spark has to compute it.

    Args:
        expression: as analysed under ANSI rules.
    """
    try:
        return _tree(expression, None).tree
    except _LeftToSparkError:
        return None


def _tree(node: Node, shared: _Typed | None) -> _Typed:
    """The tree of an expression.

    Args:
        node: the expression.
        shared: what it refers to as common, as `BETWEEN` does to its operand.
    """
    if node.name in _REPLACED:
        _require(len(node.children) == 1)
        return _tree(node.children[0], shared)
    if node.name == "With":
        # the JSON does not tell several common expressions apart
        _require(len(node.children) == 2 and shared is None)
        return _tree(node.children[0], _tree(node.children[1].children[0], None))
    if node.name == "CommonExpressionRef":
        _require(shared is not None)
        assert shared is not None, "it was required"
        return shared
    if node.name == "AttributeReference":
        kind = _scalar_kind(node.fields["dataType"])
        return _Typed(ColumnValue(str(node.fields["name"]), _arrow(kind)), kind)
    if node.name == "GetStructField":
        return _field_of_column(node)
    if node.name == "Literal":
        kind = _scalar_kind(node.fields["dataType"])
        return _Typed(Constant(_constant(node.fields["value"], kind), _arrow(kind)), kind)
    if node.name == "Cast" and _is_null_literal(node.children[0]):
        kind = _scalar_kind(node.fields["dataType"])
        return _Typed(Constant(None, _arrow(kind)), kind)
    arguments = [_tree(child, shared) for child in node.children]
    made = _FORMS.get(node.name)
    _require(made is not None)
    assert made is not None, "it was required"
    return made(node, arguments)


def _field_of_column(node: Node) -> _Typed:
    path: list[int] = []
    while node.name == "GetStructField":
        path.insert(0, int(node.fields["ordinal"]))
        (node,) = node.children
    _require(node.name == "AttributeReference")
    kind = node.fields["dataType"]
    for place in path:
        kind = kind["fields"][place]["type"]
    kind = _scalar_kind(kind)
    return _Typed(ColumnValue(str(node.fields["name"]), _arrow(kind), tuple(path)), kind)


def _is_null_literal(node: Node) -> bool:
    return node.name == "Literal" and node.fields["value"] is None


def _arithmetic(node: Node, arguments: list[_Typed]) -> _Typed:
    kind = _common(arguments)
    if kind is None and all(each.kind.startswith("decimal") for each in arguments):
        kind = exact_decimal(node.name, *(each.kind for each in arguments))
    elif kind is not None and kind.startswith("decimal"):
        kind = exact_decimal(node.name, kind, kind)
    _require(kind is not None and (kind in _WIDTH or kind.startswith("decimal")))
    return _call(_ARITHMETIC[node.name], arguments, kind)


def _division(node: Node, arguments: list[_Typed]) -> _Typed:
    kind = _common(arguments)
    if node.name == "Divide":
        _require(kind == "double")
        return _call("divide", arguments, kind)
    _require(kind in _WHOLE)
    if node.name == "IntegralDivide":
        _require(kind == "long")
        return _call("integral_divide", arguments, "long")
    return _call(_DIVISIONS[node.name], arguments, kind)


def _sign(node: Node, arguments: list[_Typed]) -> _Typed:
    (value,) = arguments
    _require(value.kind in _WIDTH or value.kind.startswith("decimal"))
    if node.name == "UnaryPositive":
        return value
    if node.name == "UnaryMinus" and isinstance(value.tree, Constant) and value.kind in _WIDTH:
        number = value.tree.value
        _require(isinstance(number, int | float) and (value.kind in _FLOATING or _fits(-number, value.kind)))
        assert isinstance(number, int | float), "it was required"
        return _Typed(Constant(-number, value.tree.type), value.kind)
    return _call("negate" if node.name == "UnaryMinus" else "absolute", arguments, value.kind)


def _bits(node: Node, arguments: list[_Typed]) -> _Typed:
    kind = _common(arguments)
    _require(kind in _WHOLE)
    return _call(_BITS[node.name], arguments, kind)


def _comparison(node: Node, arguments: list[_Typed]) -> _Typed:
    kind = _common(arguments)
    _require(kind is not None and (kind != "boolean" or node.name == "EqualTo"))
    return _call(_COMPARISONS[node.name], arguments, "boolean")


def _in(_: Node, arguments: list[_Typed]) -> _Typed:
    kind, members = _common(arguments), [each.tree for each in arguments[1:]]
    _require(kind is not None and kind not in (*_FLOATING, "boolean"))
    _require(all(isinstance(each, Constant) and each.value is not None for each in members))
    return _call("in", arguments, "boolean")


def _logic(node: Node, arguments: list[_Typed]) -> _Typed:
    _require(all(each.kind == "boolean" for each in arguments))
    return _call(node.name.lower(), arguments, "boolean")


def _is_null(node: Node, arguments: list[_Typed]) -> _Typed:
    return _call("is_null" if node.name == "IsNull" else "is_not_null", arguments, "boolean")


def _coalesce(_: Node, arguments: list[_Typed]) -> _Typed:
    return _call("coalesce", arguments, _common(arguments))


def _case(_: Node, arguments: list[_Typed]) -> _Typed:
    """`If` and `CaseWhen`: conditions and values in turn, then the value of the rest."""
    rest = arguments[-1] if len(arguments) % 2 else None
    conditions = arguments[0 : len(arguments) - 1 : 2]
    values = arguments[1::2]
    _require(all(each.kind == "boolean" for each in conditions))
    kind = _common([*values, *([] if rest is None else [rest])])
    _require(kind is not None)
    assert kind is not None, "it was required"
    found = Constant(None, _arrow(kind)) if rest is None else rest.tree
    for condition, value in zip(reversed(conditions), reversed(values), strict=True):
        found = Computation("if", (condition.tree, value.tree, found), _arrow(kind))
    return _Typed(found, kind)


def _null_if(_: Node, arguments: list[_Typed]) -> _Typed:
    condition, value = arguments
    null = _Typed(Constant(None, value.tree.type), value.kind)
    return _call("if", [condition, null, value], value.kind)


def _extreme(node: Node, arguments: list[_Typed]) -> _Typed:
    kind = _common(arguments)
    _require(kind is not None and kind not in (*_FLOATING, "boolean", "string"))
    return _call(node.name.lower(), arguments, kind)


def _rounded(_: Node, arguments: list[_Typed]) -> _Typed:
    value, scale = arguments
    _require(isinstance(scale.tree, Constant) and scale.tree.value in _ROUNDED)
    if value.kind in _WHOLE:
        return value
    _require(value.kind == "double")
    return _call("round", arguments, "double")


def _whole(node: Node, arguments: list[_Typed]) -> _Typed:
    _require(arguments[0].kind == "double" and len(arguments) == 1)
    return _call(node.name.lower(), arguments, "long")


def _cast(node: Node, arguments: list[_Typed]) -> _Typed:
    (value,), target = arguments, _scalar_kind(node.fields["dataType"])
    source, zone = value.kind, str(node.fields.get("timeZoneId"))
    if source == target:
        return value
    _require(_is_exact(value, target) or (source in _TIMES and target == "date"))
    if source == "timestamp":
        _require(zone in _UTC)
    if isinstance(value.tree, Constant) and value.tree.value is not None:
        return _Typed(Constant(_cast_constant(value.tree.value, target), _arrow(target)), target)
    return _call("date" if target == "date" else "cast", arguments, target)


def _is_exact(value: _Typed, target: str) -> bool:
    """Whether a cast raises for no value, and Arrow's gives what Spark's does."""
    source = value.kind
    if source in _WIDTH and target in _WIDTH:
        return _WIDTH[source] < _WIDTH[target]
    if source in _WHOLE and target == "string":
        return not isinstance(value.tree, Constant)
    if not target.startswith("decimal"):
        return False
    whole, fraction = digits(target)
    if source in _WHOLE:
        number = value.tree.value if isinstance(value.tree, Constant) else None
        return (len(str(number).lstrip("-")) if number is not None else _WHOLE[source]) <= whole
    if not source.startswith("decimal"):
        return False
    own_whole, own_fraction = digits(source)
    return own_whole <= whole and own_fraction <= fraction


def _cast_constant(value: object, target: str) -> object:
    if target.startswith("decimal"):
        return Decimal(str(value))
    if target == "float":
        return pa.scalar(value, pa.float64()).cast(pa.float32(), safe=False).as_py()
    return float(str(value)) if target in _FLOATING else value


def _field(node: Node, arguments: list[_Typed]) -> _Typed:
    (value,) = arguments
    if node.name in _FIELDS_OF_DATES:
        _require(value.kind == "date")
        return _call(_FIELDS_OF_DATES[node.name], arguments, "integer")
    _require(_is_in_utc(node, value))
    return _call(_FIELDS_OF_TIMES[node.name], arguments, "integer")


def _to_date(node: Node, arguments: list[_Typed]) -> _Typed:
    """`to_date(x)`, whose JSON leaves out the cast that it is."""
    (value,) = arguments
    if value.kind == "date":
        return value
    _require(_is_in_utc(node, value))
    return _call("date", arguments, "date")


def _seconds(_: Node, arguments: list[_Typed]) -> _Typed:
    """`unix_seconds`, and `unix_timestamp` of a timestamp, whose pattern nobody reads."""
    _require(arguments[0].kind == "timestamp")
    return _call("unix_seconds", arguments[:1], "long")


def _truncated(node: Node, arguments: list[_Typed]) -> _Typed:
    unit, value = arguments
    _require(_is_in_utc(node, value) and isinstance(unit.tree, Constant))
    assert isinstance(unit.tree, Constant), "it was required"
    named = _UNITS.get(str(unit.tree.value).upper())
    _require(named is not None)
    return _call(f"truncate_{named}", [value], value.kind)


def _formatted(node: Node, arguments: list[_Typed]) -> _Typed:
    value, pattern = arguments
    _require(_is_in_utc(node, value) and isinstance(pattern.tree, Constant))
    assert isinstance(pattern.tree, Constant), "it was required"
    _require(pattern.tree.value is not None and date_pattern(str(pattern.tree.value)) is not None)
    return _call("date_format", arguments, "string")


def _length(_: Node, arguments: list[_Typed]) -> _Typed:
    _require(arguments[0].kind == "string")
    return _call("length", arguments, "integer")


def _of_case(node: Node, arguments: list[_Typed]) -> _Typed:
    return _call(node.name.lower(), arguments, "string")


def _trimmed(node: Node, arguments: list[_Typed]) -> _Typed:
    _require(len(arguments) == 1 and arguments[0].kind == "string")
    return _call(_TRIMS[node.name], arguments, "string")


def _sliced(_: Node, arguments: list[_Typed]) -> _Typed:
    begin, length = (each.tree for each in arguments[1:])
    _require(arguments[0].kind == "string" and isinstance(begin, Constant) and isinstance(length, Constant))
    assert isinstance(begin, Constant), "it was required"
    assert isinstance(length, Constant), "it was required"
    _require(isinstance(begin.value, int) and begin.value >= 0 and isinstance(length.value, int))
    return _call("substring", arguments, "string")


def _replaced(_: Node, arguments: list[_Typed]) -> _Typed:
    _require(all(isinstance(each.tree, Constant) and each.tree.value is not None for each in arguments[1:]))
    _require(arguments[1].tree != Constant("", pa.string()))
    return _call("replace", arguments, "string")


def _concatenated(_: Node, arguments: list[_Typed]) -> _Typed:
    _require(bool(arguments) and all(each.kind == "string" for each in arguments))
    return _call("concat", arguments, "string")


def _searched(node: Node, arguments: list[_Typed]) -> _Typed:
    text, sought = arguments
    _require(text.kind == sought.kind == "string")
    _require(isinstance(sought.tree, Constant) and sought.tree.value is not None)
    return _call(_SEARCHES[node.name], arguments, "boolean")


def _part(_: Node, arguments: list[_Typed]) -> _Typed:
    delimiter, number = (each.tree for each in arguments[1:])
    _require(isinstance(delimiter, Constant) and delimiter.value not in (None, ""))
    _require(isinstance(number, Constant) and number.value not in (None, 0))
    return _call("split_part", arguments, "string")


def _extracted(_: Node, arguments: list[_Typed]) -> _Typed:
    pattern, group = (each.tree for each in arguments[1:])
    _require(isinstance(pattern, Constant) and isinstance(group, Constant))
    assert isinstance(pattern, Constant), "it was required"
    assert isinstance(group, Constant), "it was required"
    text, number = pattern.value, group.value
    _require(isinstance(text, str) and isinstance(number, int) and is_extractable(text, number))
    return _call("regexp_extract", arguments, "string")


_FORMS: Mapping[str, Callable[[Node, list[_Typed]], _Typed]] = MappingProxyType(
    {
        **dict.fromkeys(_ARITHMETIC, _arithmetic),
        **dict.fromkeys(("Divide", "IntegralDivide", *_DIVISIONS), _division),
        **dict.fromkeys(("UnaryMinus", "UnaryPositive", "Abs"), _sign),
        **dict.fromkeys(_BITS, _bits),
        **dict.fromkeys(_COMPARISONS, _comparison),
        "In": _in,
        **dict.fromkeys(("And", "Or", "Not"), _logic),
        **dict.fromkeys(("IsNull", "IsNotNull"), _is_null),
        "Coalesce": _coalesce,
        **dict.fromkeys(("If", "CaseWhen"), _case),
        "NullIfResult": _null_if,
        **dict.fromkeys(("Greatest", "Least"), _extreme),
        "Round": _rounded,
        **dict.fromkeys(("Floor", "Ceil"), _whole),
        "Cast": _cast,
        **dict.fromkeys((*_FIELDS_OF_TIMES, *_FIELDS_OF_DATES), _field),
        "ParseToDate": _to_date,
        **dict.fromkeys(("UnixSeconds", "UnixTimestamp"), _seconds),
        "TruncTimestamp": _truncated,
        "DateFormatClass": _formatted,
        "Length": _length,
        **dict.fromkeys(("Lower", "Upper"), _of_case),
        **dict.fromkeys(_TRIMS, _trimmed),
        "Substring": _sliced,
        "StringReplace": _replaced,
        "Concat": _concatenated,
        **dict.fromkeys(_SEARCHES, _searched),
        "SplitPart": _part,
        "RegExpExtract": _extracted,
    }
)


def _call(function: str, arguments: list[_Typed], kind: str | None) -> _Typed:
    """A computation; one of constants alone is Spark's, which does it once."""
    _require(kind is not None and any(not isinstance(each.tree, Constant) for each in arguments))
    assert kind is not None, "it was required"
    return _Typed(Computation(function, tuple(each.tree for each in arguments), _arrow(kind)), kind)


def _is_in_utc(node: Node, value: _Typed) -> bool:
    return value.kind in _TIMES and str(node.fields.get("timeZoneId")) in _UTC


def _common(arguments: list[_Typed]) -> str | None:
    kinds = {each.kind for each in arguments}
    return kinds.pop() if len(kinds) == 1 else None


def _scalar_kind(kind: object) -> str:
    _require(isinstance(kind, str) and (kind in _TYPES or kind.startswith("decimal")))
    return str(kind)


def _arrow(kind: str) -> pa.DataType:
    if kind.startswith("decimal"):
        whole, fraction = digits(kind)
        _require(whole + fraction <= MOST_DIGITS)
        return pa.decimal128(whole + fraction, fraction)
    return _TYPES[kind]


def _constant(text: object, kind: str) -> object:
    if text is None:
        return None
    if kind in _WHOLE:
        return int(str(text))
    if kind in _FLOATING:
        return float(str(text))
    if kind.startswith("decimal"):
        return Decimal(str(text))
    if kind == "boolean":
        return str(text) == "true"
    if kind == "date":
        try:
            return date.fromisoformat(str(text))
        except ValueError:
            raise _LeftToSparkError from None
    _require(kind == "string")
    return str(text)


def _fits(value: float, kind: str) -> bool:
    bits: int = _TYPES[kind].bit_width
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def _require(condition: bool) -> None:
    if not condition:
        raise _LeftToSparkError
