"""The sessions of running views in one shard: what tuples change of them, when they are final, and what is stored.

Open sessions lie in one pane, final ones in another. Both hold partials of parts of sessions, which are united when they are read.
A session is final once event time has passed its end by the horizon, and leaves the state when it has been final for long enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.running.groups import answer_of, of_groups, where
from penstock.operators.running.kept import KeptRows
from penstock.operators.windows.aggregates import ROWS, Parts
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.clocks import Clocks, StreamTime
from penstock.operators.windows.content import Content, together
from penstock.operators.windows.grouping import shared_codes
from penstock.operators.windows.pane import PaneTable
from penstock.operators.windows.rows import differences, lowered
from penstock.operators.windows.shard import RunningPlan, SessionPlan
from penstock.operators.windows.spans import (
    SESSION_END,
    SESSION_START,
    SPAN,
    Longs,
    Sessions,
    longs,
    sessions_of,
    united,
)
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.plan.windows import WindowPlan

#: numbers of the panes
OPEN, FINAL = 0, 1
#: open sessions are looked through so many times in the event time until they are final, final ones in the time that they stay
_SWEEPS = 8


@dataclass(slots=True)
class SessionState:
    """What is remembered beside the sessions, times in microseconds.

    Attributes:
        time: what the clocks show.
        final_until: the sessions that end by then are final, no others.
        left_until: sessions that end by then have left the state.
        settled: pairs of a time by the clock and `final_until` at that time, ascending. `history` after the first, the sessions that end
            by the second may leave.
        is_whole: whether the operator has the tuples of the batches before its first one. Until then no session is final.
    """

    time: StreamTime = field(default_factory=StreamTime)
    final_until: int = BEFORE_ALL
    left_until: int = BEFORE_ALL
    settled: list[tuple[int, int]] = field(default_factory=list)
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Moment:
    """The event times of a batch or of one of its arrival steps, in microseconds.

    Attributes:
        newest: largest event time of the stream up to and with it, or None.
        delays: delays of some of its tuples, the largest among them.
    """

    newest: int | None
    delays: Sequence[int]


class RunningSessions:
    """The sessions of one operator.

    Args:
        plan: the operator.
        most_delay, least_horizon: see `Clocks`, microseconds.
        pieces: what is stored of each pane, as `take_changes` gave it.
        state: what is remembered beside them.
        known: tables of pieces that are decoded already, see `pieces`.

    Attributes:
        left_out: tuples that were left out since the last look, because their sessions have left the state.
    """

    def __init__(
        self,
        plan: RunningPlan,
        most_delay: int,
        least_horizon: int,
        pieces: Mapping[int, Sequence[bytes]] = MappingProxyType({}),
        state: SessionState | None = None,
        known: Mapping[bytes, PaneTable] = MappingProxyType({}),
    ) -> None:
        self.plan = plan
        self.state = state or SessionState(is_whole=not self._session.lacks_past)
        self.left_out = 0
        self._clocks = Clocks(most_delay, max(least_horizon, self._session.gap))
        self._clocks.restore(self.state.time)
        self._open, self._final = (KeptRows(pieces.get(number, ()), known) for number in (OPEN, FINAL))

    def adjust(self, plan: RunningPlan, most_delay: int, least_horizon: int) -> None:
        """Other views and settings, which hold at once."""
        self.plan = plan
        self._clocks.adjust(most_delay, max(least_horizon, self._session.gap))

    def make_whole(self) -> bool:
        """The operator gets the tuples of the batches before its first one; False: it has them already."""
        was_whole, self.state.is_whole = self.state.is_whole, True
        return not was_whole

    @property
    def rows(self) -> int:
        """Rows of the state: sessions, those that lie in several levels more than once."""
        return self._open.rows + self._final.rows

    @property
    def pieces(self) -> Mapping[bytes, PaneTable]:
        """The tables of the stored pieces by the digests of these, with their indexes."""
        return {**self._open.pieces, **self._final.pieces}

    def take_changes(self) -> Iterator[tuple[int, int, list[bytes]]]:
        """The panes to store since the last call: (number, pieces that stay, those that follow them)."""
        for number, kept in ((OPEN, self._open), (FINAL, self._final)):
            change = kept.take_change(self.plan.parts, self._row)
            if change is not None:
                yield number, *change

    def take_in(
        self, tuples: Content | None, revision: int, moments: Sequence[Moment], clock: int, *, ended: bool
    ) -> list[Answer]:
        """Takes in what some entries bring, and says what that changes.

        Args:
            tuples: partials and values by keys and SPAN, a session in any number of rows; None: nothing.
            revision: of what changes, larger than those before.
            moments: of the entries, in order.
            clock: when the last entry was put, microseconds since the epoch.
            ended: whether the stream has ended: all sessions are final.

        Returns:
            The rows that differ from what was said before, those that are rows no more, and those that are final now.
        """
        for each in moments:
            if each.newest is not None:
                self._clocks.take_in(each.newest, None, np.array(each.delays, np.int64))
        new, told = (None, None) if tuples is None else self._accepted(self._united(tuples))
        now = None
        if new is not None:
            now = new if told is None else self._united(together([told, new]))
            self._place(told, now, new, revision)
        was_final_until = self.state.final_until
        settled = self._settle(revision, ended=ended)
        answers = [
            each
            for view in self.plan.views
            for each in self._answers(view, revision, (told, now, settled), was_final_until)
            if each.rows.num_rows
        ]
        self._leave(clock, revision)
        return answers

    @property
    def _session(self) -> SessionPlan:
        assert self.plan.session is not None, "its rows are sessions"
        return self.plan.session

    @property
    def _row(self) -> list[str]:
        """The columns that tell rows apart."""
        return [*self.plan.keys, *SPAN]

    @property
    def _step(self) -> int:
        """Event time after which sessions are looked through again, microseconds."""
        return max(1, max(self._session.gap, self.state.time.horizon) // _SWEEPS)

    def _united(self, content: Content) -> Content:
        assert isinstance(self.plan.parts, Parts), "sessions are not ranked"
        return united(content, self.plan.parts, self.plan.keys)

    def _accepted(self, new: Content) -> tuple[Content | None, Content | None]:
        """The new sessions that are taken in, and the sessions of the state that belong together with them."""
        before = self._stored(new.partials)
        taken = self._without_left(new, before)
        if taken is None or before is None:
            return taken, None
        _, (own, others) = _among([before.partials, taken.partials], self.plan.keys)
        return taken, where(before, before.partials.filter(pa.array(np.isin(own, others))), self._row)

    def _without_left(self, new: Content, before: Content | None) -> Content | None:
        """New sessions without those that may touch one that has left the state; the tuples of these are counted.

        One that begins within a session of the state touches none that has left: sessions of one key do not touch each other.
        """
        starts = longs(new.partials, SESSION_START)
        left = starts <= self.state.left_until
        if left.any() and before is not None:
            own, groups = shared_codes([before.partials, new.partials], self.plan.keys)
            sessions = sessions_of(own, *(longs(before.partials, name) for name in SPAN))
            left &= ~sessions.cover(groups, starts)
        if not left.any():
            return new
        self.left_out += int(pc.sum(new.partials.column(ROWS).filter(pa.array(left))).as_py())
        return where(new, new.partials.filter(pa.array(~left)), self._row)

    def _stored(self, wanted: pa.Table) -> Content | None:
        """The sessions of the state with the keys of new ones; final ones only for those that may touch one."""
        found = [self._of(self._open, wanted)]
        late = longs(wanted, SESSION_START) <= self.state.final_until
        if late.any():
            found.append(self._of(self._final, wanted.filter(pa.array(late))))
        parts = [each for each in found if each is not None]
        return self._united(together(parts)) if parts else None

    def _of(self, kept: KeptRows, wanted: pa.Table) -> Content | None:
        """The rows of a pane with the keys of some sessions."""
        keys = self.plan.keys
        if not keys:
            return kept.content
        found = kept.of_groups(wanted, keys)
        return None if found is None else where(found, wanted, keys)

    def _place(self, told: Content | None, now: Content, new: Content, revision: int) -> None:
        """Adds new parts of sessions to the panes that these belong to, and moves the sessions that are final no more."""
        until, row = self.state.final_until, self._row
        if longs(new.partials, SESSION_START).min() > until:
            self._append(self._open, new, revision)
            return
        before = new.partials.slice(0, 0) if told is None else told.partials
        sessions, (_, own, others) = _among([now.partials, new.partials, before], self.plan.keys)
        is_final = sessions.ends[own] <= until
        reopened = (longs(before, SESSION_END) <= until) & (sessions.ends[others] > until)
        to_open = [where(new, new.partials.filter(pa.array(~is_final)), row)]
        if told is not None and reopened.any():
            moved = told.partials.filter(pa.array(reopened))
            to_open.append(where(told, moved, row))
            self._remove(self._final, moved, revision)
        opened = [each for each in to_open if each is not None]
        if opened:
            self._append(self._open, together(opened), revision)
        late = where(new, new.partials.filter(pa.array(is_final)), row)
        if late is not None:
            self._append(self._final, late, revision)

    def _settle(self, revision: int, *, ended: bool) -> Content | None:
        """Moves the sessions that are final now to the others that are; the sessions, None where there are none."""
        state, known = self.state, AFTER_ALL if ended else self._clocks.known
        content = self._open.content
        if not state.is_whole or known - state.final_until < self._step:
            return None
        if content is None:
            state.final_until = state.final_until if ended else known
            return None
        every = self._united(content)
        ends = longs(every.partials, SESSION_END)
        state.final_until = int(ends.max()) if ended else known
        final = ends <= known
        if not final.any():
            return None
        settled = where(every, every.partials.filter(pa.array(final)), self._row)
        assert settled is not None, "some are"
        self._replace(self._open, where(every, every.partials.filter(pa.array(~final)), self._row), revision)
        self._append(self._final, settled, revision)
        return settled

    def _leave(self, clock: int, revision: int) -> None:
        """Lets the sessions go that have been final for long enough, and whose end event time itself has passed."""
        state, history = self.state, self._session.history
        if state.final_until > BEFORE_ALL and (
            not state.settled
            or (
                clock - state.settled[-1][0] >= max(1, history // _SWEEPS)
                and state.final_until > state.settled[-1][1]
            )
        ):
            state.settled.append((clock, state.final_until))
        due = [until for at, until in state.settled if at <= clock - history]
        # the end of a stream makes sessions final that later tuples may still extend
        until = min(due[-1], self._clocks.known) if due else state.left_until
        if until - state.left_until < self._step:
            return
        state.settled = state.settled[len(due) - (until < due[-1]) :]
        state.left_until = until
        content = self._final.content
        if content is not None:
            every = self._united(content)
            staying = longs(every.partials, SESSION_END) > state.left_until
            if not staying.all():
                kept = where(every, every.partials.filter(pa.array(staying)), self._row)
                self._replace(self._final, kept, revision)

    def _answers(
        self,
        view: WindowPlan,
        revision: int,
        contents: tuple[Content | None, Content | None, Content | None],
        was_final_until: int,
    ) -> Iterator[Answer]:
        """What a view says of sessions as they were told, as they are now, and of those that have become final.

        Withdrawn rows come first: a session that grows replaces the row with its start.
        """
        row, until = self._row, self.state.final_until
        told, now, settled = (None if each is None else lowered(view, each, row) for each in contents)
        if now is not None:
            before = now.slice(0, 0) if told is None else told
            gone = _without(before, now, row)
            for was_final, rows in _by_end(gone, was_final_until):
                yield answer_of(
                    view.name, revision, rows, rows.slice(0, 0), is_final=was_final, withdrawn=True
                )
            changed, replaced = differences(before, now, row)
            for is_final, rows in _by_end(changed, until):
                yield answer_of(view.name, revision, rows, of_groups(replaced, rows, row), is_final=is_final)
            settled = None if settled is None else _without(settled, changed, row)
        if settled is not None:
            yield answer_of(view.name, revision, settled, settled, is_final=True)

    def _append(self, kept: KeptRows, content: Content, revision: int) -> None:
        kept.append(content, revision, self.plan.parts, self._row, self._united)

    def _replace(self, kept: KeptRows, content: Content | None, revision: int) -> None:
        kept.clear()
        if content is not None:
            self._append(kept, content, revision)

    def _remove(self, kept: KeptRows, sessions: pa.Table, revision: int) -> None:
        """Takes sessions out of a pane that has them."""
        content = kept.content
        assert content is not None, "it has them"
        every = self._united(content)
        staying = _without(every.partials, sessions, self._row)
        self._replace(kept, where(every, staying, self._row), revision)


def _among(tables: Sequence[pa.Table], keys: Sequence[str]) -> tuple[Sessions, list[Longs]]:
    """The sessions that the rows of several tables make together, and which of them each row of each table belongs to."""
    starts, ends = (np.concatenate([longs(table, name) for table in tables]) for name in SPAN)
    sessions = sessions_of(np.concatenate(shared_codes(tables, keys)), starts, ends)
    return sessions, np.split(sessions.rows, np.cumsum([table.num_rows for table in tables])[:-1])


def _by_end(rows: pa.Table, until: int) -> Iterator[tuple[bool, pa.Table]]:
    """The rows of sessions that are not final, and of those that are: they end by a time, microseconds."""
    is_final = pa.array(longs(rows, SESSION_END) <= until)
    yield False, rows.filter(pc.invert(is_final))
    yield True, rows.filter(is_final)


def _without(rows: pa.Table, others: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows that are of no group of others."""
    own, known = shared_codes([rows, others], keys)
    return rows.filter(pa.array(~np.isin(own, known)))
