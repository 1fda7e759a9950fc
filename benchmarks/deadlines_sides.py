"""The two sides of `deadlines_spark.py`: views with a deadline, and Spark's Structured Streaming of the same views, on the same stream."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from deadlines_feed import (
    COLUMNS,
    MICROS,
    RATE,
    STREAM,
    VALUES,
    VIEWS,
    WINDOW,
    Fed,
    View,
    Windowed,
    feed,
    laborious,
)
from penstock.spark.engine import Engine
from penstock.spark.lanes.deadlines.ledger import RELEASED
from penstock.spark.lanes.deadlines.register import DEADLINE_LANE
from penstock.spark.storage.formats import MANIFEST
from penstock.spark.storage.layout import Layout

#: of tuples of the stream that keeps the ingest busy: a batch of them
BALLAST_ROWS = 400_000
#: after the feed, so that what is late is seen all the same
SETTLE_SECONDS = 6.0
_LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a window.

    Attributes:
        view, end: which; microseconds.
        arrived, noticed: by the lane, seconds since the epoch.
        outcome: as the lane says.
        predicted: seconds; None: none were.
        seconds: that its order took; None: it was not begun.
        seen: when that was seen from outside.
        publication: its number.
    """

    view: str
    end: int
    arrived: float
    noticed: float
    outcome: str
    predicted: float | None
    seconds: float | None
    seen: float
    publication: int

    @property
    def is_released(self) -> bool:
        """Whether its exact rows were published in time, as the lane says."""
        return self.outcome == RELEASED


@dataclass(frozen=True, slots=True)
class Answered:
    """What was seen of a side.

    Attributes:
        fed: the stream.
        seen: when a row was visible.
        wrong: rows that are not what `spark.sql` says, or that it does not have.
        outcomes: of our windows.
        publishing: seconds of each of our publications.
        ballast: tuples a second of the stream that kept the ingest busy.
    """

    fed: Fed
    seen: Windowed
    wrong: int
    outcomes: Sequence[Outcome] = ()
    publishing: Mapping[int, float] = field(default_factory=dict)
    ballast: float = 0.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of one side.

    Attributes:
        turns: of the loop of each view's aggregate, a tuple; a view that is not among them is not there.
        seconds: the stream is fed so long.
        policy: of our side; None: Spark's.
        deadline: of all views in place of their own; None: their own.
        is_busy: another stream keeps the ingest busy.
        loss: k and m, where each view allows that of m consecutive windows k are lost.
    """

    turns: Mapping[View, int]
    seconds: float
    policy: str | None
    deadline: float | None = None
    is_busy: bool = False
    loss: tuple[int, int] | None = None


def answered(spark: SparkSession, folder: Path, cell: Cell) -> Answered:
    """Runs a cell."""
    (folder / "in").mkdir(parents=True)
    return _sparks(spark, folder, cell) if cell.policy is None else _ours(spark, folder, cell)


def _ours(spark: SparkSession, folder: Path, cell: Cell) -> Answered:
    # not compacted, so that each manifest is seen
    engine = Engine(spark, deadline_policy=cell.policy, compact_every_batches=0)
    engine.execute(
        f"CREATE TABLE {STREAM} ({COLUMNS}) USING parquet OPTIONS (path '{folder / 'in'}', event_time 'ts')"
    )
    for view, turns in cell.turns.items():
        engine.aggregate(view.aggregate, laborious(turns), "BIGINT")
        engine.view(view.name, view.text(cell.deadline or view.deadline, cell.loss))
    if cell.is_busy:
        frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", BALLAST_ROWS).load()
        engine.stream("ballast", frame.selectExpr("value", "pmod(xxhash64(value), 1000003) AS hash"))
        engine.view("rare", "SELECT value FROM ballast WHERE sqrt(hash) > 999")
    run = engine.start(folder / "out")
    try:
        with seen_outcomes(folder / "out") as outcomes:
            with fed_stream(folder / "in", cell.seconds) as told:
                fed = told()
            time.sleep(SETTLE_SECONDS)
            events = {kind: run.events(kind) for kind in ("cut", "batch")}
            rows = {view.name: run.results(view.name).select("w", "s").collect() for view in cell.turns}
    finally:
        run.stop()
    ballast = [each for each in events["batch"] if each["stream"] == "ballast"]
    return Answered(
        fed,
        {(each.view, each.end): each.seen for each in outcomes if each.is_released},
        _wrong(spark, folder / "in", rows),
        outcomes,
        {each["cut"]: each["publish_seconds"] for each in events["cut"]},
        sum(each["tuples"] for each in ballast) / (cell.seconds + SETTLE_SECONDS),
    )


def _sparks(spark: SparkSession, folder: Path, cell: Cell) -> Answered:
    """A query a view, each in a pool of its own; a row is visible once it is in the driver."""
    seen: Windowed = {}
    rows: dict[str, list[Row]] = {view.name: [] for view in VIEWS}
    queries = []

    def take(view: View, frame: DataFrame) -> None:
        found = frame.collect()
        now = time.time()
        rows[view.name] += found
        seen.update({(view.name, micros(row.w.end)): now for row in found})

    frame = spark.readStream.schema(COLUMNS).parquet(str(folder / "in")).withWatermark("ts", "0 seconds")
    frame.createOrReplaceTempView(STREAM)
    for view in VIEWS:
        work = laborious(cell.turns[view])
        spark.udf.register(view.aggregate, _of_list(work), "BIGINT")
        text = f"SELECT w, {view.aggregate}(xs) AS s FROM (SELECT {WINDOW} AS w, collect_list(x) AS xs FROM {STREAM} GROUP BY 1)"
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", view.name)
        writer = spark.sql(text).writeStream.option("checkpointLocation", str(folder / view.name))
        queries.append(writer.foreachBatch(lambda each, _, view=view: take(view, each)).start())
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)
    try:
        with fed_stream(folder / "in", cell.seconds) as told:
            fed = told()
        time.sleep(SETTLE_SECONDS)
    finally:
        for query in queries:
            query.stop()
        spark.catalog.dropTempView(STREAM)
    return Answered(fed, seen, _wrong(spark, folder / "in", rows))


def _of_list(work: Any) -> Any:
    def function(values: list[int]) -> int:
        import pyarrow as pa

        return work(pa.array(values))

    return function


@contextmanager
def fed_stream(
    folder: Path, seconds: float, rate: int = RATE, groups: int = 0, values: int = VALUES
) -> Iterator[Any]:
    """Feeds the stream from a process of its own, see `feed`; gives what was written, once that is over."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    feeder = context.Process(target=feed, args=(folder, seconds, there, rate, groups, values), daemon=True)
    feeder.start()
    there.close()
    try:
        yield here.recv
    finally:
        feeder.terminate()
        feeder.join()


