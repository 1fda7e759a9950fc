"""Slack: how long after its end a window waits for late tuples before it is answered.

All times are microseconds of event time. A policy is told of every delay and, once a window is known,
of what its answer was worth; it says which slack to use next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import Protocol

import numpy as np

from penstock.operators.windows.clocks import Lateness
from penstock.operators.windows.slack_memory import Ints, SlackMemory
from penstock.operators.windows.slack_quantiles import least_slack, truncated_quantile
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
        threshold: the coverage that its bound needs, lambda_thr of the paper (see `coverage`); None where its policy does not
            aim at one, or the window is not final.
    """

    end: int
    slack: int
    coverage: float
    required: Ints
    settled: int = 0
    threshold: float | None = None

    @property
    def is_answered(self) -> bool:
        """Whether it has an answer that was early."""
        return self.slack != AFTER_ALL

    @property
    def violated(self) -> float:
        """Share of the groups of which the answer broke the bound, as far as is known."""
        return _violated(self.required, self.slack)


@dataclass(frozen=True, slots=True, eq=False)
class SlackState:
    """What a policy remembers, to be stored; it hears of pending windows and of lateness again when it is restored.

    Attributes:
        numbers: by name.
        arrays: int64, by name.
    """

    numbers: Mapping[str, float] = field(default_factory=dict)
    arrays: Mapping[str, Ints] = field(default_factory=dict)


class SlackPolicy(Protocol):
    """Chooses the slack of one view in one shard. All members but `slack` have a body for policies that need no other."""

    @property
    def slack(self) -> int:
        """The slack to use now."""

    @property
    def outlasts_horizon(self) -> bool:
        """Whether windows wait for K where it is longer than the horizon: none is final before K answers it."""
        return True

    @property
    def aims_at_coverage(self) -> bool:
        """Whether outcomes of final windows need a `threshold`."""
        return False

    @property
    def promised(self) -> bool:
        """Whether the error bound can be promised."""
        return False

    @property
    def has_learned(self) -> bool:
        """Whether it has heard of a final window."""
        return False

    @property
    def is_learning(self) -> bool:
        """Whether it wants to hear of windows that wait for their answer."""
        return False

    def arrived(self, lateness: Lateness) -> None:  # noqa: ARG002
        """Takes in how late the stream is."""
        return

    def brought(self, slacks: Ints, tuples: Ints) -> None:  # noqa: ARG002
        """Takes in the view's own tuples of a batch.

        Args:
            slacks: the least slack that each of some panes needs for its tuples to be in time for every window of theirs, microseconds.
            tuples: how many each has.
        """
        return

    def known(self, outcome: WindowOutcome, age: int, *, final: bool = False) -> None:  # noqa: ARG002
        """Takes in what a window was worth: any number of times before it is final, once as final.

        Args:
            outcome: as far as is known; the same object as before where nothing is new but the age.
            age: event time since the window's end, microseconds.
            final: whether all its tuples are known; else `coverage`, `required` and `settled` may still change.
        """
        return

    def forget(self, end: int) -> None:  # noqa: ARG002
        """A window is never told as final."""
        return

    def snapshot(self) -> SlackState:
        """What it remembers, as it is: to be stored before anything else happens."""
        return SlackState()

    def restore(self, state: SlackState) -> None:  # noqa: ARG002
        """Goes on from a state of its own."""
        return

    def figures(self) -> dict[str, float]:
        """What K follows from, by name; times in microseconds."""
        return {}


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
class RequiredSlack(SlackPolicy):
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
    def of(cls, plan: WindowPlan) -> RequiredSlack:
        """The policy of a view."""
        return cls(plan.bound, sqrt(plan.windows.size / plan.windows.slide))

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
    def has_learned(self) -> bool:
        """Whether a final window is known."""
        return len(self.memory) > 0

    @property
    def outlasts_horizon(self) -> bool:
        """Whether windows wait for K beyond the horizon: as long as it is learned."""
        return self.is_learning

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

    def snapshot(self) -> SlackState:
        """The memory; see `SlackPolicy`."""
        memory = self.memory
        arrays = {"required": memory.required, "sizes": memory.sizes, "settled": memory.settled}
        return SlackState({"debt": memory.debt}, arrays)

    def restore(self, state: SlackState) -> None:
        """Goes on with a memory; see `SlackPolicy`."""
        self.memory = SlackMemory(state.numbers["debt"], **state.arrays)
        self._slack = None

    def figures(self) -> dict[str, float]:
        """How many windows are known, how many are needed, and the largest delay."""
        return {
            "known": len(self.memory),
            "needed": ceil(self._least_windows * self.overlap),
            "is_learning": self.is_learning,
            "largest": self._largest,
        }

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


def _violated(required: Ints, slack: int) -> float:
    return np.count_nonzero(required > slack) / len(required)


def _condensed(required: Ints) -> Ints:
    """The required slacks, of many those in the middle of equal parts in order of size."""
    groups = len(required)
    if groups <= _MOST_GROUPS:
        return required
    places = (2 * np.arange(_MOST_GROUPS) + 1) * groups // (2 * _MOST_GROUPS)
    return np.sort(required)[places]
