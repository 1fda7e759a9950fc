"""A stream with one running view by key, logged and answered without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lane_cases import lane_context
from penstock.operators.windows.aggregates import Parts, lift_values
from penstock.operators.windows.pane_stage import _split
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import PARTIALS, VALUES, Envelope, RunningPlan, WindowProgram
from penstock.plan.windows import ALL_TIME, Aggregate, ErrorBound, WindowPlan
from penstock.spark.lanes.running.lane import RunningLane
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import file_kind, write_envelopes
from penstock.spark.log.programs import store_program
from penstock.spark.log.stream_log import StreamLog
from penstock.spark.publication.kinds import results_of, running_of, view_kind
from penstock.spark.publication.manifests import published_paths
from penstock.spark.results.bound_views import store_views
from penstock.spark.results.revisions import newest_rows
from penstock.spark.storage.bindings import RegisteredWindow, RunningDefinition
from penstock.spark.storage.layout import Layout
from penstock.sql.windows.bind import BoundOutput, BoundWindow
from penstock.trigger import Trigger
from plain_windows import JobsHere, no_spark
from window_cases import stream_of

STREAM, SHARDS = "s", 2
LANE = results_of(running_of(STREAM))
MOMENT = pa.timestamp("us", "UTC")
AGGREGATES = (
    Aggregate("count", None, pa.int64()),
    Aggregate("sum", "_x0", pa.int64()),
    Aggregate("max", "_x0", pa.int64()),
    Aggregate("count_distinct", "_x0", pa.int64()),
)
TOUCHED = Aggregate("max", "_x1", MOMENT)
KEYS = (("_k0", pa.int64()),)
NAMES = ("k", "n", "s", "most", "different")
OUTPUTS = tuple(
    BoundOutput(expression, name, pa.int64())
    for expression, name in zip(("_k0", "_a0", "_a1", "_a2", "_a3"), NAMES, strict=True)
)
PARTS = Parts.of([*AGGREGATES, TOUCHED])


def running_plan(operator: int = 0, ttl: int | None = None, name: str = "v") -> RunningPlan:
    view = WindowPlan(name, "", ALL_TIME, KEYS, AGGREGATES, ErrorBound(0.1, 0.1))
    arguments = (("_x0", pa.int64()), ("_x1", MOMENT))
    return RunningPlan(operator, (view,), PARTS, arguments, "_x1" if ttl else None, ttl)


def bound(plan: RunningPlan, having: str | None = None) -> BoundWindow:
    return BoundWindow(plan.views[0], (), None, pa.struct([("all", pa.bool_())]), OUTPUTS, having)


def tuples_of(keys: Sequence[int], values: Sequence[int | None], times: Sequence[int]) -> pa.Table:
    columns = {PANE: [0] * len(keys), "_k0": keys, "_x0": pa.array(values, pa.int64())}
    return pa.table({**columns, "_x1": pa.array(times, pa.int64()).cast(MOMENT)})


class RunningStream:
    """The stream and its log.

    Args:
        layout: where.
        having: of the view.

    Attributes:
        log: the log.
        tuples: those that were put.
    """

    def __init__(self, layout: Layout, having: str | None = None) -> None:
        self.layout = layout
        self.log = StreamLog(layout.log(STREAM))
        for kind in ("partials", "values"):
            self.log.path(kind, "").mkdir(parents=True, exist_ok=True)
        self._having = having
        self._version = -1
        self.number = self.log.last
        self.tuples: list[tuple[int, int | None]] = []

    def views(self, *plans: RunningPlan) -> None:
        """From the next entry on these are the views."""
        self._plans = plans
        self._version += 1
        for plan in plans:
            name = plan.views[0].name
            definition = RunningDefinition(name, f"of operator {plan.id}", "")
            registered = {name: RegisteredWindow(definition, plan.id)}
            store_views(self.layout, running_of(STREAM), plan.id, [self.bound(plan)], registered)
        store_program(self.layout, STREAM, WindowProgram(self._version, (), 0, 0, running=plans))

    def bound(self, plan: RunningPlan) -> BoundWindow:
        """A view as it is bound."""
        return bound(plan, self._having)

    def kinds(self, tuples: pa.Table) -> dict[str, pa.Table]:
        """What the envelopes have of tuples."""
        grouping = [PANE, "_k0"]
        return {PARTIALS: PARTS.lift(tuples, grouping), VALUES + "_x0": lift_values(tuples, grouping, "_x0")}

    def put(
        self,
        keys: Sequence[int],
        values: Sequence[int | None],
        times: Sequence[int] | None = None,
        *,
        ended: bool = False,
        newest: int | None = None,
        delays: Sequence[int] = (),
    ) -> None:
        """Puts an entry of tuples; without `newest` the latest one of them is the stream's."""
        self.number += 1
        self.tuples += zip(keys, values, strict=True)
        tuples = tuples_of(keys, values, times or [0] * len(keys))
        rows: dict[str, list[tuple[int, Envelope]]] = {}
        for kind, table in self.kinds(tuples).items():
            for shard, own in enumerate(_split(table, ["_k0"], SHARDS)):
                for plan in self._plans:
                    envelope = Envelope(plan.id, kind, stream_of(own))
                    rows.setdefault(file_kind(kind), []).append((shard, envelope))
        name = f"{self.number}.parquet"
        for kind, own_rows in rows.items():
            write_envelopes(own_rows, self.log.path(kind, name))
        newest = newest or (max(times) if times else 0)
        entry = Entry(
            self.number,
            self.number,
            self._version,
            self.number,
            newest,
            newest,
            tuple(delays),
            files=dict.fromkeys(rows, (name,)),
            ended=ended,
        )
        assert self.log.append(entry)

    def wanted(self) -> dict[int, tuple[int, int | None, int | None, int]]:
        """What the view says of each key by the tuples."""
        found = {}
        for key in {key for key, _ in self.tuples}:
            own = [value for each, value in self.tuples if each == key]
            known = [value for value in own if value is not None]
            found[key] = (len(own), sum(known) if known else None, max(known, default=None), len(set(known)))
        return found


