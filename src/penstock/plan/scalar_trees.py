"""Expressions that a worker computes itself: trees of typed values, as Spark's analyser resolved them.

All casts that Spark adds are in the tree, so that no rule of coercion takes part where a tree is evaluated (`operators.scalars`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ColumnValue:
    """The value of a column, or of a field within it.

    Attributes:
        name: of the column.
        type: of the value, as `ExpressionHost.types` gives it.
        path: the places of the fields, the outermost first; (): the column itself.
    """

    name: str
    type: pa.DataType
    path: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Constant:
    """One value for all tuples.

    Attributes:
        value: as Python has it; None: NULL.
        type: of the value.
    """

    value: object
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Computation:
    """A function of other values.

    Attributes:
        function: name of one of `operators.scalars.functions.FUNCTIONS`, or a form of `operators.scalars.evaluation`.
        arguments: what it is given.
        type: of its value.
    """

    function: str
    arguments: tuple[Scalar, ...]
    type: pa.DataType


Scalar = ColumnValue | Constant | Computation


def columns_of(tree: Scalar) -> Iterator[str]:
    """The columns that a tree reads, as often as it does."""
    if isinstance(tree, ColumnValue):
        yield tree.name
    elif isinstance(tree, Computation):
        for each in tree.arguments:
            yield from columns_of(each)
