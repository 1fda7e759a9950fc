"""Window views over a disordered stream: early answers, corrections, and what each was worth.

One operator serves all window views of a stream that share filter, event time and keys. A window [start, end) is
answered when end <= t_max - K (revision 0); late tuples are registered for every closed window that holds them
and corrected together when they span more than Gamma; a window is final when t_max passes end + horizon. What
arrives later still is handed out for correction from the history.

A stream has two clocks: the newest event time really seen, which alone closes windows and makes them final, and the
moment up to which a silent stream is *taken* to have come. The second one, and the word to answer everything now, have
windows answered beforehand and leave nothing behind but these answers: the windows stay open, and what comes
for them is in their next revision.

Source: the HPM paper, sections on the stream side and the batch side. Its time-domain partition is followed
per window: a tuple is added to its open windows and registered for each closed one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.aggregates import ROWS, Parts
from penstock.operators.panes import PANE, Content, Panes
from penstock.operators.required_slack import END
from penstock.operators.slack import SlackPolicy, WindowOutcome
from penstock.operators.window_rows import by_touch, differences, lowered, window_rows
from penstock.plan.windows import WindowPlan

#: share of the largest delay by which the horizon exceeds it
_HORIZON_MARGIN = 0.25
#: times before and after all others
_BEFORE_ALL = -(2**62)
_AFTER_ALL = 2**62
#: a policy hears of every window with fewer groups, of every second one with twice as many, ...
_GROUPS_HEARD = 64
#: weight of the newest window in the estimate of the coverage
_NEWEST = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class PaneBatch:
    """What one batch of tuples brings.

    Attributes:
        partials: `pane`, keys and the columns of the parts; None where no tuple came.
        values: the like for kept values, by argument.
        newest: largest event time seen of the stream's tuples, or None.
        delays: int64, delay of each tuple, or of some that stand for all: the largest among them, and the largest
            that is not too long to matter.
        flush: whether late tuples of answered windows are corrected now, however few.
        makes_whole: whether the rows are those of all batches before the operator's first one; such a batch
            moves neither t_max nor slack nor horizon, and counts once, however often it comes.
        reached: where it is beyond `newest`, the event time that a silent stream is taken to have come to: what is due
            by then is answered beforehand.
        answer_all: whether every window with tuples is answered beforehand.
    """

    partials: pa.Table | None
    values: Mapping[str, pa.Table]
    newest: int | None
    delays: npt.NDArray[np.int64]
    flush: bool = False
    makes_whole: bool = False
    reached: int | None = None
    answer_all: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Results of one window.

    Attributes:
        view: name of the view.
        start, end: the window.
        revision: 0 for the early answer.
        final: whether all tuples are known.
        slack: the time the stream had come to, or was taken to have come to, less the window's end when this was
            answered; negative where the window was answered before its end.
        coverage: estimated share of the window's tuples that are in it; None where nothing can be promised: too few
            windows are known, this one was answered beforehand, or it may hold tuples of batches before the
            operator's first one.
        promised: whether the view's bound can be promised.
        rows: see `window_rows.window_rows`; of a correction, those that changed.
        replaced: what the revision before said of the groups in `rows`, if anything.
    """

    view: str
    start: int
    end: int
    revision: int
    final: bool
    slack: int
    coverage: float | None
    promised: bool
    rows: pa.Table
    replaced: pa.Table


@dataclass(slots=True)
class _Answered:
    """A window that was answered and is not final.

    Attributes:
        revision: the newest.
        arrival: what had arrived by then is in it.
        slack: slack of the view when the window closed; when it was answered, as long as it is open.
        first: `arrival` of that answer.
        looked_at: whether the policy hears of it: of every window where groups are few.
        look: age in slides at which it is looked at next.
        outcome: what the policy heard last; `heard`: what had arrived by then is in it.
    """

    revision: int
    arrival: int
    slack: int
    first: int
    looked_at: bool = True
    look: int = 2
    outcome: WindowOutcome | None = None
    heard: int = _BEFORE_ALL