def running_lane(layout: Layout, jobs: JobsHere | None = None, entries: int = 1) -> RunningLane:
    """A lane that answers what is in the log."""
    context = lane_context(
        layout, no_spark(), trigger=Trigger.available_now(), shards=SHARDS, compact_every_batches=5
    )
    ingest = SimpleNamespace(stream=STREAM, plans=SimpleNamespace(running={"v": None}))
    keeper: Any = SimpleNamespace(stream=STREAM, ingest=ingest, active=False, is_complete=True)
    lane = RunningLane(context, keeper)
    lane._entries_per_cut = entries
    lane.jobs = jobs or JobsHere()  # type: ignore[assignment]
    return lane


def answer(layout: Layout, entries: int = 1) -> dict[str, Any]:
    """Lets a lane answer all that is in the log; what it records of its newest cut."""
    lane = running_lane(layout, entries=entries)
    lane.start()
    while not lane.await_termination(1.0):
        pass
    return [event for event in lane.context.events.recent if event["kind"] == "cut"][-1]


def told(layout: Layout, operator: int = 0, name: str = "v") -> pa.Table:
    """Every revision of every row."""
    return pa.concat_tables(
        pq.read_table(path) for path in published_paths(layout, LANE, view_kind(operator, name))
    )


def rows_now(layout: Layout, operator: int = 0) -> dict[int, tuple[Any, ...]]:
    """The newest revision of each row by its key, those withdrawn left out."""
    newest = newest_rows(told(layout, operator))
    return {
        row["k"]: tuple(row[name] for name in NAMES[1:])
        for row in newest.to_pylist()
        if row["op"] == "upsert"
    }


def random_tuples(rng: np.random.Generator, size: int, groups: int) -> tuple[list[int], list[int | None]]:
    keys = rng.integers(0, groups, size).tolist()
    values = [None if rng.random() < 0.1 else int(value) for value in rng.integers(0, 50, size)]
    return keys, values
