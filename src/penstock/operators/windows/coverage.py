"""The coverage threshold: the share of a window's tuples that an answer needs for its error bound.

Tuples that are late are taken as missing at random, so that an answer is a simple random sample without replacement.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.windows.aggregates import ROWS, count_of, sum_of
from penstock.operators.windows.grouping import group_codes, without_nulls
from penstock.plan.windows import Aggregate, ErrorBound

Floats = npt.NDArray[np.float64]

#: the coefficient of variation where nothing says which one: that of waiting times
_UNKNOWN_VARIATION = 1.0


def coverage_threshold(
    function: str, bound: ErrorBound, tuples: float, variation: float, q: float = 0.5
) -> float:
    """Return the least coverage at which a relative error bound is kept, if tuples are missing at random.

    Args:
        function: canonical name of the aggregate.
        bound: relative epsilon and delta.
        tuples: N, tuples of a window and group, above 0.
        variation: cv, coefficient of variation of the aggregated value.
        q: fraction of a percentile.

    Returns:
        lambda_thr in [0, 1]; 1 for aggregates without a formula. Source: the HPM paper, 1.2, by the conditions of simple
        random sampling without replacement.
    """
    n, cv, epsilon = np.array([tuples]), np.array([variation]), np.array([bound.epsilon])
    return float(_thresholds(function, bound.delta, epsilon, n, cv, q)[0])


def window_threshold(
    partials: pa.Table, keys: Sequence[str], aggregates: Sequence[Aggregate], bound: ErrorBound
) -> float:
    """Return the coverage threshold of a window, by the tuples that it has.

    N and cv are those of each group: N is counted, cv is estimated from how far the means of the group's rows lie apart,
    each weighted by its tuples (an unbiased estimate of the variance where rows are random parts of the group).

    Args:
        partials: rows by pane, keys and arrival, at least one.
        keys: the grouping columns.
        aggregates: a view's; the largest threshold counts.
        bound: its error bound; an absolute epsilon is taken relative to the group's value.

    Returns:
        The median of the groups' thresholds, in [0, 1].
    """
    codes = group_codes(partials, keys)
    rows = _column(partials, ROWS)
    thresholds = np.zeros(int(codes.max()) + 1)
    for each in aggregates:
        counts: Floats = _sums(codes, rows)
        sums: Floats | None = None
        variation = np.full(len(thresholds), _UNKNOWN_VARIATION)
        if each.argument is not None and count_of(each.argument) in partials.column_names:
            own = _column(partials, count_of(each.argument))
            counts = _sums(codes, own)
            if sum_of(each.argument) in partials.column_names:
                values = _column(partials, sum_of(each.argument))
                sums = _sums(codes, values)
                variation = _variation(codes, own, values, len(thresholds))
        epsilon = np.full(len(thresholds), bound.epsilon)
        if bound.absolute:
            epsilon = _relative(each.function, bound.epsilon, counts, sums)
        q = 0.5 if each.parameter is None else each.parameter
        found = _thresholds(each.function, bound.delta, epsilon, np.maximum(counts, 1.0), variation, q)
        thresholds = np.maximum(thresholds, found)
    return float(np.median(thresholds))


def _thresholds(
    function: str, delta: float, epsilon: Floats, tuples: Floats, variation: Floats, q: float
) -> Floats:
    z = NormalDist().inv_cdf(1 - delta / 2)
    match function:
        case "count":
            found = 1 - epsilon
        case "min" | "max" | "min_by" | "max_by":
            found = np.full(len(tuples), 1 - delta)
        case "avg":
            spread = (z * variation) ** 2 / tuples
            found = spread / (spread + epsilon**2)
        case "percentile" | "approx_percentile":
            spread = z * z * q * (1 - q) / tuples
            found = spread / (spread + epsilon**2)
        case "sum":
            # 1 - lambda is the smaller root u of a u (1 - u) = (epsilon - u)^2
            a = (z * variation) ** 2 / tuples
            half = epsilon + a / 2
            found = 1 - (half - np.sqrt(np.maximum(half**2 - (1 + a) * epsilon**2, 0))) / (1 + a)
        case _:
            found = np.ones(len(tuples))
    return np.clip(np.nan_to_num(found, nan=1.0), 0.0, 1.0)


def _variation(codes: npt.NDArray[np.int64], counts: Floats, sums: Floats, groups: int) -> Floats:
    """The coefficient of variation of each group's values; of a group with one row that of the others."""
    codes, counts, sums = codes[counts > 0], counts[counts > 0], sums[counts > 0]
    n, total, rows = (np.bincount(codes, each, groups) for each in (counts, sums, np.ones(len(codes))))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / n
        squares = np.bincount(codes, counts * (sums / counts - mean[codes]) ** 2, groups)
        found = np.sqrt(squares / (rows - 1)) / np.abs(mean)
    is_known = np.isfinite(found)
    others = float(np.median(found[is_known])) if is_known.any() else _UNKNOWN_VARIATION
    return np.where(is_known, found, others)


def _relative(function: str, epsilon: float, counts: Floats, sums: Floats | None) -> Floats:
    """An absolute epsilon as a share of each group's value; 0, which asks for all tuples, where that has no formula."""
    with np.errstate(invalid="ignore", divide="ignore"):
        if function == "count":
            found = epsilon / counts
        elif function in ("sum", "avg") and sums is not None:
            found = epsilon / np.abs(sums if function == "sum" else sums / counts)
        else:
            found = np.zeros(len(counts))
    return np.nan_to_num(found, nan=0.0, posinf=1.0)


def _sums(codes: npt.NDArray[np.int64], values: Floats) -> Floats:
    return np.bincount(codes, values).astype(np.float64)


def _column(partials: pa.Table, name: str) -> Floats:
    return without_nulls(partials.column(name).cast(pa.float64()), 0.0)
