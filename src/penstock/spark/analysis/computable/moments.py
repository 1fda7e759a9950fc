"""Dates and timestamps."""

from __future__ import annotations

from penstock.plan.date_patterns import date_pattern
from penstock.spark.analysis.catalyst_trees import Node
from penstock.spark.analysis.computable.typed import Typed, call, constant_of, is_in_utc, require

_FIELDS_OF_TIMES = {"Hour": "hour", "Minute": "minute", "Second": "second"}
_FIELDS_OF_DATES = {"Year": "year", "Quarter": "quarter", "Month": "month", "DayOfMonth": "day"}
_UNITS = {
    "SECOND": "second", "MINUTE": "minute", "HOUR": "hour", "DAY": "day", "DD": "day", "MONTH": "month", "MON": "month", "MM": "month",
    "YEAR": "year", "YYYY": "year", "YY": "year",
}  # fmt: skip


def _field(node: Node, arguments: list[Typed]) -> Typed:
    (value,) = arguments
    if node.name in _FIELDS_OF_DATES:
        require(value.kind == "date")
        return call(_FIELDS_OF_DATES[node.name], arguments, "integer")
    require(is_in_utc(node, value))
    return call(_FIELDS_OF_TIMES[node.name], arguments, "integer")


def _to_date(node: Node, arguments: list[Typed]) -> Typed:
    """`to_date(x)`, whose JSON leaves out the cast that it is."""
    # with a pattern it parses a text
    require(len(arguments) == 1)
    (value,) = arguments
    if value.kind == "date":
        return value
    require(is_in_utc(node, value))
    return call("date", arguments, "date")


def _seconds(_: Node, arguments: list[Typed]) -> Typed:
    require(arguments[0].kind == "timestamp")
    return call("unix_seconds", arguments, "long")


def _truncated(node: Node, arguments: list[Typed]) -> Typed:
    unit, value = arguments
    require(is_in_utc(node, value))
    named = _UNITS.get(str(constant_of(unit)).upper())
    require(named is not None)
    # before the first moment of all there is none
    return call(f"truncate_{named}", [value], value.kind, raises=True)


def _formatted(node: Node, arguments: list[Typed]) -> Typed:
    value, pattern = arguments
    require(is_in_utc(node, value) and date_pattern(str(constant_of(pattern))) is not None)
    return call("date_format", arguments, "string")


#: by Catalyst's node
FORMS = {
    **dict.fromkeys((*_FIELDS_OF_TIMES, *_FIELDS_OF_DATES), _field),
    "ParseToDate": _to_date,
    "UnixSeconds": _seconds,
    "TruncTimestamp": _truncated,
    "DateFormatClass": _formatted,
}
