"""The demo's rules and windows on plain Spark: the same session, cores and texts, on a sample of the flights."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from penstock.spark.run import Run

#: no flight of 2013 left New York later than 22 hours after its time, so that this watermark drops none
WATERMARK = "24 hours"
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@dataclass(frozen=True, slots=True)
class PlainRules:
    """What plain Spark made of the sample.

    Attributes:
        flights: in the sample.
        seconds: of all its files, from the file to the readable row.
        file_flights: in its last file.
        file_seconds: of the last file: by then Spark is warm.
        rows: the flights with `rules`, the names of their rules between commas.
    """

    flights: int
    seconds: float
    file_flights: int
    file_seconds: float
    rows: pa.Table

    @property
    def flights_per_second(self) -> float:
        """Of the last file."""
        return self.file_flights / self.file_seconds


@dataclass(frozen=True, slots=True)
class PlainWindows:
    """What plain Spark made of the windows of the sample.

    Attributes:
        flights: in the sample.
        seconds: from the first file to the last readable row.
        batch_seconds: of a batch, from file to readable row, in the median.
        rows: by view.
    """

    flights: int
    seconds: float
    batch_seconds: float
    rows: Mapping[str, pa.Table]


def write_sample(flights: pa.Table, sizes: Sequence[int], folder: Path) -> list[Path]:
    """Writes the first flights to arrive as Parquet files, in their order.

    Args:
        flights: with a column `arrival`.
        sizes: rows of each file; those that arrive with the first flight of the rest are left to the rest.
        folder: where to; it must not exist.
    """
    ordered = flights.sort_by("arrival")
    if sum(sizes) < len(ordered):
        ordered = ordered.filter(pc.less(ordered["arrival"], ordered["arrival"][sum(sizes)]))
    folder.mkdir(parents=True)
    files, start = [], 0
    for number, size in enumerate(sizes):
        files.append(folder / f"{number:03}.parquet")
        pq.write_table(ordered.slice(start, size), files[-1])
        start += size
    return files


def answer_rules(run: Run, files: Sequence[Path], rules: Mapping[str, str], output: Path) -> PlainRules:
    """Asks all rules in one SELECT with a CASE for each, file by file; without code generation, which takes longer here.

    Args:
        run: of Penstock, whose session is used.
        files: of the sample.
        rules: conditions by name.
        output: where the rows go.
    """
    spark = run.matches("flights").sparkSession
    cases = ", ".join(f"CASE WHEN {condition} THEN '{name}' END" for name, condition in rules.items())
    before = {key: spark.conf.get(key, None) for key in _INTERPRETED}
    seconds = []
    try:
        for key, value in _INTERPRETED.items():
            spark.conf.set(key, value)
        for file in files:
            began = time.perf_counter()
            spark.read.parquet(str(file)).createOrReplaceTempView("flights")
            named = spark.sql(f"SELECT *, concat_ws(',', {cases}) AS rules FROM flights")
            named.write.parquet(str(output / file.stem))
            seconds.append(time.perf_counter() - began)
    finally:
        for key, known in before.items():
            if known is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, known)
    flights = [pq.read_metadata(file).num_rows for file in files]
    rows = pa.concat_tables([pq.read_table(output / file.stem) for file in files])
    return PlainRules(sum(flights), sum(seconds), flights[-1], seconds[-1], rows)


def answer_windows(run: Run, folder: Path, views: Mapping[str, str], output: Path) -> PlainWindows:
    """Runs each window view as a streaming query with a watermark, one file a batch.

    Args:
        run: of Penstock, whose session is used.
        folder: of the sample's files.
        views: SQL by name, over `flights`.
        output: where the rows go.
    """
    spark = run.matches("flights").sparkSession
    schema = spark.read.parquet(str(folder)).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    stream.withWatermark("sched_dep", WATERMARK).createOrReplaceTempView("flights")
    began = time.perf_counter()
    queries = [
        spark.sql(sql)
        .writeStream.format("parquet")
        .option("path", str(output / name))
        .option("checkpointLocation", str(output / f"{name}.checkpoint"))
        .trigger(availableNow=True)
        .start()
        for name, sql in views.items()
    ]
    for query in queries:
        query.awaitTermination()
    seconds = time.perf_counter() - began
    spark.catalog.dropTempView("flights")
    flights = sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))
    rows = {name: spark.read.parquet(str(output / name)).toArrow() for name in views}
    batches = [
        progress["durationMs"]["triggerExecution"] / 1e3
        for query in queries
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]
    return PlainWindows(flights, seconds, median(batches), rows)
