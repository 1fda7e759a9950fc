"""The slack policies that a view may choose, by name; `RequiredSlack`, the default one, is in `slack`.

Sources: K-slack (Babu et al.), MP-K-slack (Mutschler and Philippsen), AQ-K-slack (Ji et al.), as the HPM paper names
them, and the paper's own rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from penstock.operators.windows.clocks import Lateness
from penstock.operators.windows.slack import RequiredSlack, SlackPolicy, SlackState, WindowOutcome
from penstock.operators.windows.slack_memory import Ints
from penstock.plan.times import AFTER_ALL
from penstock.plan.windows import WindowPlan

#: weight of the newest final window's threshold in what AQ-K-slack aims at
_NEWEST = 0.05
_ROUNDING = 1e-9


def policy_of(plan: WindowPlan) -> SlackPolicy:
    """Return the policy that a view has chosen, without memory."""
    return POLICIES[plan.slack_policy.policy](plan)


@dataclass(slots=True)
class FixedSlack(SlackPolicy):
    """A slack that never changes: K-slack whose K the user gives, a fixed watermark, or none at all."""

    slack: int


@dataclass(slots=True)
class LargestDelaySlack(SlackPolicy):
    """MP-K-slack: the largest delay so far."""

    slack: int = 0

    def arrived(self, lateness: Lateness) -> None:
        """Keeps the largest delay."""
        self.slack = max(self.slack, int(lateness.delays.max(initial=0)))

    def snapshot(self) -> SlackState:
        """The largest delay."""
        return SlackState({"largest": self.slack})

    def restore(self, state: SlackState) -> None:
        """Goes on from the largest delay."""
        self.slack = int(state.numbers["largest"])


@dataclass(slots=True)
class FirstDelaysSlack(SlackPolicy):
    """K-slack whose K is measured once: the largest delay while the stream was young.

    Attributes:
        period: event time after which K remains as it is, microseconds.
    """

    period: int
    slack: int = 0
    _age: int = 0

    @classmethod
    def of(cls, plan: WindowPlan) -> FirstDelaysSlack:
        """The policy of a view: it measures for as long as 1 / delta windows last."""
        windows = plan.windows
        return cls(windows.size + (ceil(1 / plan.bound.delta) - 1) * windows.slide)

    def arrived(self, lateness: Lateness) -> None:
        """Keeps the largest delay of the period."""
        self._age = lateness.age
        if self._age <= self.period:
            self.slack = max(self.slack, int(lateness.delays.max(initial=0)))

    def snapshot(self) -> SlackState:
        """The largest delay."""
        return SlackState({"largest": self.slack})

    def restore(self, state: SlackState) -> None:
        """Goes on from the largest delay."""
        self.slack = int(state.numbers["largest"])

    def figures(self) -> dict[str, float]:
        """How long K is measured, and whether it still is."""
        return {"period": self.period, "is_measuring": self._age <= self.period}


@dataclass(slots=True)
class RecentDelaySlack(SlackPolicy):
    """AQ-K-slack: the least slack by which so large a share of recent tuples was in time.

    How late a tuple is counts from the end of its pane: no window misses it before. Granularity and memory are those of
    AQ-K-slack's histogram of recent delays.

    Attributes:
        coverage: share of recent tuples that must be no later than the slack; None: what the bound needs, as final windows
            say, and all of them before there is one.
        memory: recent tuples looked at, and those of one batch beyond.
    """

    coverage: float | None = None
    memory: int = 10_000
    slack: int = 0
    _threshold: float = 1.0
    _windows: int = 0
    _recent: deque[tuple[Ints, Ints]] = field(default_factory=deque)
    _held: int = 0

    @property
    def aims_at_coverage(self) -> bool:
        """Whether final windows say what coverage is needed."""
        return self.coverage is None

    @property
    def has_learned(self) -> bool:
        """Whether a final window said what coverage is needed."""
        return self._windows > 0

    def brought(self, slacks: Ints, tuples: Ints) -> None:
        """Takes the newest tuples in and leaves out the oldest."""
        self._take(slacks, tuples)
        while self._held - int(self._recent[0][1].sum()) >= self.memory:
            self._held -= int(self._recent.popleft()[1].sum())
        self._choose()

    def known(self, outcome: WindowOutcome, age: int, *, final: bool = False) -> None:  # noqa: ARG002
        """Aims at the coverage that final windows need."""
        if final and outcome.threshold is not None:
            weight = _NEWEST if self._windows else 1.0
            self._threshold += weight * (outcome.threshold - self._threshold)
            self._windows += 1

    def snapshot(self) -> SlackState:
        """The recent tuples, batch by batch, and the coverage aimed at."""
        batches = np.array([len(slacks) for slacks, _ in self._recent], np.int64)
        nothing = np.zeros(0, np.int64)
        slacks = np.concatenate([nothing, *(slacks for slacks, _ in self._recent)])
        tuples = np.concatenate([nothing, *(tuples for _, tuples in self._recent)])
        return SlackState(
            {"slack": self.slack, "threshold": self._threshold, "windows": self._windows},
            {"batches": batches, "slacks": slacks, "tuples": tuples},
        )

    def restore(self, state: SlackState) -> None:
        """Goes on from recent tuples."""
        self.slack, self._windows = int(state.numbers["slack"]), int(state.numbers["windows"])
        self._threshold = state.numbers["threshold"]
        self._recent.clear()
        self._held = 0
        bounds = np.cumsum(state.arrays["batches"])[:-1]
        if len(state.arrays["batches"]):
            parts = (np.split(state.arrays[name], bounds) for name in ("slacks", "tuples"))
            for slacks, tuples in zip(*parts, strict=True):
                self._take(slacks, tuples)

    def figures(self) -> dict[str, float]:
        """The share of tuples that is to be in time, and of how many."""
        return {"coverage": self._aim, "tuples": self._held}

    @property
    def _aim(self) -> float:
        return self._threshold if self.coverage is None else self.coverage

    def _take(self, slacks: Ints, tuples: Ints) -> None:
        self._recent.append((slacks, tuples))
        self._held += int(tuples.sum())

    def _choose(self) -> None:
        slacks, tuples = (np.concatenate(parts) for parts in zip(*self._recent, strict=True))
        order = np.argsort(slacks, kind="stable")
        in_time = np.cumsum(tuples[order])
        least = self._aim * in_time[-1] - _ROUNDING
        self.slack = int(slacks[order[np.searchsorted(in_time, least)]])


@dataclass(slots=True)
class ProportionalDerivativeSlack(SlackPolicy):
    """The paper's rule: K = alpha * k, alpha steered by the error of the coverage.

    Source: the HPM paper, 1.2, dynamic buffer adjustment: err_i = threshold - lambda_i,
    alpha* = alpha + Kp err_i + Kd (err_i - err_{i-1}), alpha >= 0.

    Attributes:
        threshold: the coverage aimed at; None: what the bound needs of each window (see `coverage.window_threshold`).
        proportional, derivative: Kp and Kd.
        period: observation period: a window's coverage counts once it was answered so long ago, or is final.
        alpha: begins at 1.
        largest: k, the largest delay so far.
    """

    threshold: float | None = None
    proportional: float = 0.2
    derivative: float = 4.0
    period: int = AFTER_ALL
    alpha: float = 1.0
    largest: int = 0
    _error: float = 0.0
    _newest: tuple[float, float] | None = None
    _observed: set[int] = field(default_factory=set)

    @property
    def slack(self) -> int:
        """alpha * k."""
        return int(self.alpha * self.largest)

    @property
    def aims_at_coverage(self) -> bool:
        """Whether each window says what coverage it needs."""
        return self.threshold is None

    @property
    def has_learned(self) -> bool:
        """Whether the coverage of a window has counted."""
        return self._newest is not None

    def arrived(self, lateness: Lateness) -> None:
        """Keeps the largest delay."""
        self.largest = max(self.largest, int(lateness.delays.max(initial=0)))

    def known(self, outcome: WindowOutcome, age: int, *, final: bool = False) -> None:
        """One step of the rule, the first time that an answered window's coverage counts."""
        if outcome.end in self._observed:
            if final:
                self._observed.remove(outcome.end)
            return
        threshold = outcome.threshold if self.threshold is None else self.threshold
        if threshold is None or not outcome.is_answered:
            return
        if not final:
            if age - outcome.slack < self.period:
                return
            self._observed.add(outcome.end)
        error = threshold - outcome.coverage
        change = self.proportional * error + self.derivative * (error - self._error)
        self.alpha = max(0.0, self.alpha + change)
        self._error = error
        self._newest = outcome.coverage, threshold

    def forget(self, end: int) -> None:
        """A window is never told as final."""
        self._observed.discard(end)

    def snapshot(self) -> SlackState:
        """alpha, k, the newest error and what it is of, and the windows that have counted and are not final."""
        numbers = {"alpha": self.alpha, "largest": self.largest, "error": self._error}
        if self._newest is not None:
            numbers |= dict(zip(("coverage", "threshold"), self._newest, strict=True))
        return SlackState(numbers, {"observed": np.array(sorted(self._observed), np.int64)})

    def restore(self, state: SlackState) -> None:
        """Goes on from there."""
        numbers = state.numbers
        self.alpha, self.largest, self._error = numbers["alpha"], int(numbers["largest"]), numbers["error"]
        self._newest = (numbers["coverage"], numbers["threshold"]) if "coverage" in numbers else None
        self._observed = set(state.arrays["observed"].tolist())

    def figures(self) -> dict[str, float]:
        """alpha, k, and what coverage the newest window that counted had and needed."""
        found: dict[str, float] = {"alpha": self.alpha, "largest": self.largest}
        if self._newest is not None:
            found |= dict(zip(("coverage", "threshold"), self._newest, strict=True))
        return found


#: the policies by name
POLICIES: Mapping[str, Callable[[WindowPlan], SlackPolicy]] = {
    "required": RequiredSlack.of,
    "pd": lambda _: ProportionalDerivativeSlack(),
    "aq-k-slack": lambda _: RecentDelaySlack(),
    "mp-k-slack": lambda _: LargestDelaySlack(),
    "k-slack": FirstDelaysSlack.of,
    "fixed": lambda plan: FixedSlack(plan.slack_policy.length or 0),
}
