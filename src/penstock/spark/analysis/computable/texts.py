"""Texts."""

from __future__ import annotations

from penstock.operators.scalars.texts import is_extractable
from penstock.spark.analysis.catalyst_trees import Node
from penstock.spark.analysis.computable.typed import Typed, call, constant_of, require

_TRIMS = {"StringTrim": "trim", "StringTrimLeft": "ltrim", "StringTrimRight": "rtrim"}
_SEARCHES = {"StartsWith": "starts_with", "EndsWith": "ends_with", "Contains": "contains"}


def _length(_: Node, arguments: list[Typed]) -> Typed:
    require(arguments[0].kind == "string")
    return call("length", arguments, "integer")


def _in_letters(node: Node, arguments: list[Typed]) -> Typed:
    return call(node.name.lower(), arguments, "string")


def _trimmed(node: Node, arguments: list[Typed]) -> Typed:
    require(len(arguments) == 1 and arguments[0].kind == "string")
    return call(_TRIMS[node.name], arguments, "string")


def _sliced(_: Node, arguments: list[Typed]) -> Typed:
    begin, length = map(constant_of, arguments[1:])
    require(
        arguments[0].kind == "string" and isinstance(begin, int) and begin >= 0 and isinstance(length, int)
    )
    return call("substring", arguments, "string")


def _replaced(_: Node, arguments: list[Typed]) -> Typed:
    sought, _replacement = map(constant_of, arguments[1:])
    require(sought != "")
    return call("replace", arguments, "string")


def _concatenated(_: Node, arguments: list[Typed]) -> Typed:
    require(bool(arguments) and all(each.kind == "string" for each in arguments))
    return call("concat", arguments, "string")


def _searched(node: Node, arguments: list[Typed]) -> Typed:
    text, sought = arguments
    require(text.kind == sought.kind == "string" and constant_of(sought) is not None)
    return call(_SEARCHES[node.name], arguments, "boolean")


def _part(_: Node, arguments: list[Typed]) -> Typed:
    delimiter, number = map(constant_of, arguments[1:])
    require(delimiter != "" and number != 0)
    return call("split_part", arguments, "string")


def _extracted(_: Node, arguments: list[Typed]) -> Typed:
    pattern, group = map(constant_of, arguments[1:])
    require(isinstance(pattern, str) and isinstance(group, int) and is_extractable(pattern, group))
    return call("regexp_extract", arguments, "string")


#: by Catalyst's node
FORMS = {
    "Length": _length,
    **dict.fromkeys(("Lower", "Upper"), _in_letters),
    **dict.fromkeys(_TRIMS, _trimmed),
    "Substring": _sliced,
    "StringReplace": _replaced,
    "Concat": _concatenated,
    **dict.fromkeys(_SEARCHES, _searched),
    "SplitPart": _part,
    "RegExpExtract": _extracted,
}
