"""Nexmark: each query on Penstock beside Spark Structured Streaming, over the same files and the same cores.

    python benchmarks/nexmark_spark.py [--events 500000] [--queries q0,q5] [--refreshed] [--json FILE]

Each query is a run of its own over stored events, to their end: seconds from the start to the last row published. Both sides run in one
session, one after the other; a first query of each that is not counted warms it. Penstock answers by a lane where one can, else by one refresh at
the end. With --refreshed the refresh is measured too where a lane answers. Spark gets the query's text over streams with a watermark, and writes Parquet files (append), or all changed rows to nowhere (update);
where it refuses all of these, that is written. In append mode Spark never tells the windows that are open at the end.

A query that fails on Penstock makes the exit code 1. How much faster a side is decides nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from penstock import Engine, Trigger, build_session
from penstock.errors import PenstockError
from penstock_lab.generators.nexmark import EVENT_TIME, STREAMS, Nexmark, nexmark_tables, write_nexmark
from penstock_lab.generators.nexmark_views import WITHOUT_ANCHOR, declare_nexmark, nexmark_queries, refreshed
from processes import processor_seconds

FOLDER = Path(__file__).parent / "nexmark"
FILES, RATE, WATERMARK = 10, 2_000, "10 seconds"


@dataclass(frozen=True)
class Side:
    """One query on one side.

    Attributes:
        way: how it was answered; why it was not, where `seconds` is None.
        seconds: from the start to the end.
        processor: seconds of all processes.
    """

    way: str
    seconds: float | None = None
    processor: float | None = None


def main() -> int:
    """Measures and tells; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--queries", default="")
    parser.add_argument("--refreshed", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    queries = nexmark_queries(FOLDER)
    wanted = {name: queries[name] for name in given.queries.split(",")} if given.queries else queries
    root = Path(tempfile.mkdtemp(prefix="penstock-nexmark-"))
    spark = build_session(None, {}, "nexmark")
    try:
        write_nexmark(root / "in", Nexmark(given.events, rate=RATE), FILES)
        penstock_side(spark, root, "warm", queries["q12"])
        spark_side(spark, root, "warm", queries["q12"])
        measured = {}
        for name, query in wanted.items():
            measured[name] = penstock_side(spark, root, name, query), spark_side(spark, root, name, query)
            print(name, *measured[name], flush=True)
            if given.refreshed and measured[name][0].way == "lane":
                other = f"{name} refreshed"
                measured[other] = penstock_side(spark, root, other, refreshed(query)), measured[name][1]
                print(other, measured[other][0], flush=True)
        tell(measured, given.events)
        if given.json:
            given.json.write_text(
                json.dumps({name: [asdict(s) for s in m] for name, m in measured.items()}, indent=1)
            )
        return int(any(ours.seconds is None for ours, _ in measured.values()))
    finally:
        spark.stop()
        shutil.rmtree(root, ignore_errors=True)


def penstock_side(spark: SparkSession, root: Path, name: str, query: str) -> Side:
    """A query on Penstock."""
    engine = Engine(spark)
    try:
        engine.execute(nexmark_tables(root / "in"))
        view = name.replace(" ", "_")
        is_refreshed = bool(declare_nexmark(engine, {view: query})) or name != view
        way = "refresh" if is_refreshed else "lane"
    except PenstockError as error:
        return Side(str(error).partition("\n")[0][:100])

    def run() -> None:
        with engine.start(root / f"ours-{view}", trigger=Trigger.available_now(ended=True)) as started:
            started.await_termination()

    try:
        return timed(way, run)
    except PenstockError as error:
        return Side(str(error).partition("\n")[0][:100])


def spark_side(spark: SparkSession, root: Path, name: str, query: str) -> Side:
    """A query on Spark Structured Streaming, in the first mode that it takes."""
    session = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    for stream in STREAMS:
        path = str(root / "in" / stream)
        frame = session.readStream.schema(session.read.parquet(path).schema).parquet(path)
        frame.withWatermark(EVENT_TIME, WATERMARK).createOrReplaceTempView(stream)
    session.read.parquet(str(root / "in" / "side_input")).createOrReplaceTempView("side_input")
    reason = ""
    for mode in ("append", "update"):
        place = root / f"spark-{name}-{mode}"
        try:
            writer = session.sql(query).writeStream.outputMode(mode).trigger(availableNow=True)
            writer = writer.option("checkpointLocation", str(place / "checkpoint"))
            if mode == "append":
                writer = writer.format("parquet").option("path", str(place / "out"))
            else:
                writer = writer.format("noop")
            return timed(mode, lambda writer=writer: writer.start().awaitTermination())
        except PySparkException as error:
            reason = str(error).partition("\n")[0][:100]
    return Side(reason)


def timed(way: str, run: Callable[[], object]) -> Side:
    """Runs a query to its end."""
    began, used = time.perf_counter(), processor_seconds(os.getpid())
    run()
    return Side(way, time.perf_counter() - began, processor_seconds(os.getpid()) - used)


def tell(measured: dict[str, tuple[Side, Side]], events: int) -> None:
    """Prints the table."""
    table = Table(title=f"Nexmark, {events:,} events of all streams, {os.cpu_count()} cores")
    for column in ("query", "Penstock by", "events/s", "core s", "Spark by", "events/s", "core s", "times"):
        table.add_column(column, justify="left" if column.endswith("by") or column == "query" else "right")
    for name, (ours, theirs) in measured.items():
        times = f"{theirs.seconds / ours.seconds:.1f}" if ours.seconds and theirs.seconds else "-"
        marked = f"{name}*" if name in WITHOUT_ANCHOR else name
        table.add_row(marked, *cells(ours, events), *cells(theirs, events), times)
    Console(width=140).print(table)
    print("* " + "; ".join(f"{name}: {why}" for name, why in WITHOUT_ANCHOR.items()))


def cells(side: Side, events: int) -> tuple[str, str, str]:
    """A side's part of a line."""
    if side.seconds is None or side.processor is None:
        return ("not answered", "-", "-")
    return (side.way, f"{events / side.seconds:,.0f}", f"{side.processor:.1f}")


if __name__ == "__main__":
    sys.exit(main())