@dataclass(slots=True)
class _View:
    plan: WindowPlan
    policy: SlackPolicy
    #: windows that end at or before it were over before the view began, and are not answered
    floor: int = _BEFORE_ALL
    #: windows that end at or before it have been answered, or were empty
    frontier: int | None = None
    #: windows that end at or before it are final
    final: int | None = None
    answered: dict[int, _Answered] = field(default_factory=dict)
    #: ends of the windows with late tuples, and the stretch of panes they lie in
    waiting: set[int] = field(default_factory=set)
    oldest: int = 0
    newest: int = 0
    coverage: float | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a view has come in one shard, times in microseconds.

    Attributes:
        slack: K: a window is answered when its end is so far behind `newest`.
        promised: whether the view's bound can be promised.
        horizon: a window is final when its end is so far behind `newest`.
        newest: the newest event time seen, or None.
        reached: the event time that the stream is taken to have come to, or None; beyond `newest` while it is silent.
        open: windows with tuples that are not final.
        oldest: end of the oldest of them, or None.
    """

    slack: int
    promised: bool
    horizon: int
    newest: int | None
    reached: int | None
    open: int
    oldest: int | None


@dataclass(slots=True)
class LateCounts:
    """Late tuples since the last report.

    Attributes:
        registered: (tuple, closed window) pairs registered for correction.
        beyond: those of them whose window was final already.
        before: pairs of windows that were over before the view began: it does not count these tuples.
    """

    registered: int = 0
    beyond: int = 0
    before: int = 0

    def add(self, other: LateCounts) -> None:
        """Adds the counts of another operator or shard."""
        self.registered += other.registered
        self.beyond += other.beyond
        self.before += other.before


class WindowOperator:
    """Answers the windows of views that share keys, event time and filter.

    One that begins after other batches of its stream has not seen the tuples of those. Until it is given them
    (`PaneBatch.makes_whole`) windows that may hold some are answered, but never as final and never with a promise.

    Args:
        views: the views with the policy that chooses the slack of each; their windows' starts agree
            modulo the pane.
        gamma: late tuples are corrected when they span more event time, microseconds.
        least_horizon: a window is final no sooner after its end, microseconds.
        most_delay: a longer delay changes neither horizon nor slack; such tuples correct from the history.
        parts: what batches hold of each group, None: what the views need.
        pane: length of the batches' panes, None: what the views need.
        since: largest event time of the batches before the operator's first one, microseconds, believed or not; None where
            there is none.
        floors: by view a time at which windows that end by then were over before the view began, so that they are
            not answered; `since` where there is none.
    """

    def __init__(
        self,
        views: Sequence[tuple[WindowPlan, SlackPolicy]],
        gamma: int,
        least_horizon: int = 0,
        most_delay: int = 2**62,
        parts: Parts | None = None,
        pane: int | None = None,
        since: int | None = None,
        floors: Mapping[str, int] | None = None,
    ) -> None:
        plans = [plan for plan, _ in views]
        self.keys = [name for name, _ in plans[0].keys]
        self.parts = parts or Parts.of(aggregate for plan in plans for aggregate in plan.aggregates)
        self.pane = pane or int(np.gcd.reduce([plan.windows.pane for plan in plans]))
        #: panes begin at multiples of `pane` from here
        self.offset = plans[0].windows.start % self.pane
        self.panes = Panes(self.parts, self.keys)
        begun = _BEFORE_ALL if since is None else since
        self.views = {
            plan.name: _View(plan, policy, (floors or {}).get(plan.name, begun)) for plan, policy in views
        }
        self.late = LateCounts()
        #: (view, start) of final windows that late tuples belong to, for the history to correct
        self.beyond: set[tuple[str, int]] = set()
        #: the newest event time seen, and the one that the stream is taken to have come to
        self.newest: int | None = None
        self.reached: int | None = None
        #: windows that start at or before it may hold tuples of the batches before, ...
        self._since = begun
        #: ... and lack them still
        self._unseen = begun
        self._gamma = gamma
        self._most_delay = most_delay
        self._horizon = max(least_horizon, *(plan.windows.size for plan in plans))
        self._arrival: int | None = None
        #: batches of the stream so far: before the second one nothing is known of delays, and nothing is final
        self._batches = 0
        if since is not None:
            # the floors are what was believed of it
            over = max(view.floor for view in self.views.values())
            self._begin(since, over if over > _BEFORE_ALL else None)

    @property
    def horizon(self) -> int:
        """Time after a window's end at which it is final: a quarter above the largest delay seen."""
        return self._horizon

    def process(self, batch: PaneBatch) -> list[Answer]:
        """Takes in a batch and answers what is due; one without tuples, and a flush, correct whatever waits."""
        if batch.makes_whole and self._unseen == _BEFORE_ALL:
            batch = replace(batch, partials=None, values={}, makes_whole=False)
        if batch.newest is not None or batch.partials is not None:
            self._take_in(batch)
        known = [each for each in (self.newest, batch.reached) if each is not None]
        self.reached = max(known, default=None)
        now = batch.flush or batch.partials is None
        answers = self._make_whole() if batch.makes_whole else []
        for view in self.views.values():
            if self.newest is not None:
                answers += self._close(view, self.newest - view.policy.slack, self._known)
            if view.waiting and (now or view.newest - view.oldest > self._gamma):
                answers += self._correct(view)
            if now:
                due = _BEFORE_ALL if self.reached is None else self.reached - view.policy.slack
                answers += self._anticipate(view, _AFTER_ALL if batch.answer_all else due)
            if self.newest is not None:
                self._look(view)
                answers += self._finish(view, self._known)
        self._forget()
        return answers

    @property
    def _known(self) -> int:
        """Windows that end by then are final."""
        return _BEFORE_ALL if self.newest is None or self._batches < 2 else self.newest - self._horizon

    def standing(self) -> dict[str, Standing]:
        """How far each view has come."""
        panes = np.fromiter(self.panes, np.int64, len(self.panes))
        found = {}
        for name, view in self.views.items():
            ends = _all_ends(view.plan, panes)
            final = _BEFORE_ALL if view.final is None else view.final
            unseen = self._unseen + view.plan.windows.size
            ends = ends[(ends > view.floor) & ((ends > final) | (ends <= unseen))]
            found[name] = Standing(
                slack=view.policy.slack,
                promised=_promised(view),
                horizon=self._horizon,
                newest=self.newest,
                reached=self.reached,
                open=len(ends),
                oldest=int(ends[0]) if len(ends) else None,
            )
        return found

    def keep(self, names: Collection[str]) -> None:
        """Drops the views that are not among `names`; their open windows are never answered."""
        for name in [each for each in self.views if each not in names]:
            del self.views[name]

    def answer_from_history(
        self, name: str, start: int, before: Content | None, now: Content, revision: int
    ) -> Answer | None:
        """Corrects a final window.

        Args:
            name: the view.
            start: the window's start.
            before: its tuples but for those that have just come, None where there were none.
            now: all of them.
            revision: of the correction.

        Returns:
            The groups that differ, None where none does or the view is gone.
        """
        view = self.views.get(name)
        if view is None:
            return None
        rows = window_rows(view.plan, self.parts, now)
        known = rows.slice(0, 0) if before is None else window_rows(view.plan, self.parts, before)
        changed, replaced = differences(known, rows, self.keys)
        if not changed.num_rows:
            return None
        end = start + view.plan.windows.size
        return self._answer(view, end, _Answered(revision, 0, 0, 0), changed, replaced, final=True)

    def finish(self) -> list[Answer]:
        """The stream has ended: every window is closed and final."""
        seen = [*self.panes, *([] if self.newest is None else [self.newest])]
        if not seen:
            return []
        last = max(seen) + max(view.plan.windows.size for view in self.views.values()) + 1
        answers = []
        for view in self.views.values():
            answers += self._finish(view, last)
            answers += self._correct(view)
        self._forget()
        return answers

    def _begin(self, arrival: int, newest: int | None) -> None:
        self.newest, self._arrival = newest, arrival
        for view in self.views.values():
            view.frontier = view.final = _BEFORE_ALL

    def _take_in(self, batch: PaneBatch) -> None:
        partials, newest = batch.partials, batch.newest
        if self._arrival is None:
            oldest = newest if partials is None else pc.min(partials.column(PANE)).as_py()
            self._begin(min(each for each in (oldest, newest) if each is not None) - 1, newest)
        else:
            self._arrival += 1
            if self.newest is not None:
                self._arrival = max(self.newest, self._arrival)
        self._batches += len(batch.delays) > 0
        delays = batch.delays[batch.delays <= self._most_delay]
        self._horizon = max(self._horizon, int(int(delays.max(initial=0)) * (1 + _HORIZON_MARGIN)))
        if partials is not None:
            self.panes.append(*self._registered(partials, batch), self._at)
        self.newest = max((each for each in (self.newest, newest) if each is not None), default=None)
        for view in self.views.values():
            view.policy.arrived(delays)

    @property
    def _at(self) -> int:
        """What has arrived by then is in the panes."""
        assert self._arrival is not None, "some tuple came"
        return self._arrival

    def _registered(self, partials: pa.Table, batch: PaneBatch) -> tuple[pa.Table, Mapping[str, pa.Table]]:
        """Registers late rows with their closed windows; gives the rows that some window still needs."""
        values = batch.values
        starts = partials.column(PANE).to_numpy()
        rows = partials.column(ROWS).to_numpy()
        counts = dict(zip(*_sums(starts, rows), strict=True))
        needed: set[int] = set()
        for view in self.views.values():
            frontier, final = view.frontier, view.final
            assert frontier is not None, "set with the first batch"
            assert final is not None, "set with the first batch"
            for pane, tuples in counts.items():
                for end in _ends(view.plan, pane):
                    if end <= view.floor:
                        self.late.before += 0 if batch.makes_whole else tuples
                        continue
                    is_open = end > final or self._is_unseen(view, end)
                    if is_open:
                        needed.add(pane)
                    if end > frontier or batch.makes_whole:
                        continue
                    self.late.registered += tuples
                    if not is_open:
                        self.late.beyond += tuples
                        self.beyond.add((view.plan.name, end - view.plan.windows.size))
                        continue
                    if not view.waiting:
                        view.oldest = view.newest = pane
                    view.waiting.add(end)
                    view.oldest, view.newest = min(view.oldest, pane), max(view.newest, pane)
        if len(needed) == len(counts):
            return partials, values
        wanted = pa.array(sorted(needed), pa.int64())
        kept = {name: table.filter(pc.is_in(table.column(PANE), wanted)) for name, table in values.items()}
        return partials.filter(pc.is_in(partials.column(PANE), wanted)), kept

    def _make_whole(self) -> list[Answer]:
        """Finishes and corrects the windows that have just got what they lacked."""
        self._unseen = _BEFORE_ALL
        answers = []
        for view in self.views.values():
            assert view.final is not None, "set at the beginning"
            assert view.frontier is not None, "set at the beginning"
            size = view.plan.windows.size
            ends = {
                end
                for pane in self.panes
                for end in _ends(view.plan, pane)
                if view.floor < end <= min(self._since + size, view.frontier)
            }
            for end in ends - view.answered.keys():
                view.answered[end] = self._unanswered(view, end)
            answers += self._finalize(view, sorted(end for end in ends if end <= view.final))
            view.waiting |= {end for end in ends if end > view.final}
            answers += self._correct(view)
        return answers

    def _is_unseen(self, view: _View, end: int) -> bool:
        """Whether a window lacks tuples of the batches before the operator's first one."""
        return end - view.plan.windows.size <= self._unseen

    def _close(self, view: _View, until: int, known: int) -> list[Answer]:
        """Answers the windows that end by `until`; those that end by `known` are final at once."""
        assert view.frontier is not None, "set with the first batch"
        if until <= view.frontier:
            return []
        due = self._due(view, until)
        view.frontier = until
        answers = []
        for end, rows in self._rows(view, due):
            final = end <= known and not self._is_unseen(view, end)
            answered = view.answered.get(end)
            if answered is None:
                answered = self._first(view, end, rows)
                if not final:
                    view.answered[end] = answered
                answers.append(self._answer(view, end, answered, rows, rows.slice(0, 0), final))
                continue
            # answered beforehand: what it was worth is what it is worth now, and one final at once is not heard of
            answered.slack, answered.first, answered.outcome = view.policy.slack, self._at, None
            if final:
                answered.looked_at = False
            else:
                answers += self._corrected(view, end, answered, rows)
        return answers

    def _anticipate(self, view: _View, until: int) -> list[Answer]:
        """Answers open windows that end by `until`, and again those that were and have got tuples since."""
        if view.frontier is None:
            return []
        size = view.plan.windows.size
        due = {*self._due(view, until), *(end for end in view.answered if end > view.frontier)}
        due = {
            end
            for end in due
            if end not in view.answered
            or self.panes.newest_arrival(end - size, end) > view.answered[end].arrival
        }
        answers = []
        for end, rows in self._rows(view, sorted(due)):
            answered = view.answered.get(end)
            if answered is None:
                answered = view.answered[end] = self._first(view, end, rows)
                answers.append(self._answer(view, end, answered, rows, rows.slice(0, 0), final=False))
            else:
                answers += self._corrected(view, end, answered, rows)
        return answers

    def _due(self, view: _View, until: int) -> list[int]:
        """Ends of the open windows with tuples that end by `until`."""
        assert view.frontier is not None, "set with the first batch"
        first = view.frontier - view.plan.windows.size - self.pane
        return sorted(
            {
                end
                for pane in self.panes
                if pane > first
                for end in _ends(view.plan, pane)
                if max(view.frontier, view.floor) < end <= until
            }
        )

    def _first(self, view: _View, end: int, rows: pa.Table) -> _Answered:
        heard = _spread(end // view.plan.windows.slide) % (1 + rows.num_rows // _GROUPS_HEARD) == 0
        heard = heard and self._teaches(view, end)
        return _Answered(0, self._at, view.policy.slack, self._at, heard)

    def _correct(self, view: _View) -> list[Answer]:
        answers = []
        for end, rows in self._rows(view, sorted(view.waiting)):
            answered = view.answered.setdefault(end, self._unanswered(view, end))
            answers += self._corrected(view, end, answered, rows)
        view.waiting.clear()
        return answers

    def _corrected(self, view: _View, end: int, answered: _Answered, rows: pa.Table) -> list[Answer]:
        """The next revision of a window that is not final, if anything has changed."""
        changed, replaced, _ = self._changes(view, end, answered, rows)
        answered.arrival = self._at
        if not changed.num_rows:
            return []
        answered.revision += 1
        return [self._answer(view, end, answered, changed, replaced, final=False)]

    def _look(self, view: _View) -> None:
        """Tells the policy what is known of windows that are not final, at ages of 2, 4, 8 ... slides."""
        assert self.newest is not None, "some tuple came"
        slide = view.plan.windows.slide
        ends = []
        for end, answered in view.answered.items():
            age = self.newest - end - answered.slack
            if answered.looked_at and age >= answered.look * slide:
                while age >= answered.look * slide:
                    answered.look *= 2
                ends.append(end)
        for outcome in self._outcomes(view, ends, final=False):
            view.policy.known(outcome)

    def _finish(self, view: _View, until: int) -> list[Answer]:
        assert view.final is not None, "set with the first batch"
        if until <= view.final:
            return []
        answers = self._close(view, until, until)
        late = [end for end in view.waiting if end not in view.answered]
        for end in late:
            view.answered[end] = self._unanswered(view, end)
        known = sorted(end for end in view.answered if end <= until and not self._is_unseen(view, end))
        view.final = until
        return answers + self._finalize(view, known)

    def _finalize(self, view: _View, known: Sequence[int]) -> list[Answer]:
        """Gives the final answer of windows that have been answered before."""
        answers = []
        looked_at = [end for end in known if view.answered[end].looked_at]
        for outcome in self._outcomes(view, looked_at, final=True):
            view.policy.known(outcome)
            before = outcome.coverage if view.coverage is None else view.coverage
            view.coverage = before + _NEWEST * (outcome.coverage - before)
        for end, rows in self._rows(view, known):
            answered = view.answered.pop(end)
            view.waiting.discard(end)
            _, replaced, others = self._changes(view, end, answered, rows)
            answered.revision += 1
            replaced = pa.concat_tables([replaced, others]) if replaced.num_rows else others
            answers.append(self._answer(view, end, answered, rows, replaced, final=True))
        return answers

    def _unanswered(self, view: _View, end: int) -> _Answered:
        """A window that was empty when it closed: its first answer is a correction."""
        return _Answered(0, _BEFORE_ALL, view.policy.slack, _BEFORE_ALL, self._teaches(view, end))

    def _teaches(self, view: _View, end: int) -> bool:
        """Whether a window tells something of the slack: when tuples of earlier batches came is not known."""
        return end - view.plan.windows.size > self._since

    def _outcomes(self, view: _View, ends: Sequence[int], final: bool) -> list[WindowOutcome]:
        """What answered windows were worth, in their order."""
        size = view.plan.windows.size
        arrived = {end: self.panes.newest_arrival(end - size, end) for end in ends}
        unheard = sorted(
            end
            for end, newest in arrived.items()
            if view.answered[end].outcome is None or newest > view.answered[end].heard
        )
        for history in self.panes.histories(unheard, size):
            required = history.required_slack(view.plan.aggregates, view.plan.bound)
            shares = history.coverage({end: view.answered[end].first for end in history.ends})
            own = np.split(required, history.bounds[1:-1])
            for end, share, slacks in zip(history.ends, shares, own, strict=True):
                answered = view.answered[end]
                answered.outcome = WindowOutcome(end, answered.slack, share, slacks, final)
                answered.heard = arrived[end]
        found = []
        for end in ends:
            known = view.answered[end].outcome
            assert known is not None, "heard above"
            age = 0 if self.newest is None else self.newest - end - known.slack
            found.append(WindowOutcome(end, known.slack, known.coverage, known.required, final, age))
        return found

    def _rows(self, view: _View, ends: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
        """The results of windows that hold tuples, in their order."""
        for content in self.panes.windows(ends, view.plan.windows.size):
            rows = lowered(view.plan, content, [END, *self.keys])
            own = rows.column(END).to_numpy()
            bounds = [*np.flatnonzero(np.append(True, np.diff(own) != 0)).tolist(), len(own)]
            rows = rows.drop_columns([END])
            for first, last in pairwise(bounds):
                yield int(own[first]), rows.slice(first, last - first)

    def _changes(
        self, view: _View, end: int, answered: _Answered, now: pa.Table
    ) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Rows that differ from the newest revision, what that said of these groups, and the rows of groups that
        have got no tuple since."""
        start = end - view.plan.windows.size
        if self.panes.newest_arrival(start, end) <= answered.arrival:
            return now.slice(0, 0), now.slice(0, 0), now
        content = self.panes.content(start, end)
        assert content is not None, "the window holds a pane"
        known, new = content.until(answered.arrival), content.since(answered.arrival)
        before = window_rows(view.plan, self.parts, known) if known.partials.num_rows else now.slice(0, 0)
        touched, others = by_touch(now, new, self.keys)
        return (*differences(before, touched, self.keys), others)

    def _answer(
        self, view: _View, end: int, answered: _Answered, rows: pa.Table, replaced: pa.Table, final: bool
    ) -> Answer:
        seen = view.frontier is not None and end <= view.frontier and not self._is_unseen(view, end)
        promised = _promised(view) and seen
        return Answer(
            view=view.plan.name,
            start=end - view.plan.windows.size,
            end=end,
            revision=answered.revision,
            final=final,
            slack=0 if self.reached is None else self.reached - end,
            coverage=1.0 if final else view.coverage if promised else None,
            promised=promised,
            rows=rows,
            replaced=replaced,
        )

    def _forget(self) -> None:
        oldest = min((view.final or 0) - view.plan.windows.size for view in self.views.values())
        kept = None
        if self._unseen > _BEFORE_ALL:
            largest = max(view.plan.windows.size for view in self.views.values())
            kept = range(min(view.floor for view in self.views.values()) - largest, self._unseen + largest)
        self.panes.drop_before(oldest, kept)


def _ends(plan: WindowPlan, pane: int) -> range:
    """Ends of the windows that hold a pane."""
    windows = plan.windows
    last = (pane - windows.start) // windows.slide * windows.slide + windows.start + windows.size
    return range(last - (last - pane - 1) // windows.slide * windows.slide, last + 1, windows.slide)


def _all_ends(plan: WindowPlan, panes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Ends of the windows that hold any of some panes, ascending."""
    windows = plan.windows
    last = (panes - windows.start) // windows.slide * windows.slide + windows.start + windows.size
    ends = last[:, None] - np.arange(0, windows.size, windows.slide)
    return np.unique(ends[ends > panes[:, None]])


def _promised(view: _View) -> bool:
    return bool(getattr(view.policy, "promised", False))


def _spread(number: int) -> int:
    """A number without the periods of hours and days (Fibonacci hashing)."""
    return (number * 11400714819323198485 % 2**64) >> 32


def _sums(starts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> tuple[list[int], list[int]]:
    found, codes = np.unique(starts, return_inverse=True)
    return found.tolist(), np.bincount(codes, rows, len(found)).astype(np.int64).tolist()
