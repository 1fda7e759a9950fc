"""Resolved expressions as trees that workers compute to the same values as Spark: a whitelist of Catalyst's nodes.

What is not known here is left to Spark, which costs time and never a wrong result. Catalyst's JSON does not tell an operation that
raises from one that gives NULL (`try_cast`), so that casts are taken only where no value can make them raise. Functions of a time zone are taken where it is UTC.
Where Spark's optimiser may leave out something that raises, or reorders it (`rearranged`), the expression is left to Spark too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from penstock.operators.scalars.texts import is_extractable
from penstock.plan.date_patterns import date_pattern
from penstock.plan.scalar_trees import ColumnValue, Computation, Constant, Scalar
from penstock.spark.analysis.catalyst_trees import MOST_DEPTH, MOST_DIGITS, Node, digits, exact_decimal, names
from penstock.spark.analysis.rearranged import has_distinct_tests, is_of_functions, raises_alike_in_any_order

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
#: digits of `round`: with more of them too many numbers are near a half
_ROUNDED = range(9)
_UNITS = {
    "SECOND": "second", "MINUTE": "minute", "HOUR": "hour", "DAY": "day", "DD": "day", "MONTH": "month", "MON": "month", "MM": "month",
    "YEAR": "year", "YYYY": "year", "YY": "year",
}  # fmt: skip


_LAST_JULIAN_YEAR = 1582


class _LeftToSparkError(Exception):
    """An expression is none that workers compute."""


@dataclass(frozen=True, slots=True)
class _Typed:
    """A tree, its type as Catalyst's JSON names it, whether it may raise and whether it may be NULL for all that is known."""

    tree: Scalar
    kind: str
    raises: bool = False
    nullable: bool = True


def scalar_tree(expression: Node, columns: Iterable[str], others: Collection[str] = ()) -> Scalar | None:
    """The tree of a resolved expression; None where Spark has to compute it.

    Args:
        expression: as analysed under ANSI rules; it spells columns as its text does.
        columns: the stream's, by the names that batches have.
        others: nodes that the session's settings give another meaning.
    """
    named = {name.lower(): name for name in columns}
    try:
        _require(expression.depth <= MOST_DEPTH and not any(name in others for name in names(expression)))
        return _tree(expression, named, None).tree
    except _LeftToSparkError:
        return None


def _tree(node: Node, named: Mapping[str, str], shared: _Typed | None) -> _Typed:
    """The tree of an expression.

    Args:
        node: the expression.
        named: the columns' names by these in lower case.
        shared: what it refers to as common, as `BETWEEN` does to its operand.
    """
    if node.name in _REPLACED:
        _require(len(node.children) == 1)
        return _tree(node.children[0], named, shared)
    if node.name == "With":
        # the JSON does not tell several common expressions apart
        _require(len(node.children) == 2 and shared is None)
        common = _tree(node.children[1].children[0], named, None)
        # Spark computes it beforehand, whoever needs it
        _require(not common.raises)
        return _tree(node.children[0], named, common)
    if node.name == "CommonExpressionRef":
        _require(shared is not None)
        assert shared is not None, "it was required"
        return shared
    if node.name in ("AttributeReference", "GetStructField"):
        return _column(node, named)
    if node.name == "Literal":
        kind = _scalar_kind(node.fields["dataType"])
        value = _constant(node.fields["value"], kind)
        return _Typed(Constant(value, _arrow(kind)), kind, nullable=value is None)
    if node.name == "Cast" and _is_null_literal(node.children[0]):
        kind = _scalar_kind(node.fields["dataType"])
        return _Typed(Constant(None, _arrow(kind)), kind)
    arguments = [_tree(child, named, shared) for child in node.children]
    made = _FORMS.get(node.name)
    _require(made is not None)
    assert made is not None, "it was required"
    return made(node, arguments)


def _column(node: Node, named: Mapping[str, str]) -> _Typed:
    """A column, or a field within it."""
    path: list[int] = []
    while node.name == "GetStructField":
        path.insert(0, int(node.fields["ordinal"]))
        (node,) = node.children
    _require(node.name == "AttributeReference")
    kind = node.fields["dataType"]
    for place in path:
        kind = kind["fields"][place]["type"]
    kind, name = _scalar_kind(kind), named.get(str(node.fields["name"]).lower())
    _require(name is not None)
    column = ColumnValue(str(name), _arrow(kind), tuple(path))
    return _Typed(column, kind, nullable=bool(path) or bool(node.fields["nullable"]))


def _is_null_literal(node: Node) -> bool:
    return node.name == "Literal" and node.fields["value"] is None


