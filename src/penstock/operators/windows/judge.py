"""What the slack policy of a view hears: what its answers turned out to be worth.

An answered window is looked at 2, 4, 8 ... slides after its slack was over and once more when it is final. Each look says
what share of its tuples the answer held, and which slack each group would have needed, of many groups each of a random
sample (`sampling`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.operators.windows.panes import Panes
from penstock.operators.windows.slack import SlackPolicy, WindowOutcome
from penstock.plan.times import BEFORE_ALL
from penstock.plan.windows import WindowPlan

#: weight of the newest window in the estimate of the coverage
_NEWEST = 0.05


@dataclass(slots=True)
class Watched:
    """An answered window that the policy hears of.

    Attributes:
        slack: slack of the view when the window closed; when it was answered, as long as it is open.
        first: what had arrived by then is in the answer that is judged.
        look: age in slides at which it is looked at next.
        outcome: what the policy heard last, None before.
        heard: what had arrived by then is in `outcome`.
    """

    slack: int
    first: int
    look: int = 2
    outcome: WindowOutcome | None = None
    heard: int = BEFORE_ALL


@dataclass(slots=True)
class Judged:
    """What is known of a view's answers.

    Attributes:
        coverage: estimate of the share of a window's tuples that its early answer holds, None before one is final.
        watched: windows that are not final and of which the policy hears, by end.
    """

    coverage: float | None = None
    watched: dict[int, Watched] = field(default_factory=dict)


class Judge:
    """Tells a policy what the answers of its view were worth.

    Args:
        plan: the view.
        policy: who hears.
        since: of windows that start at or before it is not known when their tuples came; they teach nothing.
        panes: what has arrived.
    """

    def __init__(self, plan: WindowPlan, policy: SlackPolicy, since: int, panes: Panes) -> None:
        self._plan = plan
        self.policy = policy
        self._since = since
        self._panes = panes
        self.state = Judged()

    @property
    def promised(self) -> bool:
        """Whether the view's bound can be promised."""
        return bool(getattr(self.policy, "promised", False))

    def answered(self, end: int, arrival: int) -> None:
        """A window has its first answer.

        Args:
            end: the window.
            arrival: what had arrived by then is in it.
        """
        if end - self._plan.windows.size > self._since:
            self.state.watched[end] = Watched(self.policy.slack, arrival)

    def closed(self, end: int, arrival: int) -> None:
        """A window that was answered beforehand has closed: what it was worth is what it is worth now."""
        watched = self.state.watched.get(end)
        if watched is not None:
            watched.slack, watched.first = self.policy.slack, arrival

    def forget(self, end: int) -> None:
        """The policy does not hear of a window any more."""
        self.state.watched.pop(end, None)

    def look(self, newest: int, frontier: int) -> None:
        """Tells what is known of the closed windows that are due to be looked at."""
        slide = self._plan.windows.slide
        ends = []
        for end, watched in self.state.watched.items():
            age = newest - end - watched.slack
            if end <= frontier and age >= watched.look * slide:
                while age >= watched.look * slide:
                    watched.look *= 2
                ends.append(end)
        for outcome in self._outcomes(ends, newest, is_final=False):
            self.policy.known(outcome)

    def finish(self, ends: Sequence[int], newest: int | None) -> None:
        """Windows are final."""
        state = self.state
        watched = [end for end in ends if end in state.watched]
        for outcome in self._outcomes(watched, newest, is_final=True):
            del state.watched[outcome.end]
            self.policy.known(outcome)
            before = outcome.coverage if state.coverage is None else state.coverage
            state.coverage = before + _NEWEST * (outcome.coverage - before)

    def _outcomes(
        self, ends: Sequence[int], newest: int | None, *, is_final: bool
    ) -> Iterator[WindowOutcome]:
        """What answered windows were worth, in their order."""
        size = self._plan.windows.size
        own = {end: self.state.watched[end] for end in ends}
        arrived = {end: self._panes.newest_arrival(end - size, end) for end in ends}
        unheard = sorted(end for end in ends if own[end].outcome is None or arrived[end] > own[end].heard)
        for history in self._panes.histories(unheard, size):
            required = history.required_slack(self._plan.aggregates, self._plan.bound)
            groups = np.split(required, history.bounds[1:-1])
            for end, slacks in zip(history.ends, groups, strict=True):
                share = self._panes.coverage(end - size, end, own[end].first)
                weight = 2.0 ** self._panes.halvings(end - size, end)
                own[end].outcome = WindowOutcome(end, own[end].slack, share, slacks, is_final, weight=weight)
                own[end].heard = arrived[end]
        for end in ends:
            known = own[end].outcome
            assert known is not None, "heard above"
            age = 0 if newest is None else newest - end - known.slack
            yield replace(known, final=is_final, age=age)
