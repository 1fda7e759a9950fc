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

from penstock.plan.times import AFTER_ALL
from penstock.plan.windows import ErrorBound

Ints = npt.NDArray[np.int64]

#: the disorder has changed where the newest windows violate the bound this many times as often as allowed
_ALARM = 3
_LEAST_WINDOWS = 32
#: debt is bounded, in windows over delta: about twenty times the memory's share of violations
_MOST_DEBT = 20


@dataclass(frozen=True, slots=True, eq=False)
class WindowOutcome:
    """What is known of an answered window.

    Attributes:
        end: its end.
        slack: the slack it was answered with.
        coverage: share of its tuples that the answer counted, lambda of the paper.
        required: int64[groups], the required slack of each group (see `required_slack`) in any order; of many groups
            some that stand for all.
        final: whether all its tuples are known; else `coverage` and `required` may still change.
        age: event time since it was answered.
        weight: groups that each of `required` stands for.
    """

    end: int
    slack: int
    coverage: float
    required: Ints
    final: bool
    age: int = 0
    weight: float = 1.0


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

    def arrived(self, delays: Ints) -> None:
        """Keeps the largest delay."""
        self.largest = max(self.largest, int(delays.max(initial=0)))

    def known(self, outcome: WindowOutcome) -> None:
        """One step of the rule, the first time that a window's coverage counts."""
        if outcome.end in self._observed:
            if outcome.final:
                self._observed.remove(outcome.end)
            return
        if not outcome.final:
            if outcome.age < self.period:
                return
            self._observed.add(outcome.end)
        error = self.threshold - outcome.coverage
        change = self.proportional * error + self.derivative * (error - self._error)
        self.alpha = max(0.0, self.alpha + change)
        self._error = error


@dataclass(slots=True)
class SlackMemory:
    """What `RequiredSlack` remembers.

    Attributes:
        largest: the largest delay so far.
        debt: violations so far beyond the share delta, in groups of windows; never negative.
        required: int64, required slacks of the newest final windows' groups, those of a window together.
        sizes: how many of them each window has.
    """

    largest: int = 0
    debt: float = 0.0
    required: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    sizes: deque[int] = field(default_factory=deque)


@dataclass(slots=True)
class RequiredSlack:
    """Ours: the (1 - delta)-quantile of the slacks that known windows would have needed.

    - The quantile is taken over the newest final windows, at the level ceil((n + 1)(1 - delta')) / n of
      conformal prediction: the next window violates the bound with probability <= delta' where windows
      are exchangeable.
    - delta' <= delta repays violations beyond delta (adaptive conformal inference, Gibbs and Candes 2021).
    - Windows that are not final raise the quantile where what is known of them already does. Where more than
      three times delta of the newest ones are violated, the disorder has changed and they alone are
      asked too.
    - As long as too few windows are known, K is the largest delay so far.

    Attributes:
        bound: epsilon and delta.
        groups: final groups of windows remembered, at least; those of the newest 32 windows, or 1 / delta,
            always are. 0: 20 / delta.
        rate: gamma of the repayment, a group of a window.
        memory: of final windows; what is known of others is told again.
    """

    bound: ErrorBound
    groups: int = 0
    rate: float = 0.005
    memory: SlackMemory = field(default_factory=SlackMemory)
    _pending: dict[int, WindowOutcome] = field(default_factory=dict)
    _slack: int | None = None

    def __post_init__(self) -> None:
        self.groups = self.groups or ceil(20 / self.bound.delta)

    @property
    def slack(self) -> int:
        """The quantile, or the largest delay so far."""
        if self._slack is None:
            self._slack = self._quantile() if self.promised else self.memory.largest
        return self._slack

    @property
    def promised(self) -> bool:
        """Whether enough windows are known for the bound to be more than a hope."""
        return len(self.memory.sizes) >= ceil(1 / self.bound.delta)

    @property
    def level(self) -> float:
        """delta', between a tenth of delta and delta."""
        delta = self.bound.delta
        return max(delta / 10, delta - self.rate * self.memory.debt)

    def arrived(self, delays: Ints) -> None:
        """Keeps the largest delay."""
        self.memory.largest = max(self.memory.largest, int(delays.max(initial=0)))
        if not self.promised:
            self._slack = None

    def known(self, outcome: WindowOutcome) -> None:
        """Remembers a final window, or what is known of another one."""
        self._slack = None
        if not outcome.final:
            self._pending[outcome.end] = outcome
            return
        self._pending.pop(outcome.end, None)
        memory, required = self.memory, outcome.required
        memory.sizes.append(len(required))
        least, forgotten = max(_LEAST_WINDOWS, ceil(1 / self.bound.delta)), 0
        groups = len(memory.required) + len(required)
        while len(memory.sizes) > least and groups - forgotten - memory.sizes[0] >= self.groups:
            forgotten += memory.sizes.popleft()
        memory.required = np.concatenate([memory.required, required])[forgotten:]
        beyond = float((required > outcome.slack).sum()) - self.bound.delta * len(required)
        memory.debt = min(max(0.0, memory.debt + outcome.weight * beyond), _MOST_DEBT / self.bound.delta)

    def _quantile(self) -> int:
        found = _conformal(self.memory.required, self.level)
        if not self._pending:
            return found
        pending = [self._pending[end] for end in sorted(self._pending, reverse=True)]
        every = np.concatenate([self.memory.required, *(outcome.required for outcome in pending)])
        found = max(found, _conformal(every, self.level))
        newest, violated, wanted = [], 0, ceil(_ALARM / self.bound.delta)
        for outcome in pending:
            newest.append(outcome.required)
            violated += int((outcome.required > outcome.slack).sum())
            wanted -= len(outcome.required)
            if wanted <= 0:
                break
        recent = np.concatenate(newest)
        if wanted <= 0 and violated > _ALARM * self.bound.delta * len(recent):
            found = max(found, _conformal(recent, self.level))
        return found


def _conformal(required: Ints, delta: float) -> int:
    """The least slack that all but a share delta of the windows needed no more than."""
    n = len(required)
    rank = min(n, ceil((n + 1) * (1 - delta)))
    return int(np.partition(required, rank - 1)[rank - 1])


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
