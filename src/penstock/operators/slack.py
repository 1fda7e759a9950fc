"""Slack: how long after its end a window waits for late tuples before it is answered.

All times are microseconds of event time. A policy is told of every delay and, once a window is known,
of what its answer was worth; it says which slack to use next.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import ceil, sqrt
from statistics import NormalDist
from typing import Protocol

import numpy as np
import numpy.typing as npt

from penstock.plan.windows import ErrorBound

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class WindowOutcome:
    """What is known of an answered window.

    Attributes:
        end: its end.
        slack: the slack it was answered with.
        coverage: share of its tuples that the answer counted, lambda of the paper.
        required: int64[groups], the required slack of each group (see `required_slack`).
        stands_for: 0 where all its tuples are known. Else `coverage` and `required` may still
            change, and so many windows like this one are not final.
    """

    end: int
    slack: int
    coverage: float
    required: Ints
    stands_for: int = 0

    @property
    def final(self) -> bool:
        """Whether all its tuples are known."""
        return self.stands_for == 0


class SlackPolicy(Protocol):
    """Chooses the slack of one view in one shard."""

    @property
    def slack(self) -> int:
        """The slack to use now."""

    def arrived(self, delays: Ints) -> None:
        """Takes in the delays of arrived tuples, t_max - event time where positive, else 0."""

    def known(self, outcome: WindowOutcome) -> None:
        """Takes in what a window was worth: any number of times before it is final, once as final."""


@dataclass(slots=True)
class FixedSlack:
    """A slack that never changes: K-slack, a fixed watermark, or none at all."""

    slack: int

    def arrived(self, delays: Ints) -> None:
        """Not looked at."""

    def known(self, outcome: WindowOutcome) -> None:
        """Not looked at."""


@dataclass(slots=True)
class ProportionalDerivativeSlack:
    """The paper's rule: K = alpha * k, alpha steered by the error of the coverage.

    Source: the HPM paper, dynamic buffer adjustment: err_i = threshold - lambda_i,
    alpha* = alpha + Kp err_i + Kd (err_i - err_{i-1}), alpha >= 0.

    Attributes:
        threshold: the coverage aimed at.
        proportional, derivative: Kp and Kd.
        alpha: begins at 1.
        largest: k, the largest delay so far.
    """

    threshold: float
    proportional: float = 0.2
    derivative: float = 4.0
    alpha: float = 1.0
    largest: int = 0
    _error: float = 0.0

    @property
    def slack(self) -> int:
        """alpha * k."""
        return int(self.alpha * self.largest)

    def arrived(self, delays: Ints) -> None:
        """Keeps the largest delay."""
        self.largest = max(self.largest, int(delays.max(initial=0)))

    def known(self, outcome: WindowOutcome) -> None:
        """One step of the rule."""
        if not outcome.final:
            return
        error = self.threshold - outcome.coverage
        change = self.proportional * error + self.derivative * (error - self._error)
        self.alpha = max(0.0, self.alpha + change)
        self._error = error


@dataclass(slots=True)
class RequiredSlack:
    """Ours: the (1 - delta)-quantile of the slacks that known windows would have needed.

    The quantile is taken over the newest final windows, at the level ceil((n + 1)(1 - delta')) / n of
    conformal prediction, so that the next window violates the bound with probability <= delta' where
    windows are exchangeable. delta' is steered so that the share of violations among the windows
    answered comes to delta (adaptive conformal inference, Gibbs and Candes 2021), never above delta.
    Windows that are not final raise the quantile where what is known of them already does. As long as too few
    windows are known, K is the largest delay so far.

    Attributes:
        bound: epsilon and delta.
        memory: final groups of windows remembered.
        rate: gamma of the steering, a window.
        largest: the largest delay so far.
        level: delta' in use.
    """

    bound: ErrorBound
    memory: int = 0
    rate: float = 0.005
    largest: int = 0
    level: float = field(init=False)
    _final: deque[Ints] = field(default_factory=deque)
    _groups: int = 0
    _pending: dict[int, Ints] = field(default_factory=dict)
    _slack: int | None = None

    def __post_init__(self) -> None:
        delta = self.bound.delta
        self.level = delta
        self.memory = self.memory or ceil(20 / delta)

    @property
    def slack(self) -> int:
        """The quantile, or the largest delay so far."""
        if self._slack is None:
            self._slack = self._quantile()
        return self._slack

    @property
    def promised(self) -> bool:
        """Whether enough windows are known for the bound to be more than a hope."""
        return self._groups >= ceil(1 / self.bound.delta)

    def arrived(self, delays: Ints) -> None:
        """Keeps the largest delay."""
        self.largest = max(self.largest, int(delays.max(initial=0)))
        if not self.promised:
            self._slack = None

    def known(self, outcome: WindowOutcome) -> None:
        """Remembers a final window, or what is known of another one."""
        self._slack = None
        if not outcome.final:
            self._pending[outcome.end] = np.repeat(outcome.required, outcome.stands_for)
            return
        self._pending.pop(outcome.end, None)
        self._final.append(outcome.required)
        self._groups += len(outcome.required)
        while self._groups - len(self._final[0]) >= self.memory:
            self._groups -= len(self._final.popleft())
        violated = float(np.mean(outcome.required > outcome.slack)) if len(outcome.required) else 0.0
        delta = self.bound.delta
        self.level = min(delta, max(delta / 10, self.level + self.rate * (delta - violated)))

    def _quantile(self) -> int:
        if not self.promised:
            return self.largest
        final = np.concatenate(self._final)
        slack = _conformal(final, self.level)
        if self._pending:
            slack = max(slack, _conformal(np.concatenate([final, *self._pending.values()]), self.level))
        return slack


def _conformal(required: Ints, delta: float) -> int:
    """The least slack that all but a share delta of the windows needed no more than."""
    n = len(required)
    rank = min(n, ceil((n + 1) * (1 - delta)))
    return int(np.partition(required, rank - 1)[rank - 1])


def coverage_threshold(function: str, bound: ErrorBound, tuples: float, variation: float, q: float = 0.5) -> float:
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
