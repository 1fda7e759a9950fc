"""Random selection sets over integer attributes, and region codes of integer tuples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.kernels.asc import Codes
from penstock.operators.coding.regions import CodedSelections, code_selections
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.value_sets import Interval, ValueSet


def integer_attributes(n: int) -> tuple[Attribute, ...]:
    return tuple(Attribute(f"a{i}", pa.int64(), f"a{i}") for i in range(n))


def at_least(low: int) -> ValueSet:
    return ValueSet((Interval(low, None),))


def at_most(high: int) -> ValueSet:
    return ValueSet((Interval(None, high),))


def between(low: int, high: int) -> ValueSet:
    return ValueSet((Interval(low, high),))


def random_value_set(rng: np.random.Generator, domain: int) -> ValueSet:
    """One of: <=, >=, =, IN, <>, BETWEEN, IS NULL."""
    low, high = sorted(int(v) for v in rng.integers(0, domain, 2))
    values = sorted({int(v) for v in rng.integers(0, domain, rng.integers(1, 6))})
    choices = (
        at_most(high),
        at_least(low),
        between(low, low),
        ValueSet(tuple(Interval(v, v) for v in values)),
        ValueSet((Interval(None, low, True, False), Interval(low, None, False, True))),
        between(low, high),
        ValueSet((), null=True),
    )
    return choices[rng.integers(0, len(choices))]


def random_selections(
    rng: np.random.Generator, n: int, queries: int, domain: int = 20, terms: int = 2, predicates: int = 3
) -> CodedSelections:
    """Queries of 1 to `terms` terms of 1 to `predicates` predicates over n attributes."""

    def term() -> Term:
        used = rng.choice(n, size=min(n, int(rng.integers(1, predicates + 1))), replace=False)
        return Term(tuple((int(a), random_value_set(rng, domain)) for a in sorted(used)))

    made = tuple(
        Query(f"q{i}", tuple(term() for _ in range(rng.integers(1, terms + 1)))) for i in range(queries)
    )
    return code_selections(SelectionSet(integer_attributes(n), made))


def encode(coded: CodedSelections, tuples: np.ndarray) -> Codes:
    """Region codes, uint32[n, tuples], of integer tuples int64[n, tuples]."""
    codes = np.zeros(tuples.shape, np.uint32)
    for a, coding in enumerate(coded.codings):
        constants = np.asarray(coding.constants, np.int64)
        codes[a] = np.searchsorted(constants, tuples[a], "left") + np.searchsorted(
            constants, tuples[a], "right"
        )
    return codes


def random_codes(rng: np.random.Generator, coded: CodedSelections, tuples: int) -> Codes:
    """Region codes drawn evenly, NULL included."""
    return np.stack([rng.integers(0, c.codes, tuples) for c in coded.codings]).astype(np.uint32)
