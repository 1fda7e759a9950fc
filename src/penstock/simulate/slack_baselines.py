"""Slack policies that ours is compared with; those the product itself can use are in `operators.slack`.

Sources: K-slack (Babu et al.), MP-K-slack (Mutschler and Philippsen), AQ-K-slack (Ji et al.), as the HPM
paper names them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from penstock.operators.windows.clocks import Lateness
from penstock.operators.windows.slack import Ints, WindowOutcome


@dataclass(slots=True)
class LargestDelaySlack:
    """MP-K-slack: the largest delay so far."""

    slack: int = 0

    def arrived(self, lateness: Lateness) -> None:
        """Keeps the largest delay."""
        self.slack = max(self.slack, int(lateness.delays.max(initial=0)))

    def known(self, outcome: WindowOutcome) -> None:
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

    def known(self, outcome: WindowOutcome) -> None:
        """Not looked at."""
