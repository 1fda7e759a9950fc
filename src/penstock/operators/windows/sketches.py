"""Sketches of a group's values: approximate distinct counts and quantiles that merge in any order.

Source: Apache DataSketches: HyperLogLog (HLL_8) and the KLL quantile sketch (Karnin, Lang, Liberty 2016).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from math import ceil, log2

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from datasketches import hll_sketch, hll_union, kll_doubles_sketch, tgt_hll_type

from penstock.operators.hashing import canonical, value_hashes
from penstock.plan.windows import Aggregate

#: functions computed from sketches -> kind of their sketch
SKETCHED = {"approx_count_distinct": "distinct", "approx_percentile": "quantiles"}

_HLL = tgt_hll_type.HLL_8
#: what the library allows
_LEAST_LG_K, _MOST_LG_K = 7, 21
_LEAST_K, _MOST_K = 8, 65_535
#: size of the quantile sketches in which answers are compared: rank error 0.0024
_JUDGED_K = 2_048
#: fit of the library's rank error: 2.296 / k ** 0.9021
_RANK_ERROR, _RANK_POWER = 2.296, 0.9021
#: the largest double below 2 ** 63
_LARGEST_LONG = 2.0**63 - 1024

Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sketch:
    """A sketch of an argument.

    Attributes:
        kind: "distinct" or "quantiles".
        argument: the column it is made of.
        size: the library's lg_k, or k.
    """

    kind: str
    argument: str
    size: int

    @classmethod
    def of(cls, aggregate: Aggregate) -> Sketch:
        """The sketch an aggregate of `SKETCHED` is computed from, as small as its `accuracy` permits.

        For distinct counts that is the relative standard deviation, 1.04 / sqrt(2 ** lg_k); for percentiles the
        inverse of the rank error. Out of reach are deviations below 0.0007 and rank errors below 0.0001.
        """
        assert aggregate.argument is not None, "a sketch is of values"
        assert aggregate.accuracy is not None, "the parser sets it"
        kind = SKETCHED[aggregate.function]
        if kind == "distinct":
            size = ceil(2 * log2(1.04 / aggregate.accuracy))
            return cls(kind, aggregate.argument, min(max(size, _LEAST_LG_K), _MOST_LG_K))
        size = ceil((_RANK_ERROR * aggregate.accuracy) ** (1 / _RANK_POWER))
        return cls(kind, aggregate.argument, min(max(size, _LEAST_K), _MOST_K))

    @property
    def column(self) -> str:
        """Name of the column of serialized sketches; NULL where a group has no value."""
        return f"{self.kind}{self.size}:{self.argument}"

    def lift(self, values: pa.ChunkedArray, codes: Codes, groups: int) -> pa.Array:
        """A sketch for each group.

        Args:
            values: of the argument, one a tuple.
            codes: the group of each.
            groups: how many there are.
        """
        known = values.is_valid().to_numpy()
        codes, values = codes[known], values.drop_null()
        if self.kind == "distinct":
            exact = canonical(values) if pa.types.is_floating(values.type) else values
            return self._distinct(value_hashes(exact.combine_chunks()), codes, groups)
        numbers = _numbers(values)
        order = np.argsort(codes, kind="stable")
        found: list[bytes | None] = [None] * groups
        for group, own in _slices(codes[order]):
            sketch = kll_doubles_sketch(self.size)
            sketch.update(numbers[order[own]])
            found[group] = sketch.serialize()
        return pa.array(found, pa.binary())

    def merge(self, sketches: pa.ChunkedArray, codes: Codes, groups: int) -> pa.Array:
        """One sketch for each group, of those that its rows hold."""
        stored = sketches.to_pylist()
        order = np.argsort(codes, kind="stable")
        found: list[bytes | None] = [None] * groups
        for group, own in _slices(codes[order]):
            several = [each for place in order[own] if (each := stored[place]) is not None]
            if len(several) < 2:
                found[group] = several[0] if several else None
                continue
            union = self.union()
            for each in several:
                union.add(each)
            found[group] = union.stored()
        return pa.array(found, pa.binary())

    def union(self) -> _Distinct | _Quantiles:
        """An empty one: sketches are added to it."""
        return _Distinct(self.size) if self.kind == "distinct" else _Quantiles(self.size)

    def _distinct(self, hashes: npt.NDArray[np.uint64], codes: Codes, groups: int) -> pa.Array:
        order = np.lexsort((hashes, codes))
        hashes, codes = hashes[order], codes[order]
        first = np.append(True, (np.diff(codes) != 0) | (np.diff(hashes) != 0))[: len(codes)]
        found: list[bytes | None] = [None] * groups
        hashes, codes = hashes[first], codes[first]
        for group, own in _slices(codes):
            sketch = hll_sketch(self.size, _HLL)
            for each in hashes[own].view(np.int64).tolist():
                sketch.update(each)
            found[group] = sketch.serialize_compact()
        return pa.array(found, pa.binary())


class _Distinct:
    def __init__(self, size: int) -> None:
        self._union = hll_union(size)

    def add(self, stored: bytes) -> None:
        self._union.update(hll_sketch.deserialize(stored))

    def stored(self) -> bytes:
        return bytes(self._union.get_result(_HLL).serialize_compact())

    def estimate(self, fraction: float | None) -> float:  # noqa: ARG002
        return float(round(self._union.get_estimate()))


class _Quantiles:
    def __init__(self, size: int) -> None:
        self._sketch = kll_doubles_sketch(size)

    def add(self, stored: bytes) -> None:
        self._sketch.merge(kll_doubles_sketch.deserialize(stored))

    def stored(self) -> bytes:
        return bytes(self._sketch.serialize())

    def estimate(self, fraction: float | None) -> float:
        assert fraction is not None, "of a percentile"
        return float("nan") if self._sketch.is_empty() else float(self._sketch.get_quantile(fraction, True))


def estimates(aggregate: Aggregate, sketches: pa.ChunkedArray) -> pa.Array:
    """The result of an aggregate for each of its sketches, of the aggregate's type.

    A percentile is a value that occurred, where a double holds it; of NaN it is infinity.
    """
    own = Sketch.of(aggregate)
    found = np.full(len(sketches), 0.0 if own.kind == "distinct" else np.nan)
    missing = np.zeros(len(sketches), np.bool_)
    for number, stored in enumerate(sketches.to_pylist()):
        if stored is None:
            missing[number] = own.kind == "quantiles"
            continue
        union = own.union()
        union.add(stored)
        found[number] = union.estimate(aggregate.parameter)
    return _typed(found, missing, aggregate.type)


def running(
    aggregate: Aggregate, sketches: pa.ChunkedArray, groups: Iterable[npt.NDArray[np.int64]]
) -> tuple[Floats, Floats]:
    """The result before each row of its group, and that of the whole group.

    Args:
        aggregate: which one.
        sketches: one a row.
        groups: rows of each group in the order in which they are added, the groups one after the other.

    Returns:
        Two arrays in that order of the rows; NaN where a percentile has no value yet.
    """
    own, stored = Sketch.of(aggregate), sketches.to_pylist()
    if own.kind == "quantiles":
        own = replace(own, size=min(own.size, _JUDGED_K))
    before, final = [], []
    for rows in groups:
        union = own.union()
        for row in rows.tolist():
            before.append(union.estimate(aggregate.parameter))
            if stored[row] is not None:
                union.add(stored[row])
        final += [union.estimate(aggregate.parameter)] * len(rows)
    return np.array(before), np.array(final)


def _numbers(values: pa.ChunkedArray) -> Floats:
    """The values as doubles in their order, NaN as infinity: the library leaves NaN out."""
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    numbers = values.cast(pa.float64(), safe=False).to_numpy()
    return np.where(np.isnan(numbers), np.inf, numbers)


def _typed(numbers: Floats, missing: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    if pa.types.is_floating(kind):
        return pa.array(numbers, mask=missing).cast(kind)
    if pa.types.is_decimal(kind):
        step, limit = Decimal(1).scaleb(-kind.scale), Decimal((0, (9,) * kind.precision, -kind.scale))
        with localcontext(prec=kind.precision + 1):
            exact = [
                None if gone else max(-limit, min(limit, Decimal(number).quantize(step)))
                for number, gone in zip(numbers.tolist(), missing.tolist(), strict=True)
            ]
        return pa.array(exact, kind)
    whole = np.clip(np.where(missing, 0.0, numbers), -_LARGEST_LONG, _LARGEST_LONG)
    integers = pa.array(np.rint(whole).astype(np.int64), mask=missing)
    return integers.cast(pa.int32()).cast(kind) if pa.types.is_date32(kind) else integers.cast(kind)


def _slices(codes: Codes) -> Iterator[tuple[int, slice]]:
    """Each group of ascending codes and where its rows are."""
    found, first = np.unique(codes, return_index=True)
    bounds = np.append(first, len(codes))
    for group, low, high in zip(found.tolist(), bounds[:-1], bounds[1:], strict=True):
        yield group, slice(low, high)
