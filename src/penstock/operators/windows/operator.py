"""Window views over a disordered stream: early answers, corrections, and what each was worth.

One operator serves all window views of a stream that share event time, keys and filter, or that differ in the filter
alone (`selections`): they have panes and clocks in common, and each view answers its windows by them (`view`). What arrives
for final windows is handed out for correction from the history.

Source: the HPM paper, sections on the stream side and the batch side.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.windows.aggregates import ROWS, SELECTION, Parts
from penstock.operators.windows.answers import Answer, LateCounts, Progress, Standing
from penstock.operators.windows.clocks import Clocks, StreamTime
from penstock.operators.windows.lifecycle import Beginning
from penstock.operators.windows.panes import PANE, Panes
from penstock.operators.windows.selections import SelectedPanes, Selections
from penstock.operators.windows.slack import SlackPolicy
from penstock.operators.windows.view import View, ViewState
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.plan.windows import WindowPlan


@dataclass(frozen=True, slots=True, eq=False)
class PaneBatch:
    """What one batch of tuples brings.

    Attributes:
        partials: `pane`, SELECTION where the views differ in it, keys and the columns of the parts; None where no tuple came.
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
        goes_on: whether further steps of the same batch follow: nothing is answered before them.
    """

    partials: pa.Table | None
    values: Mapping[str, pa.Table]
    newest: int | None
    delays: npt.NDArray[np.int64]
    flush: bool = False
    makes_whole: bool = False
    reached: int | None = None
    answer_all: bool = False
    goes_on: bool = False


@dataclass(slots=True)
class OperatorState:
    """Everything an operator remembers but its panes.

    Attributes:
        time: see `StreamTime`.
        is_whole: see `Beginning`.
        views: by name.
    """

    time: StreamTime
    is_whole: bool
    views: dict[str, ViewState]


class WindowOperator:
    """Answers the windows of views that share keys and event time, and have either all a selection or none.

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
        most_delay: int = AFTER_ALL,
        parts: Parts | None = None,
        pane: int | None = None,
        since: int | None = None,
        floors: Mapping[str, int] | None = None,
    ) -> None:
        plans = [plan for plan, _ in views]
        keys = self.keys = [name for name, _ in plans[0].keys]
        selections = [plan.selection for plan in plans if plan.selection is not None]
        self.parts = parts or Parts.of(aggregate for plan in plans for aggregate in plan.aggregates)
        self.pane = pane or int(np.gcd.reduce([plan.windows.pane for plan in plans]))
        #: panes begin at multiples of `pane` from here
        self.offset = plans[0].windows.start % self.pane
        self.panes = Panes(self.parts, [SELECTION, *keys] if selections else keys)
        shared = Selections(self.panes, self.parts, keys, max(selections, default=-1) + 1, self.pane)
        self.late = LateCounts()
        #: (view, start) of final windows that late tuples belong to, for the history to correct
        self.beyond: set[tuple[str, int]] = set()
        self._clocks = Clocks(most_delay, max(least_horizon, *(plan.windows.size for plan in plans)))
        begun = BEFORE_ALL if since is None else since
        self._beginning = Beginning(begun, is_whole=since is None)
        #: tuples of the newest batch with some, by selection and pane
        self._tuples: dict[int | None, dict[int, int]] = {}
        self.views = {
            plan.name: View(
                plan,
                policy,
                (floors or {}).get(plan.name, begun),
                gamma,
                self.parts,
                self.panes if plan.selection is None else SelectedPanes(shared, plan.selection),
                self._clocks,
                self._beginning,
            )
            for plan, policy in views
        }
        if since is not None:
            # the floors are what was believed of it
            over = max(view.windows.floor for view in self.views.values())
            self._clocks.begin(since, over if over > BEFORE_ALL else None)

    @property
    def newest(self) -> int | None:
        """The newest event time seen."""
        return self._clocks.newest

    @property
    def horizon(self) -> int:
        """Time after a window's end at which it is final: a quarter above the largest delay."""
        return self._clocks.state.horizon

    def snapshot(self) -> OperatorState:
        """What the operator remembers, as it is: to be stored or restored before the next batch."""
        views = {name: view.snapshot() for name, view in self.views.items()}
        return OperatorState(self._clocks.state, self._beginning.is_whole, views)

    def restore(self, state: OperatorState) -> None:
        """Goes on from the state of an operator of the same views, or of more; its panes are put for themselves."""
        self._clocks.restore(state.time)
        self._beginning.is_whole = state.is_whole
        for name, view in self.views.items():
            view.policy.arrived(self._clocks.lateness)
            view.restore(state.views[name])

    def process(self, batch: PaneBatch) -> list[Answer]:
        """Takes in a batch and answers what is due; one without tuples, and a flush, correct whatever waits."""
        if batch.makes_whole and self._beginning.is_whole:
            batch = replace(batch, partials=None, values={}, makes_whole=False)
        if batch.newest is not None or batch.partials is not None:
            self._take_in(batch)
        self._clocks.reach(batch.reached)
        answers = self._make_whole() if batch.makes_whole else []
        touched = () if batch.partials is None else self._tuples
        self._prepare(goes_on=batch.goes_on)
        for view in self.views.values():
            if batch.goes_on:
                view.pass_step()
            else:
                is_asked = batch.flush or view.plan.selection not in touched
                answers += view.advance(is_asked=is_asked, answer_all=batch.answer_all)
        self._forget()
        return answers

    def finish(self) -> list[Answer]:
        """The stream has ended: every window is closed and final."""
        seen = [*self.panes, *([] if self.newest is None else [self.newest])]
        if not seen:
            return []
        last = max(seen) + max(view.plan.windows.size for view in self.views.values()) + 1
        answers = []
        for view in self.views.values():
            answers += view.finish(last, view.policy.slack)
            answers += view.correct()
        self._forget()
        return answers

    def standing(self) -> dict[str, Standing]:
        """How far each view has come."""
        return {name: view.standing() for name, view in self.views.items()}

    def progress(self) -> dict[str, Progress]:
        """How far the windows of each view are answered."""
        return {name: view.progress() for name, view in self.views.items()}

    def keep(self, names: Collection[str]) -> None:
        """Drops the views that are not among `names`; their open windows are never answered."""
        for name in [each for each in self.views if each not in names]:
            del self.views[name]

    def choose(self, name: str, plan: WindowPlan, policy: SlackPolicy) -> None:
        """Another policy chooses the slack of a view from now on; it hears of the windows that are not final."""
        policy.arrived(self._clocks.lateness)
        self.views[name].choose(plan, policy)

    def adjust(self, gamma: int, least_horizon: int, most_delay: int) -> None:
        """Other settings hold from the next batch on."""
        sizes = (view.plan.windows.size for view in self.views.values())
        self._clocks.adjust(most_delay, max(least_horizon, *sizes))
        for view in self.views.values():
            view.corrector.gamma = gamma

    def _prepare(self, *, goes_on: bool) -> None:
        """Has the windows merged together that several views are about to ask for."""
        views = [view for view in self.views.values() if view.plan.selection is None]
        if len(views) > 1:
            coming = [view.coming(goes_on=goes_on) for view in views]
            self.panes.prepare(
                set(chain.from_iterable(asked for asked, _ in coming)),
                set(chain.from_iterable(looked_at for _, looked_at in coming)),
            )

    def _take_in(self, batch: PaneBatch) -> None:
        partials = batch.partials
        oldest = None if partials is None else pc.min(partials.column(PANE)).as_py()
        lateness = self._clocks.take_in(batch.newest, oldest, batch.delays)
        if partials is not None:
            self._tuples = _tuples_by_pane(partials)
            wanted = self._wanted(is_late=not batch.makes_whole)
            grown = self.panes.append(
                _of_panes(partials, wanted),
                {name: _of_panes(table, wanted) for name, table in batch.values.items()},
                self._clocks.at,
            )
            self._merge_arrivals(grown)
        for view in self.views.values():
            view.policy.arrived(lateness)
            own = {} if partials is None else self._tuples.get(view.plan.selection, {})
            if own and not batch.makes_whole:
                starts, counts = np.array(sorted(own.items())).T
                view.policy.brought(*self._clocks.in_time(starts + self.pane, counts))
                view.judge.brought(starts, self._clocks)

    def _merge_arrivals(self, panes: Sequence[int]) -> None:
        """Nothing depends on when rows arrived before the first end of a window, but for what was said before it."""
        for pane in panes:
            ends = [view.plan.windows.ends(pane) for view in self.views.values()]
            if self._clocks.at < min(own[0] for own in ends):
                told = [view.windows.state.told for view in self.views.values()]
                said = {
                    known[end].arrival
                    for own, known in zip(ends, told, strict=True)
                    for end in own
                    if end in known
                }
                self.panes.merge_arrivals(pane, sorted(said))

    def _wanted(self, *, is_late: bool) -> set[int] | None:
        """The panes that a window still wants, None: all; late rows are registered with their closed windows."""
        wanted: set[int] = set()
        for name, view in self.views.items():
            counts = self._tuples.get(view.plan.selection, {})
            if not is_late:
                wanted |= view.needed(list(counts))
                continue
            needed, beyond = view.register(counts, self.late)
            wanted |= needed
            self.beyond.update((name, start) for start in beyond)
        panes = {pane for counts in self._tuples.values() for pane in counts}
        return None if len(wanted) == len(panes) else wanted

    def _make_whole(self) -> list[Answer]:
        self._beginning.is_whole = True
        return [answer for view in self.views.values() for answer in view.make_whole(self._beginning.since)]

    def _forget(self) -> None:
        """Drops the panes that no window wants any more."""
        views = self.views.values()
        oldest = min(view.windows.state.final - view.plan.windows.size for view in views)
        kept = None
        if not self._beginning.is_whole:
            largest = max(view.plan.windows.size for view in views)
            least = min(view.windows.floor for view in views) - largest
            kept = range(least, self._beginning.unseen + largest)
        self.panes.drop_before(oldest, kept)


def _tuples_by_pane(partials: pa.Table) -> dict[int | None, dict[int, int]]:
    """The number of tuples by pane, of each selection; of None where there are no selections."""
    starts, rows = (partials.column(name).to_numpy() for name in (PANE, ROWS))
    panes, codes = np.unique(starts, return_inverse=True)
    if SELECTION not in partials.column_names:
        sums = np.bincount(codes, rows, len(panes)).astype(np.int64)
        return {None: dict(zip(panes.tolist(), sums.tolist(), strict=True))}
    selections = partials.column(SELECTION).to_numpy()
    sums = np.bincount(selections * len(panes) + codes, rows).astype(np.int64)
    found: dict[int | None, dict[int, int]] = {}
    for place in np.flatnonzero(sums).tolist():
        selection, code = divmod(place, len(panes))
        found.setdefault(selection, {})[int(panes[code])] = int(sums[place])
    return found


def _of_panes(table: pa.Table, wanted: set[int] | None) -> pa.Table:
    """The rows of some panes; None: of all."""
    if wanted is None:
        return table
    return table.filter(pc.is_in(table.column(PANE), pa.array(sorted(wanted), pa.int64())))
