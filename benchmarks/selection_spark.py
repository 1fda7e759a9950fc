"""Selections on Spark: the engine beside plain Spark on the same rows, on two cores.

Rows: 10 BIGINT attributes uniform in [0, 9999] (`selection_workloads`, fixed seeds), Parquet files of
2,000,000 rows in row groups of 500,000, written once to `out/bench/data`; queries of 3 predicates. Ours
runs through `Engine.start(trigger=Trigger.available_now())` and writes its matches to Parquet; the sides it is
compared with write nothing. Every streaming side gets the same batches of eight files, 16,000,000 rows. A batch's time
is taken inside foreachBatch, for ours from its `batch` event (binding, job, publication); a side's rate
is the median over its batches of all rounds, the first batch of every run, which pays for plans,
workers and kernels, and a last one of what remained left out. One run of ours is not counted at all: beside its batches the driver
compiles the controller's kernels. The sides take turns in rounds, so that load on the machine meets all.
The exit code is 1 where a ratio, or the recovery from a drift, is not what is expected (`judge`).

Run: python benchmarks/selection_spark.py [--small] [part ...]
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent))

from expectations import Expectations
from penstock.operators.selection.selector import Selector, compile_selections
from penstock.spark.engine import Engine
from penstock.spark.sessions.build import build_session
from penstock.trigger import Trigger
from selection_drift import run_drift
from selection_turn import run_turn
from selection_workloads import ATTRIBUTES, VALUES, Workload, uniform_workload

mpl.use("Agg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "out" / "bench"
BROKER_JARS = ROOT / ".cache" / "kafka"
CONNECTOR_JARS = sorted((ROOT / ".cache" / "kafka-connector").glob("*.jar"))
SEED = 20262
NAMES = [f"a{number}" for number in range(ATTRIBUTES)]
COLUMNS = ", ".join(f"{name} BIGINT" for name in NAMES)
BATCH_ROWS = 65_536
PARTS = ("parquet", "native", "kafka", "drift", "turn")

#: (seconds, tuples) of each batch
Batches = list[tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Scale:
    """Size of a run.

    Attributes:
        file_rows, files, files_a_batch: the Parquet stream.
        queries: numbers of queries in the scan; the first is that of every other side.
        rounds: times the sides take turns.
        native_rows: rows each native formulation answers.
        kafka_rows, kafka_batch_rows: the topic, and offsets a batch.
    """

    file_rows: int
    files: int
    files_a_batch: int
    queries: tuple[int, ...]
    rounds: int
    native_rows: tuple[int, int, int]
    kafka_rows: int
    kafka_batch_rows: int


FULL = Scale(2_000_000, 24, 8, (1_000, 10_000, 100_000), 2, (200_000, 20_000, 4_000), 4_000_000, 1_000_000)
SMALL = Scale(50_000, 4, 2, (100, 1_000), 1, (2_000, 1_000, 500), 40_000, 20_000)


@dataclass(slots=True)
class Side:
    """One side of a comparison: its measured batches and what else is known of it."""

    name: str
    rates: list[float] = field(default_factory=list)
    wall: float = 0.0
    note: str = ""

    @property
    def rate(self) -> float:
        """Median rows a second."""
        return median(self.rates)

    def add(self, batches: Batches, wall: float) -> None:
        """Takes in a run, its first batch and a last one of what remained not counted; prints the rate so far."""
        whole = max(tuples for _, tuples in batches) / 2
        self.rates += [tuples / seconds for seconds, tuples in batches[1:] if tuples > whole]
        self.wall = wall
        print(f"{self.name}: {self.rate:,.0f} rows/s, load average {load()}", flush=True)


def write_rows(folder: Path, files: int, rows: int) -> Path:
    """Writes the files once; a folder that is complete is used again."""
    if len(list(folder.glob("*.parquet"))) == files:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number in range(files):
        values = np.random.default_rng([SEED, number]).integers(0, VALUES, (ATTRIBUTES, rows))
        table = pa.table(dict(zip(NAMES, values, strict=True)))
        pq.write_table(table, folder / f"{number:03d}.parquet", row_group_size=max(1, rows // 4))
    return folder


def conditions(workload: Workload) -> dict[str, str]:
    """The queries as SQL conditions."""
    rows = zip(workload.attribute.tolist(), workload.low.tolist(), workload.high.tolist(), strict=True)
    return {
        f"q{number}": " AND ".join(
            f"a{attribute} = {low}" if low == high else f"a{attribute} BETWEEN {low} AND {high}"
            for attribute, low, high in zip(*query, strict=True)
        )
        for number, query in enumerate(rows)
    }


def run_engine(spark: SparkSession, table: str, wanted: dict[str, str], **tune: Any) -> tuple[Side, Batches]:
    """Runs the real engine over all there is; the matches land in Parquet and are then removed.

    Returns:
        Wall time and notes, and the seconds and tuples of each batch.
    """
    with tempfile.TemporaryDirectory(dir=OUTPUT) as folder:
        engine = Engine(spark, **tune).execute(f"CREATE TABLE tuples ({COLUMNS}) {table};")
        begun = time.perf_counter()
        engine.add_views({name: f"SELECT * FROM tuples WHERE {sql}" for name, sql in wanted.items()})
        declared = time.perf_counter()
        run = engine.start(folder, trigger=Trigger.available_now())
        run.await_termination()
        run.stop()
        side = Side("", wall=time.perf_counter() - declared)
        events = run.events("batch")
    later = events[1:]
    tuples = sum(event["tuples"] for event in later)
    parts = {
        part: sum(event[f"{part}_cpu_seconds"] for event in later) / tuples * 1e9
        for part in ("encode", "match", "write")
    }
    side.note = (
        f"{sum(event['pairs'] for event in events):,} pairs; ns a tuple: "
        + ", ".join(f"{part} {cost:.0f}" for part, cost in parts.items())
        + f"; declared in {declared - begun:.1f} s"
    )
    keys = ("bind_seconds", "run_seconds", "publish_seconds")
    return side, [(sum(event[key] for key in keys), event["tuples"]) for event in events]


def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Takes every batch and returns none."""
    for _ in batches:
        pass
    yield from ()