@contextmanager
def seen_outcomes(output: Path) -> Iterator[list[Outcome]]:
    """Gives what is seen of outcomes by another process; the list grows until the end."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    watcher = context.Process(target=_watch, args=(output, there), daemon=True)
    watcher.start()
    there.close()
    outcomes: list[Outcome] = []
    receiver = threading.Thread(target=_receive, args=(here, outcomes))
    receiver.start()
    try:
        yield outcomes
    finally:
        watcher.terminate()
        receiver.join()


def _watch(output: Path, told: Connection) -> None:
    """Says what each publication says as soon as it can be seen."""
    layout, number = Layout.of(output, None), 0
    while True:
        document = MANIFEST.read(layout.manifests(DEADLINE_LANE)[number])
        if document is None:
            time.sleep(_LOOK_SECONDS)
            continue
        seen = time.time()
        for each in document["batches"][0]["outcomes"]:
            told.send(
                Outcome(
                    each["view"],
                    each["end"],
                    each["arrived"],
                    each["noticed"],
                    each["outcome"],
                    each["predicted_seconds"],
                    each["seconds"],
                    seen,
                    number,
                )
            )
        number += 1


def _receive(here: Connection, outcomes: list[Outcome]) -> None:
    with suppress(EOFError):
        while True:
            outcomes.append(here.recv())


def _wrong(spark: SparkSession, folder: Path, rows: Mapping[str, Sequence[Row]]) -> int:
    """Rows that `spark.sql` gives differently over all tuples. The aggregate is the same one without its loop."""
    Engine(spark).aggregate("idle_work", laborious(0), "BIGINT")
    spark.read.parquet(str(folder)).createOrReplaceTempView("all_readings")
    text = f"SELECT {WINDOW} AS w, idle_work(x) AS s FROM all_readings GROUP BY w"
    wanted = {micros(row.w.end): row.s for row in spark.sql(text).collect()}
    return sum(wanted.get(micros(row.w.end)) != row.s for own in rows.values() for row in own)


def micros(moment: Any) -> int:
    """A moment as microseconds since the epoch."""
    return round(moment.astimezone(UTC).timestamp() * MICROS)
