"""Sessions as spans of event time: rows of one group whose spans overlap or touch belong to one session.

A tuple's span is [event time, event time + gap). Spans are united in any order, so partials of parts of a session may come from
any task, batch or level of the state. Touching spans are one session, as Spark's `session_window` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.sessions import unite_spans
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.content import Content
from penstock.operators.windows.grouping import shared_codes

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: columns of a span, microseconds since the epoch
SESSION_START, SESSION_END = "session_start", "session_end"
SPAN = (SESSION_START, SESSION_END)


@dataclass(frozen=True, slots=True, eq=False)
class Sessions:
    """The sessions that some spans make.

    Attributes:
        rows: int64[spans], the session of each span.
        groups: int64[sessions], the group of each.
        starts, ends: int64[sessions], microseconds.
    """

    rows: Longs
    groups: Longs
    starts: Longs
    ends: Longs

    def holding(self, groups: Longs, moments: Longs) -> Longs:
        """int64[moments]: the session that holds each of some moments of groups; one does."""
        count, rows = len(self.starts), len(moments)
        is_moment = np.repeat([0, 1], [count, rows])
        starts, own = np.append(self.starts, moments), np.append(self.groups, groups)
        order = np.lexsort((is_moment, starts, own))
        # of each place in that order the newest session up to there
        newest = order[np.maximum.accumulate(np.where(order < count, np.arange(count + rows), 0))]
        found = np.empty(count + rows, np.int64)
        found[order] = newest
        return found[count:]

    def cover(self, groups: Longs, moments: Longs) -> Bools:
        """bool[moments]: whether a session of the group lasts at each moment, its end included; there are sessions."""
        # of a moment before all sessions any place may be found
        found = np.minimum(self.holding(groups, moments), len(self.starts) - 1)
        is_own: Bools = self.groups[found] == groups
        return is_own & (self.starts[found] <= moments) & (moments <= self.ends[found])


def sessions_of(groups: Longs, starts: Longs, ends: Longs) -> Sessions:
    """Unites spans.

    Args:
        groups: int64[spans], the number of the group of each, see `group_codes`.
        starts, ends: int64[spans], microseconds; a span is not empty.
    """
    order = np.argsort(starts, kind="stable")
    rows, first, reach = unite_spans(groups, starts, ends, order, int(groups.max(initial=-1)) + 1)
    return Sessions(rows, groups[first], starts[first], reach)


def with_sessions(tuples: pa.Table, keys: Sequence[str], times: Longs, gap: int) -> pa.Table:
    """Tuples with the spans of the sessions that they make among themselves.

    Args:
        tuples: the keys and anything else.
        keys: the grouping columns.
        times: int64[tuples], event times, microseconds.
        gap: microseconds.
    """
    (codes,) = shared_codes([tuples], keys)
    return _spanned(tuples, (found := sessions_of(codes, times, times + gap)), found.rows)


def united(content: Content, parts: Parts, keys: Sequence[str]) -> Content:
    """A row for each session, from rows of parts of sessions.

    Args:
        content: keys and SPAN, without arrivals.
        parts: what is kept of each session.
        keys: the grouping columns, SPAN aside.
    """
    names = list(content.values)
    every = [content.partials, *(content.values[name] for name in names)]
    codes = shared_codes(every, keys)
    found = sessions_of(codes[0], *(longs(content.partials, name) for name in SPAN))
    values = {
        name: _spanned(table, found, found.holding(own, longs(table, SESSION_START)))
        for name, table, own in zip(names, every[1:], codes[1:], strict=True)
    }
    spanned = Content(_spanned(content.partials, found, found.rows), values)
    return spanned.merged(parts, [*keys, *SPAN])


def longs(table: pa.Table, name: str) -> Longs:
    """A column of whole numbers without NULL."""
    found: Longs = table.column(name).to_numpy()
    return found


def _spanned(table: pa.Table, sessions: Sessions, rows: Longs) -> pa.Table:
    """A table with the spans of the sessions that its rows belong to."""
    for name, moments in zip(SPAN, (sessions.starts, sessions.ends), strict=True):
        place, column = table.schema.get_field_index(name), pa.array(moments[rows])
        table = table.append_column(name, column) if place < 0 else table.set_column(place, name, column)
    return table
