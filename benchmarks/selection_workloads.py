"""Selection workloads of stated shape and seed: queries over integer attributes, and tuples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.value_sets import Interval, ValueSet

ATTRIBUTES = 10
VALUES = 10_000
RANGE_WIDTH = VALUES // 20
PREDICATES = 3
ZIPF_EXPONENT = 1.1
ZIPF_VALUES = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Queries of three closed-range predicates each, and batches of tuples.

    Attributes:
        name: "uniform" or "skewed".
        attribute: int64[queries, 3], ascending attributes of each query.
        low, high: int64[queries, 3], closed bounds.
        batches: each int64[attributes, rows].
    """

    name: str
    attribute: npt.NDArray[np.int64]
    low: npt.NDArray[np.int64]
    high: npt.NDArray[np.int64]
    batches: list[npt.NDArray[np.int64]]

    def selections(self) -> SelectionSet:
        """The queries in normal form."""
        attributes = tuple(Attribute(f"a{i}", pa.int64(), f"`a{i}`") for i in range(ATTRIBUTES))
        queries = []
        rows = zip(self.attribute.tolist(), self.low.tolist(), self.high.tolist(), strict=True)
        for number, (used, lows, highs) in enumerate(rows):
            predicates = tuple(
                (attribute, ValueSet((Interval(low, high),)))
                for attribute, low, high in zip(used, lows, highs, strict=True)
            )
            queries.append(Query(f"q{number}", (Term(predicates),)))
        return SelectionSet(attributes, tuple(queries))

    def columns(self, batch: int) -> list[pa.Array]:
        """One batch as Arrow columns, sharing its memory."""
        return [pa.array(column) for column in self.batches[batch]]


def uniform_workload(queries: int, rows: int, batches: int, seed: int) -> Workload:
    """Attributes uniform in [0, 9999]; predicates on distinct attributes, each an equality with
    probability 1/3 and else a range of 5 % of the domain."""
    rng = np.random.default_rng(seed)
    attribute = np.sort(rng.permuted(np.tile(np.arange(ATTRIBUTES), (queries, 1)), axis=1)[:, :PREDICATES])
    equality = rng.random((queries, PREDICATES)) < 1 / 3
    low = np.where(
        equality,
        rng.integers(0, VALUES, (queries, PREDICATES)),
        rng.integers(0, VALUES - RANGE_WIDTH + 1, (queries, PREDICATES)),
    )
    high = np.where(equality, low, low + RANGE_WIDTH - 1)
    tuples = [rng.integers(0, VALUES, (ATTRIBUTES, rows)) for _ in range(batches)]
    return Workload("uniform", attribute, low, high, tuples)


def skewed_workload(queries: int, rows: int, batches: int, seed: int) -> Workload:
    """The uniform workload, but 90 % of the queries ask a0 = v, v drawn Zipf(1.1) from 1..1000, and
    for 5 % ranges of two other attributes; a0 of the tuples is drawn likewise."""
    rng = np.random.default_rng(seed)
    plain = uniform_workload(queries, rows, batches, seed + 1)
    weights = np.arange(1, ZIPF_VALUES + 1) ** -ZIPF_EXPONENT
    weights /= weights.sum()
    hot = rng.random(queries) < 0.9
    others = 1 + np.sort(
        rng.permuted(np.tile(np.arange(ATTRIBUTES - 1), (queries, 1)), axis=1)[:, : PREDICATES - 1]
    )
    attribute = np.where(
        hot[:, None], np.column_stack([np.zeros(queries, np.int64), others]), plain.attribute
    )
    asked = rng.choice(np.arange(1, ZIPF_VALUES + 1), queries, p=weights)
    ranges = rng.integers(0, VALUES - RANGE_WIDTH + 1, (queries, PREDICATES - 1))
    low = np.where(hot[:, None], np.column_stack([asked, ranges]), plain.low)
    high = np.where(hot[:, None], np.column_stack([asked, ranges + RANGE_WIDTH - 1]), plain.high)
    for batch in plain.batches:
        batch[0] = rng.choice(np.arange(1, ZIPF_VALUES + 1), rows, p=weights)
    return Workload("skewed", attribute, low, high, plain.batches)
