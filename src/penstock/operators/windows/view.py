"""One window view of an operator: answers its windows as they become due.

What becomes of a window is said by three parts: its life (`lifecycle`), what its answers were worth (`judge`), and what
late tuples change (`corrector`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.answering import Answering
from penstock.operators.windows.answers import Answer, LateCounts, Progress, Standing
from penstock.operators.windows.clocks import Clocks
from penstock.operators.windows.content import Content
from penstock.operators.windows.corrector import Changes, Corrector, Registered
from penstock.operators.windows.judge import Judge, Judged
from penstock.operators.windows.lifecycle import Beginning, Lifecycle, Told, WindowStates
from penstock.operators.windows.merged_windows import Span, in_blocks
from penstock.operators.windows.selections import WindowPanes
from penstock.operators.windows.slack import SlackPolicy, SlackState
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.plan.windows import WindowPlan


@dataclass(slots=True)
class ViewState:
    """Everything a view remembers; see the parts."""

    windows: WindowStates = field(default_factory=WindowStates)
    judged: Judged = field(default_factory=Judged)
    registered: Registered = field(default_factory=Registered)
    slack: SlackState = field(default_factory=SlackState)


class View:
    """Answers the windows of one view.

    Args:
        plan: the view.
        policy: chooses its slack.
        floor: windows that end at or before it were over before the view began, and are not answered.
        gamma: see `Corrector`.
        parts: what panes hold.
        panes, clocks, beginning: the operator's.
    """

    def __init__(
        self,
        plan: WindowPlan,
        policy: SlackPolicy,
        floor: int,
        gamma: int,
        parts: Parts,
        panes: WindowPanes,
        clocks: Clocks,
        beginning: Beginning,
    ) -> None:
        self.plan = plan
        self.policy = policy
        self._panes = panes
        self._clocks = clocks
        self.windows = Lifecycle(plan.windows, floor, beginning)
        self.judge = Judge(plan, policy, beginning.since, panes)
        self.corrector = Corrector(plan, parts, panes, gamma)
        #: windows that end by then have been answered beforehand by the newest `advance`
        self._beforehand = BEFORE_ALL

    def snapshot(self) -> ViewState:
        """What the view remembers, as it is: to be stored or restored before anything else happens."""
        return ViewState(self.windows.state, self.judge.state, self.corrector.state, self.policy.snapshot())

    def restore(self, state: ViewState) -> None:
        """Goes on from a state; the policy hears again what it heard of windows that are not final."""
        self.windows.state = state.windows
        self.judge.state = state.judged
        self.corrector.state = state.registered
        self.policy.restore(state.slack)
        self.judge.tell_again()

    def choose(self, plan: WindowPlan, policy: SlackPolicy) -> None:
        """Another policy chooses the slack; it hears what was heard of windows that are not final."""
        self.plan, self.policy, self.judge.policy = plan, policy, policy
        self.judge.tell_again()

    def needed(self, panes: Sequence[int]) -> set[int]:
        """Those of some panes that a window still wants."""
        windows = self.windows
        return {
            pane
            for pane in panes
            if any(end > windows.floor and windows.wants(end) for end in self.plan.windows.ends(pane))
        }

    def register(self, tuples: Mapping[int, int], late: LateCounts) -> tuple[set[int], set[int]]:
        """Registers late tuples with their closed windows.

        Args:
            tuples: their number by pane.
            late: counts them.

        Returns:
            The panes that a window still wants, and the final windows that got tuples, by `Beyond.start`.
        """
        windows = self.windows
        settled = max(windows.state.frontier, windows.floor)
        needed, beyond = set(), set()
        for pane, count in tuples.items():
            ends = self.plan.windows.ends(pane)
            if ends[0] > settled:
                needed.add(pane)
                continue
            for end in ends:
                if end <= windows.floor:
                    late.before += count
                    continue
                is_wanted = windows.wants(end)
                if is_wanted:
                    needed.add(pane)
                if not windows.is_closed(end):
                    continue
                late.registered += count
                if is_wanted:
                    self.corrector.register(end, pane)
                else:
                    late.beyond += count
                    beyond.add(end - self.plan.windows.size)
        return needed, beyond

    def coming(self, *, goes_on: bool) -> tuple[list[Span], list[Span]]:
        """The windows that the next step is likely to answer, and those that it is likely to look back at.

        Args:
            goes_on: whether it is `pass_step`; else `advance`.
        """
        newest, windows, begin = self._clocks.newest, self.windows, self.plan.windows.begin
        if newest is None or (goes_on and not self.policy.is_learning):
            return [], []
        until = windows.state.frontier if goes_on else newest - self.policy.slack
        due = windows.due(self._ends, until)
        final = [] if goes_on else windows.becoming_final(self._known())
        looked_at = set(self.judge.coming(newest, max(until, windows.state.frontier), due, final))
        if self.policy.is_learning:
            looked_at.update(windows.due(self._ends, newest))
        return (
            [(begin(end), end) for end in {*due, *final}],
            [(begin(end), end) for end in looked_at],
        )

    def advance(self, *, is_asked: bool, answer_all: bool) -> list[Answer]:
        """Answers what is due.

        Args:
            is_asked: whether late tuples are corrected however few, and windows answered beforehand.
            answer_all: whether every window with tuples is answered beforehand.
        """
        newest, reached, slack = self._clocks.newest, self._clocks.reached, self.policy.slack
        known = self._known()
        answers = [] if newest is None else self._close(newest - slack, known, slack)
        if is_asked or self.corrector.is_due:
            answers += self.correct()
        self._beforehand = BEFORE_ALL
        if is_asked:
            due = BEFORE_ALL if reached is None else reached - slack
            self._beforehand = AFTER_ALL if answer_all else due
            answers += self._anticipate(self._beforehand, slack)
        if newest is not None:
            self._look(newest)
            answers += self.finish(known, slack)
        return answers

    def pass_step(self) -> None:
        """A step of a batch has come of which more have come: nothing is answered before those, but as long as too little is known
        each is learned from."""
        newest = self._clocks.newest
        if newest is not None and self.policy.is_learning:
            self._look(newest)

    def _look(self, newest: int) -> None:
        if self.policy.is_learning:
            self.judge.awaited(self.windows.due(self._ends, newest))
        self.judge.look(newest, self.windows.state.frontier)

    def correct(self) -> list[Answer]:
        """The next revision of the windows that late tuples were registered for, where anything has changed."""
        ends = self.corrector.take()
        told = self.windows.state.told
        for end in ends:
            if end not in told:
                self._closed_empty(end)
        revised = self._revised(ends)
        return [revised[end] for end in ends if end in revised]

    def finish(self, until: int, slack: int) -> list[Answer]:
        """Closes the windows that end by `until`, and gives the final answer of those that lack nothing.

        Args:
            until: see above.
            slack: in use.
        """
        state = self.windows.state
        if until <= state.final:
            return []
        answers = self._close(until, until, slack)
        for end in sorted(self.corrector.state.ends - state.told.keys()):
            self._closed_empty(end)
        becoming_final = self.windows.becoming_final(until)
        state.final = until
        return answers + self._finalize(becoming_final, slack)

    def make_whole(self, since: int) -> list[Answer]:
        """Finishes and corrects the windows that have just got what they lacked.

        Args:
            since: those that start at or before it.
        """
        state = self.windows.state
        ends = self.windows.lacking(self._panes, since)
        for end in sorted(ends - state.told.keys()):
            self._closed_empty(end)
        final = sorted(end for end in ends if end <= state.final)
        answers = self._finalize(final, self.policy.slack)
        self.corrector.state.ends |= {end for end in ends if end > state.final}
        return answers + self.correct()

    def answer_from_history(
        self, start: int, before: Content | None, now: Content, revision: int
    ) -> Answer | None:
        """Corrects a final window.

        Args:
            start: a length of the windows before its end.
            before: its tuples but for those that have just come, None where there were none.
            now: all of them.
            revision: of the correction.

        Returns:
            The groups that differ, None where none does.
        """
        changes = self.corrector.from_history(before, now)
        if not changes.rows.num_rows:
            return None
        end = start + self.plan.windows.size
        return self._answering()(end, revision, changes.rows, changes.replaced, is_final=True)

    def standing(self) -> Standing:
        """How far the view has come."""
        ends, horizon = self.windows.open(self._ends), self._horizon
        return Standing(
            slack=min(self.policy.slack, horizon),
            promised=self.policy.promised,
            has_windows=len(ends) > 0 or self.policy.has_learned,
            horizon=horizon,
            newest=self._clocks.newest,
            reached=self._clocks.reached,
            open=len(ends),
            oldest=int(ends[0]) if len(ends) else None,
            final=self.windows.state.final,
            final_from=self._clocks.state.final_from,
            coverage=self.judge.state.coverage if self.policy.promised else None,
            bound=self.plan.bound,
            policy=self.plan.slack_policy.policy,
            figures=self.policy.figures(),
        )

    def progress(self) -> Progress:
        """How far the view's windows are answered."""
        state, ends = self.windows.state, self.windows.open(self._ends)
        final = min(state.final, int(ends[0]) - 1) if len(ends) else state.final
        return Progress(state.frontier, max(state.frontier, self._beforehand), final)

    @property
    def _ends(self) -> npt.NDArray[np.int64]:
        return self._panes.window_ends(self.plan.windows)

    @property
    def _horizon(self) -> int:
        """A window is final when its end is so far behind t_max; where its policy outlasts the horizon, not before K answers it."""
        horizon = self._clocks.state.horizon
        return max(horizon, self.policy.slack + 1) if self.policy.outlasts_horizon else horizon

    def _known(self) -> int:
        """Windows that end by then are final."""
        newest = self._clocks.newest
        return self._clocks.known if newest is None else min(self._clocks.known, newest - self._horizon)

    def _close(self, until: int, known: int, slack: int) -> list[Answer]:
        """Answers the windows that end by `until`, by the slack in use; those that end by `known` are final at once."""
        state = self.windows.state
        if until <= state.frontier:
            return []
        due = self.windows.due(self._ends, until)
        state.frontier = until
        final = {end for end in due if end <= known and not self.windows.lacks(end)}
        self.judge.closed_final(sorted(final), self._clocks.newest)
        first = [end for end in due if end not in state.told]
        again = [end for end in due if end in state.told and end not in final]
        for end in sorted({*first, *again} - final):
            if end in state.told:
                self.judge.closed(end, self._clocks.at, slack)
            else:
                self._begin(end, slack)
        answers, answering = self._revised(again), self._answering()
        nothing: pa.Table | None = None
        for end, rows in self._rows(first):
            if nothing is None:
                nothing = rows.slice(0, 0)
            answers[end] = answering(end, 0, rows, nothing, is_final=end in final)
        return [answers[end] for end in due if end in answers]

    def _anticipate(self, until: int, slack: int) -> list[Answer]:
        """Answers open windows that end by `until`, and again those that were and have got tuples since."""
        told = self.windows.state.told
        again = (end for end in told if not self.windows.is_closed(end))
        due = {*self.windows.due(self._ends, until), *again}
        arrivals = zip(due, self._panes.newest_arrivals(due, self.plan.windows), strict=True)
        grown = sorted(end for end, newest in arrivals if end not in told or newest > told[end].arrival)
        first = [end for end in grown if end not in told]
        answers = self._revised([end for end in grown if end in told])
        answering = self._answering()
        for end, rows in self._rows(first):
            self._begin(end, slack)
            answers[end] = answering(end, 0, rows, rows.slice(0, 0), is_final=False)
        return [answers[end] for end in grown if end in answers]

    def _begin(self, end: int, slack: int) -> None:
        """A window has its first answer and is not final."""
        self.windows.state.told[end] = Told(0, self._clocks.at)
        self.judge.answered(end, self._clocks.at, slack)

    def _closed_empty(self, end: int) -> Told:
        """A window was empty when it closed: its first answer is a correction."""
        told = self.windows.state.told[end] = Told(0, BEFORE_ALL)
        self.judge.closed_empty(end)
        return told

    def _revised(self, ends: Sequence[int]) -> dict[int, Answer]:
        """The next revision of those windows, which were answered and are not final, in which anything has changed."""
        state, answering = self.windows.state, self._answering()
        answers = {}
        for rows in in_blocks(self._rows(ends)):
            for end, changes in self._changes(rows).items():
                told = state.told[end]
                told.arrival = self._clocks.at
                if changes.rows.num_rows:
                    told.revision += 1
                    answers[end] = answering(
                        end, told.revision, changes.rows, changes.replaced, is_final=False
                    )
        return answers

    def _changes(self, rows: Mapping[int, pa.Table]) -> dict[int, Changes]:
        """How the rows of windows differ from what was said of them."""
        told = self.windows.state.told
        return self.corrector.changes({end: told[end].arrival for end in rows}, rows)

    def _finalize(self, ends: Sequence[int], slack: int) -> list[Answer]:
        """Gives the final answer of windows that have been answered before."""
        self.judge.finish(ends, self._clocks.newest, slack)
        answering = self._answering()
        answers = []
        for rows in in_blocks(self._rows(ends)):
            for end, changes in sorted(self._changes(rows).items()):
                told = self.windows.state.told.pop(end)
                self.corrector.drop(end)
                replaced = changes.others
                if changes.replaced.num_rows:
                    replaced = pa.concat_tables([changes.replaced, changes.others])
                answers.append(answering(end, told.revision + 1, rows[end], replaced, is_final=True))
        return answers

    def _rows(self, ends: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
        """The results of windows that hold tuples, in their order."""
        return self._panes.results(self.plan, ends)

    def _answering(self) -> Answering:
        return Answering(
            self.plan.name,
            self.windows,
            self.policy.promised,
            self.judge.state.coverage,
            self._clocks.reached,
        )
