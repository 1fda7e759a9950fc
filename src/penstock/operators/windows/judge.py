"""What the slack policy of a view hears: what its answers turned out to be worth.

A closed window is looked at two slides after its end, then every slide, an old one every twentieth of its age, and once more
when it is final. Each look says what share of its tuples the answer held, which slack each group would have needed, of many
groups each of a random sample (`sampling`), and from which slack on the answers are near to what is known. As long as the
policy knows too little, windows that wait for their answer are looked at too.

A batch that moves the stream on far beyond the end of a window and brings tuples of it does not tell which of them were late:
all have one arrival. Of such windows the policy does not hear, else catching up would teach it that nothing is ever late.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import pyarrow as pa

from penstock.operators.windows.clocks import Clocks
from penstock.operators.windows.coverage import window_threshold
from penstock.operators.windows.lifecycle import ends_of
from penstock.operators.windows.selections import WindowPanes
from penstock.operators.windows.slack import SlackPolicy, WindowOutcome
from penstock.operators.windows.slack_memory import Ints
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.plan.windows import WindowPlan

#: weight of the newest window in the estimate of the coverage
_NEWEST = 0.05
#: a window has settled once its error stays below this share of epsilon
_CLOSER = 0.5
#: age in slides at which a window is looked at first, and looks an old window's age is apart
_FIRST_LOOK, _LOOKS_AN_AGE = 2, 20
#: ... of one of which the policy does not hear
_NEVER = AFTER_ALL


@dataclass(slots=True)
class Watched:
    """A window that the policy hears of.

    Attributes:
        slack: the slack by which its answer holds what it does, when the window closed, or, as long as it is open, when it was answered;
            AFTER_ALL as long as it has not been answered.
        first: what had arrived by then is in the answer that is judged.
        look: age in slides at which it is looked at next; AFTER_ALL where the policy does not hear of it.
        outcome: what the policy heard last, None before.
        heard: what had arrived by then is in `outcome`.
        age: event time since its end when the policy heard of it last.
    """

    slack: int
    first: int
    look: int = _FIRST_LOOK
    outcome: WindowOutcome | None = None
    heard: int = BEFORE_ALL
    age: int = 0


@dataclass(slots=True)
class Judged:
    """What is known of a view's answers.

    Attributes:
        coverage: estimate of the share of a window's tuples that an early answer holds with the slack in use, None before a window is final.
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

    def __init__(self, plan: WindowPlan, policy: SlackPolicy, since: int, panes: WindowPanes) -> None:
        self._plan = plan
        self.policy = policy
        self._since = since
        self._panes = panes
        self.state = Judged()

    def brought(self, panes: Ints, clocks: Clocks) -> None:
        """The newest batch has brought tuples: nothing is learned from windows with such that it has left far behind.

        Far is farther than a slide, and than batches usually go.

        Args:
            panes: starts of the panes with such tuples.
            clocks: after the batch.
        """
        windows, newest = self._plan.windows, clocks.newest
        until = BEFORE_ALL if newest is None else newest - max(windows.slide, clocks.stride)
        if until <= clocks.at:
            return
        ends = ends_of(windows, panes)
        since = max(clocks.at, windows.last_end(self._since))
        for end in ends[(ends > since) & (ends <= until)].tolist():
            self.forget(end)
            self.state.watched[end] = Watched(AFTER_ALL, BEFORE_ALL, _NEVER)

    def awaited(self, ends: Iterable[int]) -> None:
        """Windows are over and wait for their answer."""
        for end in ends:
            if end not in self.state.watched and self._plan.windows.begin(end) > self._since:
                self.state.watched[end] = Watched(AFTER_ALL, BEFORE_ALL)

    def answered(self, end: int, arrival: int, slack: int) -> None:
        """A window has its first answer.

        Args:
            end: the window.
            arrival: what had arrived by then is in it.
            slack: it was answered with.
        """
        watched = self.state.watched.get(end)
        if watched is not None:
            self._judge_anew(end, watched, arrival, slack)
        elif self._plan.windows.begin(end) > self._since:
            self.state.watched[end] = Watched(_held(end, arrival, slack), arrival)

    def closed(self, end: int, arrival: int, slack: int) -> None:
        """A window that was answered beforehand has closed: what it was worth is what it is worth now, when its answer may be promised."""
        watched = self.state.watched.get(end)
        if watched is not None:
            self._judge_anew(end, watched, arrival, slack)

    def closed_empty(self, end: int) -> None:
        """A window was empty when it closed: whatever it gets comes too late for any slack that it may have closed with."""
        if end not in self.state.watched and self._plan.windows.begin(end) > self._since:
            self.state.watched[end] = Watched(0, BEFORE_ALL)

    def tell_again(self) -> None:
        """A policy that knows of final windows alone hears what was heard of the others."""
        for watched in self.state.watched.values():
            self._tell(watched)

    def forget(self, end: int) -> None:
        """The policy does not hear of a window any more."""
        self.state.watched.pop(end, None)
        self.policy.forget(end)

    def coming(self, newest: int, frontier: int, due: Sequence[int], final: Sequence[int]) -> list[int]:
        """Ends of the windows that `look`, and `finish`, are about to find out more about.

        Args:
            newest, frontier: as `look` will have them.
            due: ends of the windows that are answered before.
            final: of those that become final.
        """
        watched, slide = self.state.watched, self._plan.windows.slide
        ends = self._due(newest, frontier)
        ends += (end for end in final if end in watched and watched[end].look != _NEVER)
        since = self._plan.windows.last_end(self._since)
        new = (end for end in due if end not in watched and end > since)
        return [*self._unheard(ends)[0], *(end for end in new if (newest - end) // slide >= _FIRST_LOOK)]

    def look(self, newest: int, frontier: int) -> None:
        """Tells what is known of the windows that are due to be looked at, closed or awaited ones."""
        ends = self._due(newest, frontier)
        self._hear(ends)
        for end in ends:
            watched, age = self.state.watched[end], (newest - end) // self._plan.windows.slide
            watched.look = age + max(1, age // _LOOKS_AN_AGE)
            watched.age = newest - end
            self._tell(watched)

    def closed_final(self, ends: Sequence[int], newest: int | None) -> None:
        """Windows are final as they close: there is no early answer to judge, or one that was given beforehand and not promised, but what
        slack they required is known."""
        for end in ends:
            watched = self.state.watched.get(end)
            if watched is not None:
                watched.slack, watched.first = AFTER_ALL, BEFORE_ALL
                if watched.outcome is not None:
                    watched.outcome = replace(watched.outcome, slack=AFTER_ALL)
        self.finish(ends, newest, self.policy.slack)

    def finish(self, ends: Sequence[int], newest: int | None, slack: int) -> None:
        """Windows are final.

        Args:
            ends: of the windows.
            newest: the newest event time seen.
            slack: in use: what an answer by it would have held is told of answers to come.
        """
        state = self.state
        own = [end for end in ends if end in state.watched]
        heard = [end for end in own if state.watched[end].look != _NEVER]
        begin = self._plan.windows.begin
        for end, arrived in self._hear(heard).items():
            outcome = state.watched[end].outcome
            assert outcome is not None, "heard above"
            if self.policy.aims_at_coverage:
                outcome = replace(outcome, threshold=self._threshold(end))
            self.policy.known(outcome, 0 if newest is None else newest - end, final=True)
            until = end + slack - 1
            share = 1.0 if arrived <= until else self._panes.coverage(begin(end), end, until)
            before = share if state.coverage is None else state.coverage
            state.coverage = before + _NEWEST * (share - before)
        for end in own:
            del state.watched[end]

    def _due(self, newest: int, frontier: int) -> list[int]:
        """Ends of the windows that are due to be looked at."""
        slide = self._plan.windows.slide
        return [
            end
            for end, each in self.state.watched.items()
            if (newest - end) // slide >= each.look and (end <= frontier or each.slack == AFTER_ALL)
        ]

    def _hear(self, ends: Sequence[int]) -> dict[int, int]:
        """Finds out what windows were worth of which more has arrived than was heard; when the newest rows of each arrived."""
        plan, watched, begin = self._plan, self.state.watched, self._plan.windows.begin
        unheard, arrived = self._unheard(ends)
        for end, (required, closer) in self._panes.required(plan, unheard, (1.0, _CLOSER)):
            own, newest = watched[end], arrived[end]
            share = 1.0 if newest <= own.first else self._panes.coverage(begin(end), end, own.first)
            # the least that so large a share of the window's groups are no larger than
            rank = ceil((1 - plan.bound.delta) * len(closer)) - 1
            own.outcome = WindowOutcome(end, own.slack, share, required, int(closer[rank]))
            own.heard = newest
        return arrived

    def _unheard(self, ends: Sequence[int]) -> tuple[list[int], dict[int, int]]:
        """The windows of which more has arrived than was heard, ascending; when the newest rows of each arrived."""
        watched = self.state.watched
        arrived = dict(zip(ends, self._panes.newest_arrivals(ends, self._plan.windows), strict=True))
        return sorted(
            end for end in arrived if watched[end].outcome is None or arrived[end] > watched[end].heard
        ), arrived

    def _threshold(self, end: int) -> float:
        """The coverage that the bound of a window needs."""
        contents = self._panes.contents(self._plan.windows.begin(end), end)
        partials = pa.concat_tables([content.partials for content in contents])
        keys = [name for name, _ in self._plan.keys]
        return window_threshold(partials, keys, self._plan.aggregates, self._plan.bound)

    def _judge_anew(self, end: int, watched: Watched, arrival: int, slack: int) -> None:
        """A window is answered, or closed, with what has arrived by then."""
        watched.slack, watched.first = _held(end, arrival, slack), arrival
        if watched.outcome is not None:
            share = self._panes.coverage(self._plan.windows.begin(end), end, arrival)
            watched.outcome = replace(watched.outcome, slack=watched.slack, coverage=share)
            self._tell(watched)

    def _tell(self, watched: Watched) -> None:
        if watched.outcome is not None:
            self.policy.known(watched.outcome, watched.age)


def _held(end: int, arrival: int, slack: int) -> int:
    """The slack whose answer would hold what has arrived by then: the one it was given with, but where that has just fallen, or later steps of a
    batch have come."""
    return max(slack, arrival + 1 - end)
