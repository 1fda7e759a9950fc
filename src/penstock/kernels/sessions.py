"""Spans of several groups united to sessions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled

Longs = npt.NDArray[np.int64]


@compiled(nogil=True)
def unite_spans(
    groups: Longs, starts: Longs, ends: Longs, order: Longs, count: int
) -> tuple[Longs, Longs, Longs]:
    """Unites the spans of each group that overlap or touch.

    Algorithm card. Ordering: sessions by start. Needs: spans ordered by start. Time: spans + groups. Space: the same.

    Args:
        groups: int64[spans], below `count`.
        starts, ends: int64[spans].
        order: int64[spans], the spans by start.
        count: number of groups.

    Returns:
        int64[spans], the session of each; int64[sessions], a span that begins it; int64[sessions], its end.
    """
    rows = np.empty(len(groups), np.int64)
    first, reach = np.empty(len(groups), np.int64), np.empty(len(groups), np.int64)
    newest = np.full(count, -1, np.int64)
    sessions = 0
    for span in order:
        group = groups[span]
        session = newest[group]
        if session < 0 or starts[span] > reach[session]:
            session = newest[group] = sessions
            first[session], reach[session] = span, ends[span]
            sessions += 1
        elif ends[span] > reach[session]:
            reach[session] = ends[span]
        rows[span] = session
    return rows, first[:sessions].copy(), reach[:sessions].copy()
