"""A stream with one ranking by key, logged and answered without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.operators.windows.panes import PANE
from penstock.operators.windows.rankings import RankedParts
from penstock.operators.windows.shard import PARTIALS, RunningPlan
from penstock.plan.rankings import KEPT, PLACE_TYPE, ROW_NUMBER, OrderKey, RankedPlan, Ranking
from penstock.plan.windows import ALL_TIME, Aggregate, ErrorBound
from penstock.spark.results.revisions import newest_rows
from penstock.spark.storage.layout import Layout
from penstock.sql.windows.bind import BoundOutput, BoundWindow
from plain_running import KEYS, MOMENT, RunningStream, told

#: of the view: key, place, value
NAMES = ("k", "place", "x")


def ranked_plan(limit: int, function: str = ROW_NUMBER, ttl: int | None = None) -> RunningPlan:
    """The largest values of each key."""
    ranking = Ranking(function, (OrderKey("_x0", True, False),), limit)
    keys = KEYS if ranking.is_one_row else (*KEYS, ("_k1", PLACE_TYPE))
    aggregates = (Aggregate(KEPT, "_x0", pa.int64()), Aggregate(function, None, PLACE_TYPE))
    view = RankedPlan("v", "", ALL_TIME, keys, aggregates, ErrorBound(0.1, 0.1), ranking=ranking)
    parts = RankedParts(ranking, ("_x0",), "_x1" if ttl else None)
    return RunningPlan(0, (view,), parts, (("_x0", pa.int64()), ("_x1", MOMENT)), parts.time, ttl)


class RankedStream(RunningStream):
    """The stream and its log; see `RunningStream`."""

    def bound(self, plan: RunningPlan) -> BoundWindow:
        kinds = (pa.int64(), PLACE_TYPE, pa.int64())
        outputs = tuple(map(BoundOutput, ("_k0", "_a1", "_a0"), NAMES, kinds))
        return BoundWindow(plan.views[0], (), None, pa.struct([("all", pa.bool_())]), outputs, self._having)

    def kinds(self, tuples: pa.Table) -> dict[str, pa.Table]:
        return {PARTIALS: self._plans[0].parts.lift(tuples, [PANE, "_k0"])}

    def first(self, limit: int) -> list[tuple[Any, ...]]:
        """Key, row number and value of the first tuples of each key."""
        found: list[tuple[Any, ...]] = []
        for key in {key for key, _ in self.tuples}:
            own = sorted((x for each, x in self.tuples if each == key), key=lambda x: (x is None, -(x or 0)))
            found += [(key, place, x) for place, x in enumerate(own[:limit], 1)]
        return sorted(found, key=repr)


def ranked_now(layout: Layout) -> list[tuple[Any, ...]]:
    """The newest revision of each row, those withdrawn left out."""
    rows = newest_rows(told(layout)).to_pylist()
    return sorted((tuple(row[name] for name in NAMES) for row in rows if row["op"] == "upsert"), key=repr)