def _arithmetic(node: Node, arguments: list[_Typed]) -> _Typed:
    kind = _common(arguments)
    if kind is None and all(each.kind.startswith("decimal") for each in arguments):
        kind = exact_decimal(node.name, *(each.kind for each in arguments))
    elif kind is not None and kind.startswith("decimal"):
        kind = exact_decimal(node.name, kind, kind)
    _require(kind is not None and (kind in _WIDTH or kind.startswith("decimal")))
    made = _call(_ARITHMETIC[node.name], arguments, kind, raises=kind in _WHOLE)
    _require(kind not in _WHOLE or raises_alike_in_any_order(made.tree))
    return made


def _division(node: Node, arguments: list[_Typed]) -> _Typed:
    kind, divisor = _common(arguments), arguments[1].tree
    never = isinstance(divisor, Constant) and divisor.value not in (None, 0)
    if node.name == "Divide":
        _require(kind == "double")
        return _call("divide", arguments, kind, raises=not never)
    _require(kind in _WHOLE)
    if node.name == "IntegralDivide":
        _require(kind == "long")
        never = never and divisor != Constant(-1, pa.int64())
        return _call("integral_divide", arguments, "long", raises=not never)
    return _call(_DIVISIONS[node.name], arguments, kind, raises=not never)


def _sign(node: Node, arguments: list[_Typed]) -> _Typed:
    (value,) = arguments
    _require(value.kind in _WIDTH or value.kind.startswith("decimal"))
    if node.name == "UnaryPositive":
        return value
    if node.name == "UnaryMinus" and isinstance(value.tree, Constant) and value.kind in _WIDTH:
        number = value.tree.value
        _require(isinstance(number, int | float))
        assert isinstance(number, int | float), "it was required"
        _require(number != 0 if value.kind in _FLOATING else _fits(-number, value.kind))
        return _Typed(Constant(-number, value.tree.type), value.kind, nullable=False)
    function = "negate" if node.name == "UnaryMinus" else "absolute"
    return _call(function, arguments, value.kind, raises=value.kind in _WHOLE)


def _bits(node: Node, arguments: list[_Typed]) -> _Typed:
    kind = _common(arguments)
    _require(kind in _WHOLE)
    return _call(_BITS[node.name], arguments, kind)


def _comparison(node: Node, arguments: list[_Typed]) -> _Typed:
    kind = _common(arguments)
    _require(kind is not None and (kind != "boolean" or node.name == "EqualTo"))
    made = _call(_COMPARISONS[node.name], arguments, "boolean")
    # of what cannot be NULL Spark may know the outcome, and does not compute it
    _require(not made.raises or made.nullable)
    return made


def _in(_: Node, arguments: list[_Typed]) -> _Typed:
    kind, members = _common(arguments), [each.tree for each in arguments[1:]]
    _require(kind is not None and kind not in (*_FLOATING, "boolean"))
    _require(all(isinstance(each, Constant) and each.value is not None for each in members))
    return _call("in", arguments, "boolean")


def _logic(node: Node, arguments: list[_Typed]) -> _Typed:
    _require(all(each.kind == "boolean" for each in arguments))
    made = _call(node.name.lower(), arguments, "boolean")
    _require(not made.raises or has_distinct_tests(made.tree))
    return made


def _is_null(node: Node, arguments: list[_Typed]) -> _Typed:
    (value,) = arguments
    _require(not value.raises or (value.nullable and is_of_functions(value.tree)))
    made = _call("is_null" if node.name == "IsNull" else "is_not_null", arguments, "boolean")
    return replace(made, nullable=False)


def _coalesce(_: Node, arguments: list[_Typed]) -> _Typed:
    made = _call("coalesce", arguments, _common(arguments))
    return replace(made, nullable=all(each.nullable for each in arguments))


def _case(_: Node, arguments: list[_Typed]) -> _Typed:
    """`If` and `CaseWhen`: conditions and values in turn, then the value of the rest."""
    conditions = arguments[0 : len(arguments) - 1 : 2]
    values = arguments[1::2] + arguments[2 * len(conditions) :]
    kind = _common(values)
    _require(kind is not None and all(each.kind == "boolean" and not each.raises for each in conditions))
    assert kind is not None, "it was required"
    has_rest = len(values) > len(conditions)
    rest = [] if has_rest else [Constant(None, _arrow(kind))]
    tree = Computation("case", (*(each.tree for each in arguments), *rest), _arrow(kind))
    nullable = not has_rest or any(each.nullable for each in values)
    return _Typed(tree, kind, any(each.raises for each in values), nullable)


def _null_if(node: Node, arguments: list[_Typed]) -> _Typed:
    condition, value = arguments
    null = _Typed(Constant(None, value.tree.type), value.kind)
    return _case(node, [condition, null, value])


