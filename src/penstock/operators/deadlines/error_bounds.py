"""Estimates from a sample without replacement, each with half the width of its confidence interval.

Source: Wilson's interval for shares; the central limit theorem with the correction for finite populations (Cochran, Sampling
Techniques, chapters 2 and 6); for quantiles the band of Dvoretzky, Kiefer and Wolfowitz with Massart's constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

#: of each interval by itself
CONFIDENCE = 0.95
#: of fewer sampled values neither a sum nor a mean has a bound
LEAST_VALUES = 30
#: standard deviations of a normal distribution on either side
_NORMAL = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True, slots=True)
class Sampled:
    """How much of a population a sample is.

    Attributes:
        size: tuples in the sample, at least 1.
        population: tuples it was drawn from, at least `size`.
    """

    size: int
    population: int

    @property
    def scale(self) -> float:
        """Tuples that one of the sample stands for."""
        return self.population / self.size

    @property
    def unsampled(self) -> float:
        """Share of the population that is not in the sample."""
        return 1 - self.size / self.population


@dataclass(frozen=True, slots=True)
class Estimates:
    """A value for each group.

    Attributes:
        values: float64[groups]; NaN where there is none.
        bounds: float64[groups]: with CONFIDENCE the true value is at most this far away; NaN where that is not known.
    """

    values: Floats
    bounds: Floats


def estimated_counts(counts: Longs, sampled: Sampled) -> Estimates:
    """Tuples of groups in the population.

    Args:
        counts: int64[groups], those in the sample.
        sampled: how much was drawn.
    """
    size, population = sampled.size, sampled.population
    values: Floats = counts.astype(np.float64) * sampled.scale
    if size == population:
        return Estimates(values, np.zeros(len(counts)))
    # so many tuples drawn with replacement would tell as much
    equivalent = size * (population - 1) / (population - size)
    share, square = counts / size, _NORMAL**2
    middle = (share + square / (2 * equivalent)) / (1 + square / equivalent)
    half = np.sqrt(share * (1 - share) / equivalent + square / (4 * equivalent**2)) * _NORMAL
    half /= 1 + square / equivalent
    # what was seen is there
    least = np.maximum(population * (middle - half), counts)
    largest = np.minimum(population * (middle + half), population - (size - counts))
    return Estimates(values, np.maximum(largest - values, values - least))


def estimated_sums(groups: Longs, values: Floats, count: int, sampled: Sampled) -> Estimates:
    """Sums of groups in the population.

    Args:
        groups: int64[n], the group of each sampled value, NULLs left out.
        values: float64[n].
        count: of the groups.
        sampled: how much was drawn.
    """
    number, means, squares = _moments(groups, values, count)
    size = sampled.size
    # over the whole sample, in which tuples of other groups count as 0
    variance = (squares + means**2 * number * (1 - number / size)) / max(1, size - 1)
    error = sampled.population * np.sqrt(variance * sampled.unsampled / size)
    sums: Floats = np.where(number > 0, means * number * sampled.scale, np.nan)
    return Estimates(sums, _bounded(error, number, sampled))


def estimated_means(groups: Longs, values: Floats, count: int, sampled: Sampled) -> Estimates:
    """Means of groups in the population; arguments as of `estimated_sums`."""
    number, means, squares = _moments(groups, values, count)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.sqrt(squares / (number - 1) / number * sampled.unsampled)
    found: Floats = np.where(number > 0, means, np.nan)
    return Estimates(found, _bounded(error, number, sampled))


def estimated_quantiles(
    groups: Longs, values: Floats, count: int, fraction: float, sampled: Sampled, *, interpolated: bool
) -> Estimates:
    """Quantiles of groups in the population.

    Args:
        groups, values, count, sampled: as of `estimated_sums`.
        fraction: which quantile, from 0 to 1.
        interpolated: between the two values around it; else it is a value that occurs.
    """
    order = np.lexsort((values, groups))
    ends = np.searchsorted(groups[order], np.arange(count + 1))
    found, bounds = np.full(count, np.nan), np.full(count, np.nan)
    for group in range(count):
        own = values[order[ends[group] : ends[group + 1]]]
        if not len(own):
            continue
        found[group] = (
            np.quantile(own, fraction) if interpolated else np.quantile(own, fraction, method="inverted_cdf")
        )
        bounds[group] = _quantile_bound(own, float(found[group]), fraction)
    return Estimates(found, bounds if sampled.unsampled else np.zeros(count))


def _quantile_bound(ascending: Floats, value: float, fraction: float) -> float:
    size = len(ascending)
    band = sqrt(log(2 / (1 - CONFIDENCE)) / (2 * size))
    # an interpolated quantile of the population may lie one value beyond
    first, last = int(np.ceil((fraction - band) * size)) - 1, int(np.ceil((fraction + band) * size))
    if first < 0 or last >= size:
        return float("nan")
    return float(max(ascending[last] - value, value - ascending[first]))


def _moments(groups: Longs, values: Floats, count: int) -> tuple[Floats, Floats, Floats]:
    """How many values each group has, their mean, and the sum of their squared distances from it."""
    number = np.bincount(groups, minlength=count).astype(np.float64)
    means: Floats = np.bincount(groups, values, minlength=count) / np.maximum(number, 1)
    squares = np.bincount(groups, (values - means[groups]) ** 2, minlength=count)
    return number, means, squares.astype(np.float64)


def _bounded(error: Floats, number: Floats, sampled: Sampled) -> Floats:
    """Standard errors as bounds."""
    if not sampled.unsampled:
        return np.zeros(len(error))
    return _known(np.where(number >= LEAST_VALUES, error * _student(np.maximum(number - 1, 1)), np.nan))


def _known(bounds: Floats) -> Floats:
    """Bounds of which those are not known that a sample without any difference gives: the other tuples may differ."""
    return np.where(bounds > 0, bounds, np.nan)


def _student(freedom: Floats) -> Floats:
    """Standard errors on either side by Student's distribution, to 0.0001 from LEAST_VALUES on (Abramowitz and Stegun, 26.7.5)."""
    first = (_NORMAL**3 + _NORMAL) / 4
    second = (5 * _NORMAL**5 + 16 * _NORMAL**3 + 3 * _NORMAL) / 96
    factors: Floats = _NORMAL + first / freedom + second / freedom**2
    return factors
