"""Early answers over tuples that come late, in real time: the bound, what it costs in time, and what is exact in the end.

A process of its own writes a Parquet file every 100 ms with the tuples that have arrived by then, 10,000 a second, each with the event
time of its making (`windows_feed.py`): delays of the HPM paper's second soccer stream (`GAME_2`) with the paper's windows of 0.5 s sliding by 0.1 s, and of a network
in trouble (`TROUBLED`) with windows of 2 s sliding by 0.5 s. The engine answers SUM and COUNT of all tuples and by 10 keys, each within 5 % with 95 %
of the answers. What is counted begins 20 s after the first tuple and ends some seconds before the last one: of each row that was published with
revision 0 whether it is within the bound of the exact answer over all the tuples in the files, which DuckDB works out; its slack; and by the clock
how long after the end of its window it was published, and how long after the newest event time that it had seen. The published files are those
of the batches as they were (they are not merged here), the moment is that of the batch's event. In the end the tuples that are still under way come, the stream
is said to have ended, and each final answer must be DuckDB's.

Beside it, on the same tuples at the same times: Spark's own aggregation by the keys in append mode, with the fixed watermark that would have
satisfied 95 % of the rows, known from hindsight and told to it. A row counts from when a batch that has it is collected.
Windows that overlap tell each thing several times: the intervals (Wilson, 95 %) are those of as many rows as there would be without overlap.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from expectations import Expectations
from latency import WARM_SECONDS, moment, put_file
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock.trigger import Trigger
from penstock_lab.simulate.disorder import SECOND
from penstock_lab.simulate.windows import wilson
from windows_feed import (
    COLUMNS,
    FILE_SECONDS,
    STREAMS,
    TAIL_SECONDS,
    Stream,
    Tuples,
    largest_delay,
    play,
    watermark,
)

EPSILON, DELTA = 0.05, 0.05
VIEWS = ("total", "by_key")
#: how soon early answers are expected after the end of their windows: of the largest delay, and of Spark's time with a watermark of hindsight
MOST_OF_LARGEST, MOST_OF_SPARKS = 0.2, 2.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What was published of one view by one side.

    Attributes:
        rows: rows of the windows that count, each with an early answer or none.
        share, low, high: of those with an early answer within the bound, and its interval.
        slack: mean slack, seconds; NaN where it is not told.
        after_end: seconds from the end of the window until it was published, float64[rows].
        after_newest: likewise from the newest event time seen; empty where that is not told.
        missing: of those without one when the stream was stopped.
        promised: share of the early answers whose bound was promised; NaN of a side that promises nothing.
        corrected: further revisions of all windows.
        finals: rows that all windows have, how many are final and not DuckDB's, how many are lacking or not final.
    """

    rows: int
    share: float
    low: float
    high: float
    slack: float
    after_end: npt.NDArray[np.float64]
    after_newest: npt.NDArray[np.float64]
    missing: int
    promised: float
    corrected: int = 0
    finals: tuple[int, int, int] = (0, 0, 0)


def exact(folder: Path, stream: Stream) -> duckdb.DuckDBPyConnection:
    """DuckDB with `exact_total` and `exact_by_key` over all tuples in the files: start, key, s, n."""
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.execute("SET threads = 2")
    for view, key in (("total", "0::BIGINT"), ("by_key", "key")):
        database.execute(
            f"CREATE TABLE exact_{view} AS SELECT (epoch_us(ts) // {stream.slide} - back) * {stream.slide} AS start, "
            f"{key} AS key, sum(value)::BIGINT AS s, count(*) AS n "
            f"FROM read_parquet('{folder}/*.parquet'), range({stream.size // stream.slide}) past(back) GROUP BY ALL"
        )
    return database


def summary(
    database: duckdb.DuckDBPyConnection, view: str, stream: Stream, begun: float, seconds: float
) -> Measured:
    """What `early` (start, key, s, n, slack, promised, published) is worth beside the exact answers."""
    since = (begun + WARM_SECONDS) * SECOND - stream.size
    until = (begun + seconds - TAIL_SECONDS) * SECOND - stream.size
    far = " OR ".join(f"abs(e.{name} - x.{name}) >= {EPSILON} * x.{name}" for name in ("s", "n"))
    rows = database.execute(
        f"SELECT e.start IS NULL AS missing, NOT ({far}) AS within, e.slack, e.promised, "
        f"e.published - (x.start + {stream.size}) / 1e6 AS after FROM exact_{view} x LEFT JOIN early e USING (start, key) "
        f"WHERE x.start >= {since} AND x.start < {until}"
    ).fetchnumpy()
    missing = np.asarray(rows["missing"], bool)
    within = np.ma.filled(rows["within"], False).astype(bool)
    after, slack, promised = (
        np.ma.asarray(rows[name]).astype(float).filled(np.nan)[~missing]
        for name in ("after", "slack", "promised")
    )
    apart = stream.slide / stream.size
    _, low, high, _ = wilson(round(within.sum() * apart), round(len(within) * apart))
    return Measured(
        len(within),
        float(within.mean()),
        low,
        high,
        _mean(slack),
        after,
        (after - slack)[~np.isnan(slack)],
        int(missing.sum()),
        _mean(promised),
    )


