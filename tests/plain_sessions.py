"""A stream with one view of sessions by key, logged and answered without Spark."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.windows.aggregates import lift_values
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import PARTIALS, VALUES, RunningPlan, SessionPlan
from penstock.operators.windows.spans import SPAN, with_sessions
from penstock.plan.windows import ALL_TIME, ErrorBound, WindowPlan
from penstock.spark.results.revisions import newest_rows
from penstock.spark.storage.layout import Layout
from penstock.sql.windows.bind import BoundOutput, BoundWindow
from plain_running import AGGREGATES, KEYS, MOMENT, OUTPUTS, PARTS, RunningStream, told
from plain_windows import WINDOW

GAP = 10
#: key, start, end -> count, sum, largest, different
Rows = dict[tuple[int, int, int], tuple[Any, ...]]


def session_plan(history: int = 10**15) -> RunningPlan:
    view = WindowPlan("v", "_x1", ALL_TIME, KEYS, AGGREGATES, ErrorBound(0.1, 0.1), gap=GAP)
    arguments = (("_x0", pa.int64()), ("_x1", MOMENT))
    return RunningPlan(0, (view,), PARTS, arguments, session=SessionPlan(GAP, history))


class SessionStream(RunningStream):
    """The stream and its log.

    Attributes:
        given: key, value and time of the tuples that were put.
    """

    def __init__(self, layout: Layout, having: str | None = None) -> None:
        super().__init__(layout, having)
        self.given: list[tuple[int, int | None, int]] = []
        self._newest = 0

    def bound(self, plan: RunningPlan) -> BoundWindow:
        """A view as it is bound."""
        return BoundWindow(
            plan.views[0], (), None, WINDOW, (BoundOutput("_w", "w", WINDOW), *OUTPUTS), self._having
        )

    def kinds(self, tuples: pa.Table) -> dict[str, pa.Table]:
        """What the envelopes have of tuples."""
        times = tuples.column("_x1").cast(pa.int64()).to_numpy()
        spanned, grouping = with_sessions(tuples, ["_k0"], times, GAP), [PANE, "_k0", *SPAN]
        return {
            PARTIALS: PARTS.lift(spanned, grouping),
            VALUES + "_x0": lift_values(spanned, grouping, "_x0"),
        }

    def put_random(self, rng: np.random.Generator, size: int, *, ended: bool = False) -> None:
        """Puts tuples of a few keys that are up to 20 late, seldom 80."""
        late = np.where(rng.random(size) < 0.02, 80, 20)
        now = self._newest + int(rng.integers(1, 100))
        times = np.maximum(1, now - (rng.random(size) * late).astype(np.int64)).tolist()
        keys = rng.integers(0, 6, size).tolist()
        values = [None if rng.random() < 0.1 else int(value) for value in rng.integers(0, 50, size)]
        self.given += zip(keys, values, times, strict=True)
        delays = [max(0, self._newest - time) for time in times]
        self._newest = max([self._newest, *times])
        self.put(keys, values, times, ended=ended, newest=self._newest, delays=delays)

    def sessions(self) -> Rows:
        """What the view says of each session by the tuples."""
        found: Rows = {}
        for key in {key for key, _, _ in self.given}:
            own = sorted(
                (time, value) for each, value, time in self.given if each == key for value in [value or -1]
            )
            start = last = own[0][0]
            for time, _ in [*own[1:], (10**12, None)]:
                if time - last > GAP:
                    inside = [v for each, v, t in self.given if each == key and start <= t <= last]
                    known = [value for value in inside if value is not None]
                    said = (
                        len(inside),
                        sum(known) if known else None,
                        max(known, default=None),
                        len(set(known)),
                    )
                    found[key, start, last + GAP] = said
                    start = time
                last = time
        return found


def sessions_now(layout: Layout, *, only_final: bool = False) -> Rows:
    """The newest revision of each row, those withdrawn left out."""
    found: Rows = {}
    for row in newest_rows(told(layout)).to_pylist():
        if row["op"] == "upsert" and (row["is_final"] or not only_final):
            span = (int(row["w"][side].timestamp() * 1e6 + 0.5) for side in ("start", "end"))
            found[(row["k"], *span)] = tuple(row[name] for name in ("n", "s", "most", "different"))
    return found
