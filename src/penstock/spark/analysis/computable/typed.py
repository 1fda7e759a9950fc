"""Trees with what is known of them, and how those are made that workers may compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from penstock.plan.scalar_trees import Computation, Constant, Scalar
from penstock.spark.analysis.catalyst_trees import Node
from penstock.spark.analysis.catalyst_types import FLOATING, MOST_DIGITS, TIMES, WHOLE, digits

TYPES: Mapping[str, pa.DataType] = MappingProxyType(
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
UTC = ("UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "+00:00", "UCT", "Etc/UCT", "Zulu", "Universal")
#: dates until then are written by another calendar
_LAST_JULIAN_YEAR = 1582


class LeftToSparkError(Exception):
    """An expression is none that workers compute."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A tree, its type as Catalyst's JSON names it, whether it may raise and whether it may be NULL for all that is known."""

    tree: Scalar
    kind: str
    raises: bool = False
    nullable: bool = True


def call(function: str, arguments: list[Typed], kind: str | None, *, raises: bool = False) -> Typed:
    """A computation; one of constants alone is Spark's, which does it once.

    Args:
        function: its name.
        arguments: of it.
        kind: of its value.
        raises: whether it may raise by itself.
    """
    trees = tuple(each.tree for each in arguments)
    require(kind is not None and any(not isinstance(each, Constant) for each in trees))
    assert kind is not None, "it was required"
    raises = raises or any(each.raises for each in arguments)
    # what is NULL for all tuples Spark does not compute, so that it raises for none
    require(not raises or not any(isinstance(each, Constant) and each.value is None for each in trees))
    nullable = any(each.nullable for each in arguments)
    return Typed(Computation(function, trees, arrow_type(kind)), kind, raises, nullable)


def require(condition: bool) -> None:
    if not condition:
        raise LeftToSparkError


def common(arguments: list[Typed]) -> str | None:
    kinds = {each.kind for each in arguments}
    return kinds.pop() if len(kinds) == 1 else None


def scalar_kind(kind: object) -> str:
    require(isinstance(kind, str) and (kind in TYPES or kind.startswith("decimal")))
    return str(kind)


def arrow_type(kind: str) -> pa.DataType:
    if kind.startswith("decimal"):
        whole, fraction = digits(kind)
        require(whole + fraction <= MOST_DIGITS)
        return pa.decimal128(whole + fraction, fraction)
    return TYPES[kind]


def constant_of(value: Typed) -> object:
    """The value of a constant that is not NULL; what is none is left to Spark."""
    if not isinstance(value.tree, Constant) or value.tree.value is None:
        raise LeftToSparkError
    return value.tree.value


def literal(text: object, kind: str) -> object:
    if text is None:
        return None
    if kind in WHOLE:
        return int(str(text))
    if kind in FLOATING:
        number = float(str(text)) if kind == "double" else float(np.float32(str(text)))
        # as a part of two trees it would be taken for 0.0
        require(number != 0 or not np.signbit(number))
        return number
    if kind.startswith("decimal"):
        return Decimal(str(text))
    if kind == "boolean":
        return str(text) == "true"
    if kind == "date":
        try:
            found = date.fromisoformat(str(text))
        except ValueError:
            raise LeftToSparkError from None
        require(found.year > _LAST_JULIAN_YEAR)
        return found
    require(kind == "string")
    return str(text)


def is_in_utc(node: Node, value: Typed) -> bool:
    return value.kind in TIMES and str(node.fields.get("timeZoneId")) in UTC