def _extreme(node: Node, arguments: list[_Typed]) -> _Typed:
    kind = _common(arguments)
    _require(kind is not None and kind not in (*_FLOATING, "boolean", "string"))
    _require(not any(each.raises for each in arguments))
    made = _call(node.name.lower(), arguments, kind)
    return replace(made, nullable=all(each.nullable for each in arguments))


def _rounded(_: Node, arguments: list[_Typed]) -> _Typed:
    value, scale = arguments
    _require(isinstance(scale.tree, Constant) and scale.tree.value in _ROUNDED)
    if value.kind in _WHOLE:
        return value
    _require(value.kind == "double")
    return _call("round", arguments, "double")


def _whole(node: Node, arguments: list[_Typed]) -> _Typed:
    _require(arguments[0].kind == "double" and len(arguments) == 1)
    return _call(node.name.lower(), arguments, "long", raises=True)


def _cast(node: Node, arguments: list[_Typed]) -> _Typed:
    (value,), target = arguments, _scalar_kind(node.fields["dataType"])
    source, zone = value.kind, str(node.fields.get("timeZoneId"))
    if source == target:
        return value
    _require(_is_exact(value, target) or (source in _TIMES and target == "date"))
    if source == "timestamp":
        _require(zone in _UTC)
    if isinstance(value.tree, Constant) and value.tree.value is not None:
        constant = Constant(_cast_constant(value.tree.value, target), _arrow(target))
        return _Typed(constant, target, nullable=False)
    return _call("date" if target == "date" else "cast", arguments, target)


def _is_exact(value: _Typed, target: str) -> bool:
    """Whether a cast raises for no value, and Arrow's gives what Spark's does."""
    source = value.kind
    if source in _WIDTH and target in _WIDTH:
        return _WIDTH[source] < _WIDTH[target]
    if source in _WHOLE and target == "string":
        return not isinstance(value.tree, Constant)
    if source.startswith("decimal") and target == "double":
        return isinstance(value.tree, Constant)
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
        return float(np.asarray(value, np.int64).astype(np.float32))
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
    # with a pattern it parses a text
    _require(len(arguments) == 1)
    (value,) = arguments
    if value.kind == "date":
        return value
    _require(_is_in_utc(node, value))
    return _call("date", arguments, "date")


def _seconds(_: Node, arguments: list[_Typed]) -> _Typed:
    _require(arguments[0].kind == "timestamp")
    return _call("unix_seconds", arguments, "long")


def _truncated(node: Node, arguments: list[_Typed]) -> _Typed:
    unit, value = arguments
    _require(_is_in_utc(node, value) and isinstance(unit.tree, Constant))
    assert isinstance(unit.tree, Constant), "it was required"
    named = _UNITS.get(str(unit.tree.value).upper())
    _require(named is not None)
    # before the first moment of all there is none
    return _call(f"truncate_{named}", [value], value.kind, raises=True)


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
        "UnixSeconds": _seconds,
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


def _call(function: str, arguments: list[_Typed], kind: str | None, *, raises: bool = False) -> _Typed:
    """A computation; one of constants alone is Spark's, which does it once.

    Args:
        function: its name.
        arguments: of it.
        kind: of its value.
        raises: whether it may raise by itself.
    """
    trees = tuple(each.tree for each in arguments)
    _require(kind is not None and any(not isinstance(each, Constant) for each in trees))
    assert kind is not None, "it was required"
    raises = raises or any(each.raises for each in arguments)
    # what is NULL for all tuples Spark does not compute, so that it raises for none
    _require(not raises or not any(isinstance(each, Constant) and each.value is None for each in trees))
    nullable = any(each.nullable for each in arguments)
    return _Typed(Computation(function, trees, _arrow(kind)), kind, raises, nullable)


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
        number = float(str(text)) if kind == "double" else float(np.float32(str(text)))
        # as a part of two trees it would be taken for 0.0
        _require(number != 0 or not np.signbit(number))
        return number
    if kind.startswith("decimal"):
        return Decimal(str(text))
    if kind == "boolean":
        return str(text) == "true"
    if kind == "date":
        try:
            found = date.fromisoformat(str(text))
        except ValueError:
            raise _LeftToSparkError from None
        # older ones are told by another calendar
        _require(found.year > _LAST_JULIAN_YEAR)
        return found
    _require(kind == "string")
    return str(text)


def _fits(value: float, kind: str) -> bool:
    bits: int = _TYPES[kind].bit_width
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def _require(condition: bool) -> None:
    if not condition:
        raise _LeftToSparkError
