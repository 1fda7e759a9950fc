"""Writes logs as ingest does, from tables of tuples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from penstock.operators.windows.aggregates import Parts, lift_values
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import PARTIALS, VALUES, Envelope, OperatorPlan, WindowProgram
from penstock.spark.lanes.windows import shard_task
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import file_kind, write_envelopes
from penstock.spark.log.programs import store_program
from penstock.spark.log.stream_log import StreamLog
from penstock.spark.results.bound_views import store_views
from penstock.spark.storage.bindings import RegisteredWindow, WindowDefinition
from penstock.spark.storage.layout import Layout
from penstock.sql.windows.bind import BoundWindow

HORIZON = 10**10
_ROW = "__row"
#: the id of the definition of each view
DEFINITION = "of the log"


@dataclass
class LogWriter:
    """Puts entries for batches of tuples.

    Attributes:
        spark: computes derived columns.
        layout: where.
        stream: the stream's name.
        shards: their number.
        tuples: the stream in order of arrival.
        gamma, horizon: of the programs, microseconds.
        kept_before: see `Entry`.
    """

    spark: SparkSession
    layout: Layout
    stream: str
    shards: int
    tuples: pa.Table
    gamma: int = 0
    horizon: int = HORIZON
    program: WindowProgram | None = None
    newest: int | None = None
    batch: int = -1
    number: int = -1
    taken: int = 0
    kept_before: int | None = None
    _bound: dict[int, tuple[BoundWindow, pa.Table]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._log = StreamLog(self.layout.log(self.stream))

    def views(self, version: int, views: dict[int, BoundWindow], since: int | None = None) -> None:
        """From the next batch on these are the views, an operator each; `since` is theirs."""
        for operator, view in views.items():
            definition = WindowDefinition(view.plan.name, DEFINITION, "")
            registered = {view.plan.name: RegisteredWindow(definition, operator)}
            store_views(self.layout, self.stream, operator, [view], registered)
        plans = tuple(
            OperatorPlan(
                operator, (view.plan,), Parts.of(view.plan.aggregates), view.plan.windows.pane, since
            )
            for operator, view in views.items()
        )
        self.program = WindowProgram(version, plans, self.gamma, self.horizon)
        store_program(self.layout, self.stream, self.program)
        self._bound = {
            number: (view, _selected(self.spark, view, self.tuples)) for number, view in views.items()
        }

    def put(self, size: int) -> Entry:
        """Puts the entry of a batch: the next tuples."""
        assert self.program is not None, "views first"
        self.batch += 1
        rows: dict[str, list[tuple[int, Envelope]]] = {}
        moments = [np.zeros(0, np.int64)]
        self.taken += size
        for operator, (view, every) in self._bound.items():
            row = pc.field(_ROW)
            own = every.filter((row >= self.taken - size) & (row < self.taken))
            times = own.column(view.plan.time).cast(pa.int64()).to_numpy()
            moments.append(times)
            for shard, kind, payload in _envelopes(view, own, times, self.shards):
                rows.setdefault(file_kind(kind), []).append((shard, Envelope(operator, kind, payload)))
        times = np.concatenate(moments)
        delays = np.array([], np.int64)
        if len(times):
            before = np.maximum.accumulate(times)
            if self.newest is not None:
                before = np.maximum(before, self.newest)
            delays = np.maximum(before - times, 0)
            self.newest = int(before[-1])
        name = f"{self.batch}.parquet"
        for kind, own in rows.items():
            path = self._log.path(kind, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_envelopes(own, path)
        largest = (int(delays.max(initial=0)),)
        return self._put(largest, ended=False, files=dict.fromkeys(rows, (name,)))

    def end(self) -> Entry:
        """Puts the entry that ends the stream."""
        return self._put((), ended=True, files={})

    def _put(self, delays: tuple[int, ...], ended: bool, files: Mapping[str, tuple[str, ...]]) -> Entry:
        assert self.program is not None, "views first"
        self.number += 1
        entry = Entry(
            self.number,
            self.batch,
            self.program.version,
            self.number,
            self.newest,
            furthest=self.newest,
            delays=delays,
            files=files,
            ended=ended,
            kept_before=self.kept_before,
        )
        assert self._log.append(entry)
        return entry


def forget(spark: SparkSession) -> None:
    """Lets the workers forget what they keep of shards, as processes do that begin."""

    def clear(_: int) -> None:
        shard_task._held.clear()

    spark.sparkContext.parallelize(range(8), 8).foreach(clear)


def _selected(spark: SparkSession, view: BoundWindow, tuples: pa.Table) -> pa.Table:
    """The tuples of a view with their place and its derived columns; without those that have no event time."""
    tuples = tuples.append_column(_ROW, pa.array(range(tuples.num_rows)))
    if view.derived or view.condition:
        columns = ", ".join(["*", *(f"{column.expression} AS {column.name}" for column in view.derived)])
        spark.createDataFrame(tuples).createOrReplaceTempView("__batch")
        tuples = spark.sql(f"SELECT {columns} FROM __batch WHERE {view.condition or 'TRUE'}").toArrow()
    return tuples.filter(pc.is_valid(tuples.column(view.plan.time)))


def _envelopes(
    view: BoundWindow, tuples: pa.Table, times: np.ndarray, shards: int
) -> list[tuple[int, str, bytes]]:
    windows, keys = view.plan.windows, [name for name, _ in view.plan.keys]
    parts = Parts.of(view.plan.aggregates)
    offset = windows.start % windows.pane
    panes = (times - offset) // windows.pane * windows.pane + offset
    tuples = tuples.append_column(PANE, pa.array(panes))
    texts = pa.table(
        {name: pa.array([str(value) for value in tuples.column(name).to_pylist()]) for name in keys}
    )
    codes = np.zeros(tuples.num_rows, np.int64)
    if keys:
        codes = np.array(
            [sum(map(ord, "".join(row))) for row in zip(*texts.to_pydict().values(), strict=True)], np.int64
        )
    found = []
    for shard in range(shards):
        own = tuples.filter(pa.array(codes % shards == shard))
        if own.num_rows:
            found.append((shard, PARTIALS, _ipc(parts.lift(own, [PANE, *keys]))))
            found += [
                (shard, VALUES + name, _ipc(lift_values(own, [PANE, *keys], name))) for name in parts.values
            ]
    return found


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content
