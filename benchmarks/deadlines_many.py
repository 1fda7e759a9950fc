"""Many windows a second of built-in aggregates, on two cores: which are in time.

A process of its own writes a Parquet file of a stream every 200 ms, `RATE` tuples/s of `GROUPS` groups, event time the clock's. Fifty views of it, windows of
10 s that slide by half a second or more, so that as many windows as are asked for close in a second. Each has a condition of ten, and COUNT, SUM, AVG, MIN, MAX,
or a sketch of a quantile, by group. In time: another process has found the manifest no later than the deadline after the first file could be read
that holds a tuple beyond the window's end.

Expected, or the exit code is 1: at each rate at least `IN_TIME` of the windows are in time, and all rows that were released are those of `spark.sql`.

    python benchmarks/deadlines_many.py [--windows 100] [--views 50] [--seconds 20] [--deadline 2]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession
from rich.console import Console

from deadlines_feed import COLUMNS, STREAM, Fed
from deadlines_sides import fed_stream, micros, seen_outcomes
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock.spark.sessions.build import build_session

CORES, VIEWS, SIZE_SECONDS = 2, 50, 10
RATE, GROUPS, DEMANDS = 1_000, 20, 10
#: windows that are counted begin and end so long after the first and before the last file
WARM_SECONDS, REST_SECONDS, SETTLE_SECONDS = 20.0, 3.0, 5.0
IN_TIME = 0.99
AGGREGATES = ("count(*)", "sum(x)", "avg(x)", "min(x)", "max(x)", "approx_percentile(x, 0.5)")


def text(number: int, hop: float, source: str, hint: str = "") -> str:
    """A view."""
    window = f"window(ts, '{SIZE_SECONDS} seconds', '{round(hop * 1000)} milliseconds')"
    value = AGGREGATES[number % len(AGGREGATES)]
    where = f"x >= {number % DEMANDS}"
    return f"SELECT {hint} k, {window} AS w, {value} AS v FROM {source} WHERE {where} GROUP BY k, w"


def wrong(spark: SparkSession, folder: Path, run: Run, views: int, hop: float) -> tuple[int, int]:
    """Rows that `spark.sql` gives differently over all tuples, and how many there are."""
    spark.read.parquet(str(folder)).createOrReplaceTempView("all_readings")
    found, count = 0, 0
    # as many as there are kinds: a query a view takes longer than all else
    for number in range(min(views, len(AGGREGATES) * 2)):
        own = run.results(f"v{number}").select("k", "w", "v").collect()
        wanted = {
            (row.k, micros(row.w.end)): row.v
            for row in spark.sql(text(number, hop, "all_readings")).collect()
        }
        found += sum(wanted.get((row.k, micros(row.w.end))) != row.v for row in own)
        count += len(own)
    return found, count


def processor_seconds() -> Counter[str]:
    """What this process, its JVM and its Python workers have used, those of orders by themselves: they have a lower priority."""
    used: Counter[str] = Counter()
    parents, seconds, priority, names = {}, {}, {}, {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = place.read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        number, fields = int(place.parent.name), rest.split()
        parents[number], priority[number], names[number] = int(fields[1]), int(fields[16]), name
        seconds[number] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    own = os.getpid()
    for number, name in names.items():
        if number == own:
            used["driver"] += seconds[number]
        elif name == "java":
            used["JVM"] += seconds[number] if parents[number] == own else 0
        elif names.get(parents.get(parents[number], 0)) == "java":
            used["workers of orders" if priority[number] else "workers of the ingest"] += seconds[number]
    return used


def main() -> int:
    """Measures, prints; 1 where something did not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--windows", type=float, default=100.0, help="a second, of all views")
    parser.add_argument("--views", type=int, default=VIEWS)
    parser.add_argument("--seconds", type=float, default=20.0, help="of event time whose windows are counted")
    parser.add_argument("--deadline", type=float, default=2.0, help="seconds")
    given = parser.parse_args()
    # windows lie at whole milliseconds
    hop = round(given.views / given.windows, 3)
    # of a larger machine no more than that
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    conf = {
        "spark.driver.memory": "2g",
        "spark.default.parallelism": str(CORES),
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.session.timeZone": "UTC",
    }
    spark = build_session(f"local[{CORES + 1}]", conf, "deadlines_many")
    console = Console(width=150)
    with tempfile.TemporaryDirectory(prefix="penstock-many-") as place:
        folder = Path(place)
        (folder / "in").mkdir()
        engine = Engine(spark, compact_every_batches=0)
        columns = COLUMNS.replace("x BIGINT", "k BIGINT, x BIGINT")
        engine.execute(
            f"CREATE TABLE {STREAM} ({columns}) USING parquet OPTIONS (path '{folder / 'in'}', event_time 'ts')"
        )
        hint = f"/*+ DEADLINE('{given.deadline} seconds') */"
        engine.add_views({f"v{number}": text(number, hop, STREAM, hint) for number in range(given.views)})
        run = engine.start(folder / "out")
        try:
            with seen_outcomes(folder / "out") as outcomes:
                seconds = WARM_SECONDS + given.seconds + REST_SECONDS
                with fed_stream(folder / "in", seconds, RATE, GROUPS) as told:
                    time.sleep(WARM_SECONDS)
                    used = processor_seconds()
                    fed: Fed = told()
                used = processor_seconds() - used
                time.sleep(SETTLE_SECONDS)
                events = run.events()
                mistakes, compared = wrong(spark, folder / "in", run, given.views, hop)
        finally:
            run.stop()
        counted = set(fed.ends(WARM_SECONDS, REST_SECONDS, hop, SIZE_SECONDS))
        own = [each for each in outcomes if each.end in counted]
        lags = [each.seen - fed.created(each.end) for each in own if each.is_released]
        notice = [each.noticed - fed.created(each.end) for each in own]
        costs = [each.seconds for each in own if each.seconds]
        in_time = sum(each <= given.deadline for each in lags)
        number = given.views * len(counted)
        share = in_time / number
        publications = [each["publish_seconds"] for each in events if each["kind"] == "cut"]
        spark.stop()
    told_of = [
        (
            "windows",
            f"{number} of {given.views} views, {given.windows:g} a second, deadline {given.deadline:g} s",
        ),
        ("released", f"{len(lags)}, in time {in_time} ({share:.3f})"),
        ("from file to visible, s", _three(lags)),
        ("from file to noticed, s", _three(notice)),
        ("an order, s", _three(costs)),
        ("a publication, s", _three(publications)),
        (
            "processors",
            ", ".join(f"{name} {each / (given.seconds + REST_SECONDS):.2f}" for name, each in used.items()),
        ),
    ]
    for name, value in told_of:
        console.print(f"{name:28} {value}", highlight=False)
    judged = [
        (share >= IN_TIME, f"{share:.3f} of the windows are in time, expected from {IN_TIME}"),
        (compared > 0 and not mistakes, f"{mistakes} of {compared} rows are not those of spark.sql"),
    ]
    for holds, line in judged:
        console.print(f"{'held    ' if holds else 'NOT HELD'} {line}", highlight=False)
    return 0 if all(holds for holds, _ in judged) else 1


def _three(values: list[float]) -> str:
    if not values:
        return "none"
    return ", ".join(
        f"{name} {value:.3f}"
        for name, value in zip(("p50", "p90", "max"), np.quantile(values, (0.5, 0.9, 1)), strict=True)
    )


if __name__ == "__main__":
    sys.exit(main())
