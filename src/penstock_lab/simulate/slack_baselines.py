"""Slack policies that ours is compared with; ours is in `operators.windows.slack`.

Sources: K-slack (Babu et al.), MP-K-slack (Mutschler and Philippsen), AQ-K-slack (Ji et al.), as the HPM
paper names them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import sqrt
from statistics import NormalDist

import numpy as np

from penstock.operators.windows.clocks import Lateness
from penstock.operators.windows.slack import WindowOutcome
from penstock.operators.windows.slack_memory import Ints
from penstock.plan.times import AFTER_ALL
from penstock.plan.windows import ErrorBound


@dataclass(slots=True)
class LargestDelaySlack:
    """MP-K-slack: the largest delay so far."""

    slack: int = 0

    def arrived(self, lateness: Lateness) -> None:
        """Keeps the largest delay."""
        self.slack = max(self.slack, int(lateness.delays.max(initial=0)))

    def known(self, outcome: WindowOutcome, age: int, *, final: bool = False) -> None:
        """Not looked at."""


@dataclass(slots=True)
class RecentDelaySlack:
    """AQ-K-slack: the least slack that the delays of recent tuples say gives the coverage.

    Attributes:
        coverage: share of recent tuples that must be no later than the slack.
        memory: recent tuples looked at.
        refresh: tuples between two looks.
    """

    coverage: float
    memory: int = 10_000
    refresh: int = 500
    slack: int = 0
    _recent: deque[Ints] = field(default_factory=deque)
    _held: int = 0
    _fresh: int = 0

    def arrived(self, lateness: Lateness) -> None:
        """Takes the delays in and looks at the quantile now and then."""
        delays = lateness.delays
        self._recent.append(delays)
        self._held += len(delays)
        self._fresh += len(delays)
        while self._held - len(self._recent[0]) >= self.memory:
            self._held -= len(self._recent.popleft())
        if self._fresh >= self.refresh:
            self._fresh = 0
            self.slack = int(np.quantile(np.concatenate(self._recent), self.coverage))

    def known(self, outcome: WindowOutcome, age: int, *, final: bool = False) -> None:
        """Not looked at."""


@dataclass(slots=True)
class ProportionalDerivativeSlack:
    """The paper's rule: K = alpha * k, alpha steered by the error of the coverage.

    Source: the HPM paper, dynamic buffer adjustment: err_i = threshold - lambda_i,
    alpha* = alpha + Kp err_i + Kd (err_i - err_{i-1}), alpha >= 0.

    Attributes:
        threshold: the coverage aimed at.
        proportional, derivative: Kp and Kd.
        period: observation period: a window's coverage counts once it was answered so long ago, or is final.
        alpha: begins at 1.
        largest: k, the largest delay so far.
    """

    threshold: float
    proportional: float = 0.2
    derivative: float = 4.0
    period: int = AFTER_ALL
    alpha: float = 1.0
    largest: int = 0
    _error: float = 0.0
    _observed: set[int] = field(default_factory=set)

    @property
    def slack(self) -> int:
        """alpha * k."""
        return int(self.alpha * self.largest)

    def arrived(self, lateness: Lateness) -> None:
        """Keeps the largest delay."""
        self.largest = max(self.largest, int(lateness.delays.max(initial=0)))

    def known(self, outcome: WindowOutcome, age: int, *, final: bool = False) -> None:
        """One step of the rule, the first time that a window's coverage counts."""
        if outcome.end in self._observed:
            if final:
                self._observed.remove(outcome.end)
            return
        if not final:
            if age - outcome.slack < self.period:
                return
            self._observed.add(outcome.end)
        error = self.threshold - outcome.coverage
        change = self.proportional * error + self.derivative * (error - self._error)
        self.alpha = max(0.0, self.alpha + change)
        self._error = error


def coverage_threshold(
    function: str, bound: ErrorBound, tuples: float, variation: float, q: float = 0.5
) -> float:
    """The least coverage at which a relative error bound holds, if tuples are missing at random.

    Args:
        function: canonical name of the aggregate.
        bound: relative epsilon and delta.
        tuples: N, tuples a window.
        variation: cv, coefficient of variation of the aggregated value.
        q: fraction of a percentile.

    Returns:
        lambda_thr in (0, 1]. Source: the conditions of simple random sampling without replacement.
    """
    epsilon = bound.epsilon
    z = NormalDist().inv_cdf(1 - bound.delta / 2)
    match function:
        case "count":
            return 1 - epsilon
        case "min" | "max":
            return 1 - bound.delta
        case "avg":
            spread = (z * variation) ** 2 / tuples
            return spread / (spread + epsilon**2)
        case "percentile":
            spread = z * z * q * (1 - q) / tuples
            return spread / (spread + epsilon**2)
        case "sum":
            low, high = 1 - epsilon, 1.0
            for _ in range(50):
                middle = (low + high) / 2
                off = (1 - middle) + z * variation * sqrt(middle * (1 - middle) / tuples)
                low, high = (low, middle) if off <= epsilon else (middle, high)
            return high
        case _:
            return 1.0