def _mean(figures: npt.NDArray[np.float64]) -> float:
    return float(figures.mean()) if len(figures) else float("nan")


def published(run: Run) -> pa.Table:
    """When each batch of windows was published: batch, published (seconds since the epoch)."""
    told = run.events("windows")
    return pa.table({"batch": [each["batch"] for each in told], "published": [moment(each) for each in told]})


def ours(spark: SparkSession, stream: Stream, seconds: float) -> dict[str, Measured]:
    """What the engine publishes of a stream, by view."""
    hint = f"/*+ MAX_ERROR({EPSILON}, {DELTA}) */"
    values = f"{stream.window} AS w, sum(value) AS s, count(*) AS n FROM tuples GROUP BY"
    views = {"total": f"SELECT {hint} {values} w", "by_key": f"SELECT {hint} key, {values} key, w"}
    with tempfile.TemporaryDirectory() as place:
        folder, output = Path(place) / "in", Path(place) / "out"
        folder.mkdir()

        def engine() -> Engine:
            table = (
                f"CREATE TABLE tuples ({COLUMNS}) USING parquet OPTIONS (path '{folder}', event_time 'ts')"
            )
            return Engine(spark, compact_every_batches=0).execute(table).add_views(views)

        run = engine().start(output)
        begun = play(folder, stream, seconds)
        time.sleep(2.0)
        run.stop()
        batches = published(run)
        tuples = Tuples.of(stream, seconds)
        rest = int(seconds / FILE_SECONDS)
        put_file(folder, rest, tuples.between(rest, int(tuples.file[-1]) + 1, begun))
        run = engine().start(output, trigger=Trigger.available_now(ended=True))
        run.await_termination()
        run.stop()
        database = exact(folder, stream)
        database.register("batches", batches)
        found = {}
        for view in VIEWS:
            key = "key" if view == "by_key" else "0::BIGINT"
            database.execute(
                f"CREATE OR REPLACE TABLE told AS SELECT epoch_us(w.start) AS start, {key} AS key, s, n, revision, "
                "is_final, slack, coverage, regexp_extract(filename, '([0-9]+)-[^/]*$', 1)::BIGINT AS batch "
                f"FROM read_parquet('{output}/results/{view}/*.parquet', filename = true)"
            )
            database.execute(
                "CREATE OR REPLACE TABLE early AS SELECT start, key, s, n, slack, coverage IS NOT NULL AS promised, published "
                "FROM told JOIN batches USING (batch) WHERE revision = 0"
            )
            found[view] = replace(
                summary(database, view, stream, begun, seconds),
                corrected=_count(database, "FROM told WHERE revision > 0"),
                finals=finals(database, view),
            )
    return found


def finals(database: duckdb.DuckDBPyConnection, view: str) -> tuple[int, int, int]:
    """Rows of the exact answer; final ones of `told` that differ from them; rows that have no such final one."""
    newest = (
        "SELECT start, key, max_by(s, revision) AS s, max_by(n, revision) AS n FROM told "
        "GROUP BY start, key HAVING max_by(is_final, revision)"
    )
    return (
        _count(database, f"FROM exact_{view}"),
        _count(database, f"({newest}) EXCEPT FROM exact_{view}"),
        _count(database, f"FROM exact_{view} EXCEPT ({newest})"),
    )


def _count(database: duckdb.DuckDBPyConnection, text: str) -> int:
    counted = database.execute(f"SELECT count(*) FROM ({text})").fetchone()
    assert counted is not None, "a count has one row"
    return int(counted[0])


