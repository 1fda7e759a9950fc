"""The slack of a view with a deadline: how long its windows wait for late tuples, learned from what they missed.

A window holds what had come when it was created, and nothing corrects it: so it is its one answer that has to keep the bound. What is
learned from, and how, is what window views have (docs/decisions/0011): the required slacks of the newest final windows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.deadlines.instances import Tuples
from penstock.operators.hashing import canonical_columns
from penstock.operators.windows.aggregates import Parts, lift_values
from penstock.operators.windows.clocks import Clocks
from penstock.operators.windows.judge import Judge
from penstock.operators.windows.lifecycle import WindowStates, ends_of
from penstock.operators.windows.operator import OperatorState
from penstock.operators.windows.panes import PANE, Panes
from penstock.operators.windows.shard_state import ShardState, read_state, stored_state
from penstock.operators.windows.slack_policies import policy_of
from penstock.operators.windows.view import ViewState
from penstock.plan.times import BEFORE_ALL
from penstock.plan.windows import ERROR_BOUND, Aggregate, WindowPlan

Integers = npt.NDArray[np.int64]

#: stands for aggregates of the user's, of which no error is known before they are worked out: the share of a group's tuples
_SHARE = Aggregate("count", None, pa.int64())


class LearnedSlack:
    """Chooses the slack of one view; a function of what its log has brought.

    Args:
        plan: the view; without aggregates of its own its error is the share of each group's tuples that an answer lacks.
        floor: windows that begin before it lack tuples, microseconds: nothing is learned from them.
        most_delay: a longer delay tells nothing, microseconds.
        least_horizon: a window is known no sooner after its end, microseconds.
    """

    def __init__(self, plan: WindowPlan, floor: int, most_delay: int, least_horizon: int) -> None:
        judged = tuple(each for each in plan.aggregates if each.function != ERROR_BOUND)
        plan = replace(plan, aggregates=judged or (_SHARE,))
        self._plan = plan
        self._keys = [name for name, _ in plan.keys]
        self._parts = Parts.of(plan.aggregates)
        self._panes = Panes(self._parts, self._keys)
        self._clocks = Clocks(most_delay, max(least_horizon, plan.windows.size))
        self._policy = policy_of(plan)
        self._judge = Judge(plan, self._policy, floor - 1, self._panes)
        self._windows = WindowStates()

    @staticmethod
    def columns(plan: WindowPlan) -> tuple[str, ...]:
        """The columns of a view's tuples that are looked at, each once."""
        return tuple(dict.fromkeys([*(name for name, _ in plan.keys), *Parts.of(plan.aggregates).arguments]))

    @property
    def slack(self) -> int:
        """K, microseconds."""
        return self._policy.slack

    @property
    def figures(self) -> dict[str, Any]:
        """What a status says of it: the policy and what K follows from."""
        return {"slack_policy": self._plan.slack_policy.policy, "slack_figures": self._policy.figures()}

    @property
    def promised(self) -> bool:
        """Whether enough windows are known for the bound to be promised."""
        return self._policy.promised

    @property
    def coverage(self) -> float | None:
        """Estimated share of a window's tuples that it holds; None as long as nothing can be promised."""
        return self._judge.state.coverage if self.promised else None

    @property
    def needed(self) -> int:
        """Tuples before it belong to no window that may still be learned from, microseconds."""
        return max(BEFORE_ALL, self._windows.final - self._plan.windows.size)

    def put(self, tuples: Tuples, arrival: int) -> None:
        """Puts back tuples of an entry that has been taken in.

        Args:
            tuples: with the columns of `columns`.
            arrival: when they came: the stream's newest event time before their entry.
        """
        columns = {name: tuples.columns.column(name) for name in self.columns(self._plan)}
        held = pa.table({**columns, PANE: self._panes_of(tuples.times)})
        held = canonical_columns(held, (*self._keys, *self._parts.values))
        keys = [PANE, *self._keys]
        values = {name: lift_values(held, keys, name) for name in self._parts.values}
        self._panes.append(self._parts.lift(held, keys), values, arrival)

    def take_in(self, tuples: Tuples, arrival: int, newest: int | None, delays: Integers) -> None:
        """Takes in an entry.

        Args:
            tuples, arrival: as of `put`.
            newest: the stream's newest event time by then, None where there is none.
            delays: of some of the stream's tuples, the largest among them.
        """
        oldest = int(tuples.times.min()) if len(tuples.times) else None
        if oldest is not None:
            self.put(tuples, arrival)
            state = self._windows
            for end in ends_of(self._plan.windows, self._panes_of(tuples.times)).tolist():
                if state.final < end <= state.frontier and end not in self._judge.state.watched:
                    # none of its tuples had come when it closed
                    self._judge.answered(end, BEFORE_ALL, self.slack)
        if newest is not None or oldest is not None:
            self._policy.arrived(self._clocks.take_in(newest, oldest, delays))
        if oldest is not None:
            panes, counts = np.unique(self._panes_of(tuples.times), return_counts=True)
            self._policy.brought(*self._clocks.in_time(panes + self._plan.windows.pane, counts))
            self._judge.brought(panes, self._clocks)

    def frontier(self, moment: int) -> int:
        """Until which end windows are closed once the stream has come to a moment, microseconds; it never goes back."""
        state = self._windows
        state.frontier = max(state.frontier, moment - self.slack, self._known())
        return state.frontier

    def closed(self, ends: Iterable[int], arrival: int) -> None:
        """Windows have closed with what had arrived by then; looks at what those before turned out to be worth."""
        for end in ends:
            self._judge.answered(end, arrival, self.slack)
        newest, state, slack = self._clocks.newest, self._windows, self.slack
        if newest is None:
            return
        self._judge.look(newest, state.frontier)
        # what was just heard may have shortened K
        known = min(self._known(), state.frontier)
        if known > state.final:
            state.final = known
            watched = self._judge.state.watched
            self._judge.finish(sorted(end for end in watched if end <= state.final), newest, slack)
            self._panes.drop_before(self.needed)

    def stored(self) -> bytes:
        """What has been learned, without the tuples that are needed still; bounded as the state of a shard is."""
        view = ViewState(self._windows, self._judge.state, slack=self._policy.snapshot())
        operator = OperatorState(self._clocks.state, is_whole=True, views={self._plan.name: view})
        return stored_state(ShardState(None, {0: operator}))

    def restore(self, stored: bytes) -> None:
        """Goes on from there; the tuples are put for themselves.

        Raises:
            CheckpointError: another version of Penstock stored it.
        """
        state = read_state(stored).operators[0]
        self._clocks.restore(state.time)
        view = state.views[self._plan.name]
        self._windows, self._judge.state = view.windows, view.judged
        self._policy.restore(view.slack)
        self._policy.arrived(self._clocks.lateness)
        self._judge.tell_again()

    def _known(self) -> int:
        """Windows that end by then are known in full, and closed."""
        clocks = self._clocks
        if clocks.newest is None or not self._policy.outlasts_horizon:
            return clocks.known
        return min(clocks.known, clocks.newest - self.slack - 1)

    def _panes_of(self, times: Integers) -> Integers:
        pane, start = self._plan.windows.pane, self._plan.windows.start
        found: Integers = (times - start) // pane * pane + start
        return found