def run_one_way(frame: DataFrame, prepare: Callable[[DataFrame], DataFrame]) -> Batches:
    """A streaming query whose batches go through a mapInArrow that returns nothing."""
    seconds: list[float] = []

    def process(batch: DataFrame, _: int) -> None:
        batch.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS))
        begun = time.perf_counter()
        prepare(batch).mapInArrow(nothing, "nothing INT").collect()
        seconds.append(time.perf_counter() - begun)

    with tempfile.TemporaryDirectory(dir=OUTPUT) as folder:
        writer = frame.writeStream.foreachBatch(process).option("checkpointLocation", folder)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        rows = [progress["numInputRows"] for progress in query.recentProgress]
    return list(zip(seconds, rows, strict=True))


def native_sides(spark: SparkSession, workload: Workload, scale: Scale) -> list[Side]:
    """Three ways to ask Spark itself the same queries, each written to nowhere; plans are warm."""
    wanted = conditions(workload)
    every = {name: f"CASE WHEN {sql} THEN '{name}' END" for name, sql in wanted.items()}
    bounds = np.tile(np.array([0, VALUES - 1]), (len(wanted), ATTRIBUTES, 1))
    numbers = np.arange(len(wanted))[:, None]
    bounds[numbers, workload.attribute, 0] = workload.low
    bounds[numbers, workload.attribute, 1] = workload.high
    table = pa.table(
        {"query": list(wanted)}
        | {f"low{a}": bounds[:, a, 0] for a in range(ATTRIBUTES)}
        | {f"high{a}": bounds[:, a, 1] for a in range(ATTRIBUTES)}
    )
    queries = F.broadcast(spark.createDataFrame(table).coalesce(1))
    between = F.expr(" AND ".join(f"a{a} BETWEEN low{a} AND high{a}" for a in range(ATTRIBUTES)))
    cases = [F.expr(case) for case in every.values()]
    forms: dict[str, Callable[[DataFrame], DataFrame]] = {
        "broadcast table joined by BETWEEN": lambda df: df.join(queries, between).select(*NAMES, "query"),
        "one pass of conditions": lambda df: (
            df.withColumn("queries", F.concat_ws(",", *cases))
            .where("queries <> ''")
            .withColumn("queries", F.split("queries", ","))
        ),
        "array of CASE": lambda df: df.withColumn("queries", F.array_compact(F.array(*cases))).where(
            "size(queries) > 0"
        ),
    }
    selector = Selector(compile_selections(workload.selections()), "index")
    sides = []
    for (name, form), rows in zip(forms.items(), scale.native_rows, strict=True):
        folder = write_rows(OUTPUT / "data" / f"native-{rows}", 2, rows // 2)
        frame = form(spark.read.parquet(str(folder)))
        count = F.lit(1) if "query" in frame.columns else F.size("queries")
        answered = frame.agg(F.sum(count)).first()
        stored = pq.read_table(folder)
        expected = len(selector.match([stored[name] for name in NAMES], rows).queries)
        assert answered is not None, "an aggregate has one row"
        assert (answered[0] or 0) == expected, f"{name}: {answered[0]} pairs, ours {expected}"
        side = Side(f"Spark: {name}", note=f"{rows:,} rows, {expected:,} pairs, not written")
        for _ in range(3):
            begun = time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            side.wall = time.perf_counter() - begun
            side.rates.append(rows / side.wall)
        side.rates = [max(side.rates)]
        sides.append(side)
    return sides


def parquet_sides(spark: SparkSession, scale: Scale) -> dict[str, Side]:
    """Ours in the scan and behind a DataFrame, and the one-way mapInArrow, in turns."""
    data = write_rows(
        OUTPUT / "data" / f"uniform-{scale.files}x{scale.file_rows}", scale.files, scale.file_rows
    )
    table = f"USING parquet OPTIONS (path '{data}', max_files_per_trigger '{scale.files_a_batch}')"
    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", scale.files_a_batch)
    few = scale.queries[0]
    sides = {key: Side(f"ours in the scan, {key} queries") for key in map(str, scale.queries)}
    sides["behind"] = Side(f"ours behind a DataFrame, {few} queries")
    sides["one_way"] = Side("one-way mapInArrow", note="returns nothing")
    wanted = {count: conditions(uniform_workload(count, 1, 1, SEED)) for count in scale.queries}
    run_engine(spark, table, wanted[scale.queries[0]])
    for _ in range(scale.rounds):
        begun = time.perf_counter()
        batches = run_one_way(stream.parquet(str(data)), lambda df: df)
        sides["one_way"].add(batches, time.perf_counter() - begun)
        for count in scale.queries:
            _measure(sides[str(count)], run_engine(spark, table, wanted[count]))
        _measure(sides["behind"], run_engine(spark, table, wanted[few], map_in_scan=False))
    return sides


def kafka_sides(spark: SparkSession, scale: Scale) -> tuple[Side, Side]:
    """Ours from Kafka's raw values, and `from_json` with a one-way mapInArrow, in turns."""
    from penstock_lab.servers.kafka import KafkaBroker

    wanted = conditions(uniform_workload(scale.queries[0], 1, 1, SEED))
    ours = Side(f"ours from Kafka, {scale.queries[0]} queries")
    plain = Side("Kafka, from_json, one-way mapInArrow", note="returns nothing")
    rows = write_rows(OUTPUT / "data" / f"kafka-{scale.kafka_rows}", 2, scale.kafka_rows // 2)
    with tempfile.TemporaryDirectory() as folder, KafkaBroker(BROKER_JARS, Path(folder)) as broker:
        broker.create_topic("tuples", 2)
        values = spark.read.parquet(str(rows)).select(F.to_json(F.struct(*NAMES)).alias("value"))
        to_broker = values.write.format("kafka").option("kafka.bootstrap.servers", broker.address)
        to_broker.option("topic", "tuples").save()
        options = {
            "kafka.bootstrap.servers": broker.address,
            "subscribe": "tuples",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(scale.kafka_batch_rows),
            # ours sets these by itself: the plain side gets them too
            "kafka.max.poll.records": "20000",
            "kafka.max.partition.fetch.bytes": str(16 << 20),
        }
        told = ", ".join(f"{key} '{value}'" for key, value in options.items())
        parsed = F.from_json(F.col("value").cast("string"), COLUMNS).alias("t")
        table = f"USING kafka OPTIONS ({told})"
        run_engine(spark, table, wanted)
        for _ in range(scale.rounds):
            _measure(ours, run_engine(spark, table, wanted))
            begun = time.perf_counter()
            stream = spark.readStream.format("kafka").options(**options).load()
            batches = run_one_way(stream, lambda df: df.select(parsed).select("t.*"))
            plain.add(batches, time.perf_counter() - begun)
    return ours, plain


def _measure(side: Side, measured: tuple[Side, Batches]) -> None:
    run, batches = measured
    side.add(batches, run.wall)
    side.note = run.note


def judge(
    expect: Expectations,
    scale: Scale,
    parquet: dict[str, Side],
    native: list[Side],
    kafka: tuple[Side, Side] | None,
) -> None:
    """What is expected of the ratios, of those parts that were run."""
    few = str(scale.queries[0])
    if parquet:
        unit = parquet["one_way"].rate
        for count, least in zip(scale.queries, (3, 2, 0.6), strict=False):
            what = f"in the scan, {count} queries, times the one-way mapInArrow"
            expect.at_least(what, parquet[str(count)].rate / unit, least)
        what = f"behind a DataFrame, {few} queries, times the one-way mapInArrow"
        expect.at_least(what, parquet["behind"].rate / unit, 0.8)
    if parquet and native:
        fastest = max(side.rate for side in native)
        what = f"in the scan, {few} queries, times the fastest native formulation"
        expect.at_least(what, parquet[few].rate / fastest, 80)
    if kafka:
        ours, plain = kafka
        expect.at_least("from Kafka, times from_json and a one-way mapInArrow", ours.rate / plain.rate, 1.3)


def report(sides: list[Side], unit: float | None, loads: tuple[str, str]) -> None:
    """Prints the table and draws it."""
    table = Table("side", "rows/s", "x one-way", "wall s", "notes", title="Selections on Spark, two cores")
    for side in sides:
        table.add_row(
            side.name,
            f"{side.rate:,.0f}",
            f"{side.rate / unit:.3f}" if unit else "",
            f"{side.wall:.1f}",
            side.note,
        )
    Console(width=160).print(table)
    print(f"load average (1, 5, 15 minutes) before: {loads[0]}, after: {loads[1]}")
    figure, axes = plt.subplots(figsize=(9, 4.5))
    axes.barh([side.name for side in sides], [side.rate for side in sides])
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="rows/s, two cores", title="Selections on Spark")
    figure.tight_layout()
    path = OUTPUT / "selection_spark.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"picture: {path}")


def load() -> str:
    """The machine's load average."""
    return ", ".join(f"{value:.1f}" for value in os.getloadavg())


def main(small: bool, parts: Sequence[str]) -> int:
    """Runs the sides of some parts, prints the table, the expectations and the picture.

    Args:
        small: few rows and queries; the ratios then mean little and are not judged.
        parts: some of `PARTS`.

    Returns:
        1 where an expectation does not hold.
    """
    scale = SMALL if small else FULL
    OUTPUT.mkdir(parents=True, exist_ok=True)
    jars = ",".join(map(str, CONNECTOR_JARS))
    conf = {"spark.driver.memory": "6g", "spark.sql.session.timeZone": "UTC", "spark.jars": jars}
    spark = build_session("local[2]", conf, "selection_spark")
    before = load()
    parquet = parquet_sides(spark, scale) if "parquet" in parts else {}
    few = uniform_workload(scale.queries[0], 1, 1, SEED)
    native = native_sides(spark, few, scale) if "native" in parts else []
    kafka = None
    if "kafka" in parts:
        if CONNECTOR_JARS and any(BROKER_JARS.glob("kafka_*.jar")):
            kafka = kafka_sides(spark, scale)
        else:
            print("Kafka's jars are not there (make kafka-jars): its sides are left out")
    sides = [*parquet.values(), *native, *(kafka or ())]
    if sides:
        report(sides, parquet["one_way"].rate if parquet else None, (before, load()))
    if small:
        print("small run: the floor of a batch outweighs everything, the ratios are not judged")
    expect = Expectations(judged=not small)
    judge(expect, scale, parquet, native, kafka)
    if "drift" in parts:
        run_drift(spark, OUTPUT, small, expect)
    if "turn" in parts:
        run_turn(spark, OUTPUT, small, expect)
    spark.stop()
    return expect.exit_code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few rows and queries")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"some of {', '.join(PARTS)}; all if none")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; allowed: {', '.join(PARTS)}")
    sys.exit(main(arguments.small, arguments.parts or PARTS))
