"""Slack: how long after its end a window waits for late tuples before it is answered.

All times are microseconds of event time. A policy is told of every delay and, once a window is known,
of what its answer was worth; it says which slack to use next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import Protocol

import numpy as np

from penstock.operators.windows.clocks import Lateness
from penstock.operators.windows.slack_memory import Ints, SlackMemory
from penstock.plan.times import AFTER_ALL
from penstock.plan.windows import ErrorBound, WindowPlan

#: final windows remembered, over delta, where they overlap at least as many as are well known
_REMEMBERED = 6
#: as long as fewer than so many windows over delta are known, each overlap once, K exceeds what they say, at first by this share
_WELL_KNOWN, _MARGIN = 2, 0.5
#: debt is bounded, and half of it is forgotten, in windows over delta; so many windows of chance never count as debt nor alarm
_MOST_DEBT, _HALF_LIFE, _CHANCE = 20, 20, 3
#: the age at which windows are ripe is believed once the stream is so many times older
_BELIEVED_FROM = 2
#: so many windows say at which age they are ripe
_FEW_WINDOWS = 4
#: as long as too little is known K is at least this share of the stream's age, so that delays as long had time to show, ...
_LEAST_OF_AGE = 2 / 3
#: ... but no more than so many times the largest delay
_MOST_BEYOND = 6
#: of a window with more groups so many required slacks are kept
_MOST_GROUPS = 64
#: the loss of the next window is at most so many times the largest of those known
_BEYOND_KNOWN = 2
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class WindowOutcome:
    """What is known of an answered window.

    Attributes:
        end: its end.
        slack: the slack it was answered with, AFTER_ALL where it has not been yet.
        coverage: share of its tuples that the answer counted, lambda of the paper.
        required: int64[groups], the required slack of each group (see `required_slack`), ascending; of many groups
            some that stand for all.
        settled: the least slack from which on the answers of all but a share delta of the groups stay within half of epsilon
            of what is known.
    """

    end: int
    slack: int
    coverage: float
    required: Ints
    settled: int = 0

    @property
    def is_answered(self) -> bool:
        """Whether it has an answer that was early."""
        return self.slack != AFTER_ALL

    @property
    def violated(self) -> float:
        """Share of the groups of which the answer broke the bound, as far as is known."""
        return _violated(self.required, self.slack)


class SlackPolicy(Protocol):
    """Chooses the slack of one view in one shard."""

    @property
    def slack(self) -> int:
        """The slack to use now."""

    def arrived(self, lateness: Lateness) -> None:
        """Takes in how late the stream is."""

    def known(self, outcome: WindowOutcome, age: int, *, final: bool = False) -> None:
        """Takes in what a window was worth: any number of times before it is final, once as final.

        Args:
            outcome: as far as is known; the same object as before where nothing is new but the age.
            age: event time since the window's end, microseconds.
            final: whether all its tuples are known; else `coverage`, `required` and `settled` may still change.
        """


@dataclass(slots=True)
class FixedSlack:
    """A slack that never changes: K-slack, a fixed watermark, or none at all."""

    slack: int

    def arrived(self, lateness: Lateness) -> None:
        """Not looked at."""

    def known(self, outcome: WindowOutcome, age: int, *, final: bool = False) -> None:
        """Not looked at."""


@dataclass(slots=True)
class _Pending:
    """What is known of a window that is not final.

    Attributes:
        outcome: as it was told.
        age: event time since its end when it was told last.
        required: its required slacks, condensed.
        violated: share of them that its answer broke.
        largest: the largest of them.
    """

    outcome: WindowOutcome
    age: int
    required: Ints
    violated: float
    largest: int

    @classmethod
    def of(cls, outcome: WindowOutcome, age: int) -> _Pending:
        required = _condensed(outcome.required)
        largest = int(required.max())
        violated = _violated(required, outcome.slack) if largest > outcome.slack else 0.0
        return cls(outcome, age, required, violated, largest)


@dataclass(slots=True)
class RequiredSlack:
    """Ours: the least slack that all but a share delta of the known windows' groups would have needed.

    - A window's loss at K is the share of its groups that needed more. K is the least slack at which
      (n mean loss + B) / (n + 1) <= delta' over the n newest known windows (see `least_slack`). With one group B is 1, so that the
      expected loss of the next one is at most delta' where windows are exchangeable (conformal risk control, Angelopoulos et al. 2024,
      Theorem 1: the conformal quantile); with many it is learned, and there is no such bound for every distribution.
      Windows that overlap tell the same thing several times: n counts them sqrt(size / slide) times fewer.
    - Known are final windows, and those that are *ripe*: older than the age by which all but a share delta of the windows
      have settled, stay within half of epsilon of what becomes of them. Of a window that is not final this is known
      only as far as it happened within its age: the product-limit estimate for right truncation (Lynden-Bell 1971). It is
      believed once the stream is twice as old.
    - Windows that are not known yet raise K where what is known of them already does.
    - delta' <= delta repays violations beyond delta (adaptive conformal inference, Gibbs and Candes 2021), those of windows
      that are not final included.
    - As long as fewer than 2 / delta windows are known, overlap counted once, K is larger than they say, at first by half: delays
      grow in the course of a day, and a stream in its first hours has not seen the evening.
    - While more of as many windows that were answered last and are not final are violated than delta and chance have it, K is
      larger than they say, at most twice as large: in a stream that becomes more disordered the largest is not known yet.
    - Before 1 / delta windows are known, K is the largest delay so far, or the age of ripeness where that is less; and at
      least two thirds of the stream's age, up to six times the largest delay: longer ones cannot have shown.

    Attributes:
        bound: epsilon and delta.
        overlap: windows that tell as much as one that shares no tuples with others.
        rate: gamma of the repayment, a window.
        memory: of final windows; what is known of others is told again.
    """

    bound: ErrorBound
    overlap: float = 1.0
    rate: float = 0.03
    memory: SlackMemory = field(default_factory=SlackMemory)
    _pending: dict[int, _Pending] = field(default_factory=dict)
    _largest: int = 0
    _age: int = 0
    _slack: int | None = None
    _is_learning: bool = True
    _is_believed: bool = False
    _least_windows: int = field(init=False)
    _most_windows: int = field(init=False)

    def __post_init__(self) -> None:
        self._least_windows = ceil(1 / self.bound.delta)
        self._most_windows = ceil(max(_REMEMBERED, _WELL_KNOWN * self.overlap) / self.bound.delta)

    @classmethod
    def of(cls, plan: WindowPlan, memory: SlackMemory | None = None) -> RequiredSlack:
        """The policy of a view.

        Args:
            plan: the view.
            memory: what it remembers, None: nothing.
        """
        windows = plan.windows
        return cls(plan.bound, sqrt(windows.size / windows.slide), memory=memory or SlackMemory())

    @property
    def slack(self) -> int:
        """K."""
        if self._slack is None:
            self._slack = self._chosen()
        return self._slack

    @property
    def promised(self) -> bool:
        """Whether enough windows are final for the bound to be more than a hope."""
        return len(self.memory) >= self._least_windows * self.overlap

    @property
    def is_learning(self) -> bool:
        """Whether too few windows are known; those that wait for their answer are worth a look then."""
        known = len(self.memory)
        if known >= self._least_windows or known + len(self._pending) < self._least_windows:
            return known < self._least_windows
        return self.slack >= 0 and self._is_learning

    def arrived(self, lateness: Lateness) -> None:
        """Keeps how late the stream is and how long it has been seen."""
        self._largest, self._age = lateness.largest, lateness.age
        # else they tell nothing
        if self._is_learning or not self._is_believed:
            self._slack = None

    def known(self, outcome: WindowOutcome, age: int, *, final: bool = False) -> None:
        """Remembers a final window, or what is known of another one."""
        self._slack = None
        if final:
            self._pending.pop(outcome.end, None)
            self.memory.debt *= 0.5 ** (self.bound.delta / _HALF_LIFE)
            self.memory.add(_condensed(outcome.required), outcome.settled, self._most_windows)
            if outcome.is_answered:
                self.memory.debt = self._debt_after(outcome.violated - self.bound.delta)
            return
        pending = self._pending.get(outcome.end)
        if pending is not None and pending.outcome is outcome:
            pending.age = age
        else:
            self._pending[outcome.end] = _Pending.of(outcome, age)

    def forget(self, end: int) -> None:
        """A window is never told as final."""
        if self._pending.pop(end, None) is not None:
            self._slack = None

    def _chosen(self) -> int:
        known = len(self.memory)
        longest = min(self._largest * _MOST_BEYOND, int(self._age * _LEAST_OF_AGE))
        if known + len(self._pending) < self._least_windows and longest >= self._largest:
            # whichever of them are ripe
            self._is_learning, self._is_believed = True, False
            return longest
        pending = [self._pending[end] for end in sorted(self._pending)]
        answered = [each for each in pending if each.outcome.is_answered]
        ripe_at = self._ripe_at(pending)
        is_believed = ripe_at is not None and self._age >= _BELIEVED_FROM * ripe_at
        self._is_believed = is_believed
        ripe = [each for each in pending if is_believed and ripe_at is not None and each.age >= ripe_at]
        self._is_learning = known + len(ripe) < self._least_windows
        if self._is_learning:
            is_told = is_believed and ripe_at is not None and known + len(pending) >= _FEW_WINDOWS
            return max(
                min(self._largest, ripe_at) if is_told and ripe_at is not None else self._largest, longest
            )
        beyond = sum(each.violated for each in answered) - self.bound.delta * sum(
            each.outcome.is_answered for each in ripe
        )
        debt = max(0.0, self._debt_after(beyond))
        level = max(self.bound.delta / 10, self.bound.delta - self.rate * debt)
        found = self._least_slack(ripe, level)
        if answered:
            found = max(found, self._least_slack(answered, level))
        return int(found * (1 + max(self._youth(known + len(ripe)), self._alarm(answered))))

    def _youth(self, known: int) -> float:
        """By which share K exceeds what so many windows say: a stream that is young has not shown all that becomes of it."""
        return _MARGIN * max(0.0, 1 - known / self.overlap * self.bound.delta / _WELL_KNOWN)

    def _alarm(self, answered: Sequence[_Pending]) -> float:
        """By which share K exceeds what windows say while those answered last break their bounds more often than chance has it: what
        becomes more disordered has not shown yet how far that goes. Windows that overlap are violated together, by chance too."""
        newest = answered[-ceil(_WELL_KNOWN * self.overlap / self.bound.delta) :]
        violated = sum(each.violated for each in newest)
        allowed = self.bound.delta * len(newest) + _CHANCE * self.overlap
        return 1 - allowed / violated if violated > allowed else 0.0

    def _debt_after(self, beyond: float) -> float:
        return min(max(-_CHANCE, self.memory.debt + beyond), _MOST_DEBT / self.bound.delta)

    def _ripe_at(self, pending: Sequence[_Pending]) -> int | None:
        """The age from which on windows that are not final count as known, None where nothing says so."""
        young = [(each.outcome.settled, each.age) for each in pending if each.outcome.settled <= each.age]
        if not young:
            return None
        if self.memory.is_zero and not any(settled for settled, _ in young):
            return 0
        times, ages = (np.array(each) for each in zip(*young, strict=True))
        settled = np.concatenate([self.memory.settled, times])
        limits = np.concatenate([np.full(len(self.memory.settled), AFTER_ALL), ages])
        return truncated_quantile(settled, limits, 1 - self.bound.delta)

    def _least_slack(self, others: Sequence[_Pending], level: float) -> int:
        """The least slack at which the mean loss of the newest final windows and others is allowed."""
        if self.memory.is_zero and not any(each.largest for each in others):
            return 0
        sizes = np.append(self.memory.sizes, [len(each.required) for each in others]).astype(np.int64)
        required = np.concatenate([self.memory.required, *(each.required for each in others)])
        kept = sizes[-self._most_windows :]
        required = required[len(required) - int(kept.sum()) :]
        return least_slack(required, kept, level, self.overlap)


def least_slack(required: Ints, sizes: Ints, level: float, overlap: float = 1.0) -> int:
    """The least slack at which the expected loss of the next window is at most `level`.

    Args:
        required: int64, required slacks of the groups of windows, those of a window together.
        sizes: int64[windows], how many each has, at least one.
        level: of the loss, the share of a window's groups that need more; for the next window a bound in expectation where B bounds its loss.
        overlap: windows that tell the same thing.

    Returns:
        The least K with (n mean loss(K) + B(K)) / (n + 1) <= level, n = windows / overlap; where there is none the largest
        required slack. B bounds the loss of the next window: twice the largest of those known, at most 1, as it is with one
        group. Source: conformal risk control, Angelopoulos et al. 2024, (4).
    """
    n = len(sizes) / overlap
    # more than that is not allowed, whatever B
    most = min(len(required), int((n + 1) * level / n * len(sizes) * sizes.max()) + 2)
    largest = np.argpartition(required, len(required) - most)[-most:]
    order = largest[np.argsort(required[largest])[::-1]]
    window = np.repeat(np.arange(len(sizes)), sizes)[order]
    each = 1 / sizes[window]
    # element i: of a slack just below the i-th largest
    mean = np.cumsum(each) / len(sizes)
    bound = np.minimum(1.0, _BEYOND_KNOWN * np.maximum.accumulate(_ranks(window) * each))
    place = int(np.searchsorted(n * mean + bound, (n + 1) * level + _ROUNDING, "right"))
    return int(required[order[min(place, most - 1)]])


def _ranks(labels: Ints) -> Ints:
    """Of each element how many of the same label there are up to it."""
    order = np.argsort(labels, kind="stable")
    first = np.searchsorted(labels[order], labels[order], "left")
    ranks = np.empty(len(labels), np.int64)
    ranks[order] = np.arange(1, len(labels) + 1) - first
    return ranks


def _violated(required: Ints, slack: int) -> float:
    return np.count_nonzero(required > slack) / len(required)


def _condensed(required: Ints) -> Ints:
    """The required slacks, of many those in the middle of equal parts in order of size."""
    groups = len(required)
    if groups <= _MOST_GROUPS:
        return required
    places = (2 * np.arange(_MOST_GROUPS) + 1) * groups // (2 * _MOST_GROUPS)
    return np.sort(required)[places]


def truncated_quantile(times: Ints, limits: Ints, level: float) -> int:
    """A quantile of times of which each is known only as it lies below a limit of its own.

    Args:
        times: int64, those known, at least one.
        limits: int64, for each the time until which it could be known, not below it.
        level: share of the times that lie at or below the quantile.

    Returns:
        The quantile by the product-limit estimate for right truncation: F(t) = prod over the times s > t of
        1 - (times equal to s) / (times <= s with limits >= s). Source: Lynden-Bell 1971; Woodroofe 1985.
    """
    found, counts = np.unique(times, return_counts=True)
    at_risk = np.searchsorted(np.sort(times), found, "right") - np.searchsorted(
        np.sort(limits), found, "left"
    )
    below = np.cumprod((1 - counts / np.maximum(at_risk, counts))[::-1])[::-1]
    # the share at or below each time is what lies below the next one
    share = np.append(below[1:], 1.0)
    return int(found[np.argmax(share >= level)])
