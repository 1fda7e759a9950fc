"""Selections in normal form: every query a disjunction of terms over ordered attribute domains.

A tuple satisfies a term when, for each predicate of the term, the attribute's value lies in the
predicate's value set. Three-valued logic has been resolved before: a value set holds exactly the
values for which the predicate is TRUE.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from penstock.plan.trees import Tree, tested, tests
from penstock.plan.value_sets import ValueSet


class Domain(StrEnum):
    """How a column's values are ordered and compared."""

    #: booleans (0/1), integers, dates (days), timestamps (microseconds), decimals (unscaled value at
    #: the column's own scale): python int keys. Decimals of more than 18 digits exceed int64.
    INTEGER = "integer"
    #: float and double; NaN is equal to itself and larger than any other value, -0.0 equals 0.0
    FLOAT = "float"
    #: strings (UTF-8 bytes) and binary, ordered bytewise
    BINARY = "binary"


@dataclass(frozen=True, slots=True)
class Attribute:
    """A p-attribute: a column of the batches handed to the selection operator.

    Attributes:
        name: the column's name in those batches.
        type: its Arrow type.
        expression: the Spark SQL text that computes it; equals the quoted name for a bare column.
    """

    name: str
    type: pa.DataType
    expression: str

    @property
    def domain(self) -> Domain:
        """The ordered domain of the attribute's values."""
        kind = self.type
        if pa.types.is_floating(kind):
            return Domain.FLOAT
        if (
            pa.types.is_string(kind)
            or pa.types.is_large_string(kind)
            or pa.types.is_binary(kind)
            or pa.types.is_large_binary(kind)
        ):
            return Domain.BINARY
        return Domain.INTEGER


@dataclass(frozen=True, slots=True)
class Term:
    """A conjunction: (index of the attribute, ascending; value set) pairs. Empty: always true."""

    predicates: tuple[tuple[int, ValueSet], ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A standing query: satisfied by a tuple when any of its terms is. No terms: never.

    Attributes:
        name: its name.
        terms: its terms; none where it is a tree.
        tree: what it is where it tests text or has too many terms.
    """

    name: str
    terms: tuple[Term, ...]
    tree: Tree | None = None


@dataclass(frozen=True, slots=True)
class SelectionSet:
    """All standing selections on one stream and the attributes they use."""

    attributes: tuple[Attribute, ...]
    queries: tuple[Query, ...]


def attributes_of(query: Query) -> set[int]:
    """The indices of the attributes that a query tests."""
    if query.tree is not None:
        return {each for test in tests(query.tree) for each in tested(test)}
    return {attribute for term in query.terms for attribute, _ in term.predicates}