def native(spark: SparkSession, stream: Stream, seconds: float, delay: float) -> Measured:
    """What Spark's own aggregation answers of a stream by the keys, with a fixed watermark."""
    rows: list[pa.Table] = []

    def collect(batch: DataFrame, _: int) -> None:
        answered = batch.toArrow()
        rows.append(
            answered.append_column("published", pa.array([time.time()] * answered.num_rows, pa.float64()))
        )

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "in"
        folder.mkdir()
        answers = (
            spark.readStream.schema(COLUMNS)
            .parquet(str(folder))
            .withWatermark("ts", f"{round(delay * 1000)} milliseconds")
        )
        answers.createOrReplaceTempView("tuples")
        text = (
            f"SELECT unix_micros(w.start) AS start, key, s, n FROM (SELECT key, {stream.window} AS w, sum(value) AS s, "
            "count(*) AS n FROM tuples GROUP BY key, w)"
        )
        writer = spark.sql(text).writeStream.outputMode("append").foreachBatch(collect)
        query = writer.option("checkpointLocation", str(Path(place) / "checkpoint")).start()
        begun = play(folder, stream, seconds)
        time.sleep(2.0)
        query.stop()
        tuples = Tuples.of(stream, seconds)
        rest = int(seconds / FILE_SECONDS)
        put_file(folder, rest, tuples.between(rest, int(tuples.file[-1]) + 1, begun))
        database = exact(folder, stream)
        database.register("answered", pa.concat_tables(rows))
        database.execute(
            "CREATE TABLE early AS SELECT *, NULL::DOUBLE AS slack, NULL::BOOLEAN AS promised FROM answered"
        )
        return summary(database, "by_key", stream, begun, seconds)


def late(spark: SparkSession, small: bool, expect: Expectations) -> None:
    """Measures the streams, prints the table and what is expected.

    Args:
        spark: with two cores.
        small: the first stream alone, for less time.
        expect: told of it.
    """
    table = Table(
        "stream", "side", "rows", "satisfied", "95 % interval", "promised", "mean slack s",
        "published after the window's end, s: mean", "p50", "p99", "after the newest event time, s: p50", "p99", "corrections",
        "load",
    )  # fmt: skip
    # the first run pays for workers, kernels and what the JVM compiles
    ours(spark, STREAMS[0], WARM_SECONDS + 2 * TAIL_SECONDS)
    for stream in STREAMS[:1] if small else STREAMS:
        seconds, its_seconds = (50.0, 35.0) if small else (120.0, 60.0)
        found = ours(spark, stream, seconds)
        for view, own in found.items():
            table.add_row(stream.name, f"ours, {view}", *_cells(own))
            expect.hold(
                f"{stream.name}, {view}: the interval of the satisfied share reaches {1 - DELTA}",
                own.high >= 1 - DELTA,
                f"{own.share:.4f} ({own.low:.4f} - {own.high:.4f}) of {own.rows:,}",
            )
            rows, wrong, lacking = own.finals
            expect.hold(
                f"{stream.name}, {view}: every row's newest revision is final and DuckDB's",
                rows > 0 and not wrong and not lacking,
                f"{rows:,} rows, {wrong} wrong, {lacking} lacking",
            )
        largest = largest_delay(stream, seconds)
        for view, own in found.items():
            what = f"{stream.name}, {view}: mean time after the end, of the largest delay, {largest:.1f} s"
            expect.at_most(what, _mean(own.after_end) / largest, MOST_OF_LARGEST)
        delay = watermark(stream, its_seconds, EPSILON, DELTA)
        plain = native(spark, stream, its_seconds, delay)
        table.add_row(stream.name, f"Spark, by_key, watermark {delay:.2f} s", *_cells(plain))
        what = f"{stream.name}, by_key: mean time after the end, of Spark's with the watermark of hindsight"
        expect.at_most(what, _mean(found["by_key"].after_end) / _mean(plain.after_end), MOST_OF_SPARKS)
    Console(width=190).print(table)


def _cells(found: Measured) -> list[str]:
    def quantiles(seconds: npt.NDArray[np.float64]) -> list[str]:
        return [f"{each:.2f}" for each in np.quantile(seconds, (0.5, 0.99))] if len(seconds) else ["", ""]

    return [
        f"{found.rows:,}" + (f" ({found.missing:,} missing)" if found.missing else ""),
        f"{found.share:.4f}",
        f"{found.low:.4f} - {found.high:.4f}",
        "" if np.isnan(found.promised) else f"{found.promised:.0%}",
        "" if np.isnan(found.slack) else f"{found.slack:.2f}",
        f"{_mean(found.after_end):.2f}",
        *quantiles(found.after_end),
        *quantiles(found.after_newest),
        f"{found.corrected:,}",
        f"{os.getloadavg()[0]:.1f}",
    ]
