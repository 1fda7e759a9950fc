"""Window views over a window view for tests: data that come out of order, and what Spark answers of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.engine import Engine

START = 1_700_000_000_000_000
COLUMNS = "seen TIMESTAMP, zone BIGINT, name STRING, fare DOUBLE"
ROWS = 2_000
#: the one that the others are over
FARES = (
    "SELECT zone, window(seen, '1 second', '500 milliseconds') AS w, count(*) AS n, max(name) AS name, "
    "round(sum(fare), 6) AS s FROM rides WHERE fare > 0.1 GROUP BY zone, w"
)
OVER = {
    "daily": "SELECT window(w.start, '4 seconds') AS h, max(n) AS peak, avg(n) AS mean, count(*) AS rows FROM fares GROUP BY h",
    "marked": "SELECT window(w, '3 seconds', '1 second') AS h, zone, sum(n) AS n, min(name) AS least, "
    "count(DISTINCT name) AS names FROM fares WHERE zone IS NOT NULL GROUP BY h, zone HAVING sum(n) % 3 <> 0",
    "timed": "SELECT f.zone % 2 AS odd, window(window_time(f.w), '2 seconds').start AS begun, round(sum(s), 4) AS s, "
    "median(n) AS middle FROM fares f GROUP BY f.zone % 2, window(window_time(f.w), '2 seconds')",
    "ended": "SELECT window(w.end, '5 seconds') AS h, round(stddev(n), 6) AS d, percentile(n, 0.9) AS p FROM fares GROUP BY 1",
    "busiest": "SELECT h.start AS at, peak FROM daily WHERE peak % 2 = 0",
}

KEYS = ("zone", "zone % 2", "name", "upper(name)", "n > 50", "CASE WHEN zone > 1 THEN w.start END")
AGGREGATES = (
    *(
        "count(*)",
        "count(zone)",
        "count(DISTINCT zone)",
        "sum(n)",
        "avg(n)",
        "min(name)",
        "max(s > 20)",
        "max(w)",
    ),
    *(
        "sum(n) FILTER (WHERE zone > 1)",
        "round(stddev_pop(n), 6)",
        "median(n)",
        "percentile(zone, 0.25)",
        "min(w.start)",
    ),
)
CONDITIONS = (
    "n > 40",
    "zone IS NULL OR n % 2 = 1",
    "name <> 'c' AND zone > 0",
    "s > 15.5",
    "second(w.start) % 3 = 0",
)
TIMES = ("w", "window_time(w)", "w.start", "w.end")
LENGTHS = (
    "'1 second'",
    "'3 seconds'",
    "'4 seconds', '1500 milliseconds'",
    "'5 seconds', '5 seconds', '700 milliseconds'",
)


def random_view(rng: np.random.Generator) -> str:
    """Any view over `fares`."""
    window = f"window({rng.choice(TIMES)}, {rng.choice(LENGTHS)})"
    keys = list(rng.choice(KEYS, rng.integers(0, 3), replace=False))
    aggregates = rng.choice(AGGREGATES, rng.integers(1, 4), replace=False)
    items = [f"{window} AS h", *(f"{key} AS g{number}" for number, key in enumerate(keys))]
    items += [f"{each} AS a{number}" for number, each in enumerate(aggregates)]
    where = f"WHERE {rng.choice(CONDITIONS)} " if rng.random() < 0.5 else ""
    having = " HAVING count(*) % 2 = 1" if rng.random() < 0.3 else ""
    return f"SELECT {', '.join(items)} FROM fares {where}GROUP BY {', '.join(['h', *keys])}{having}"


def write(folder: Path, numbers: range) -> Path:
    """Files of two seconds each, a tenth of their tuples late by up to 4 s."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        rng = np.random.default_rng(number)
        event = (number * ROWS + np.arange(ROWS)) * 1_000
        late = (rng.random(ROWS) < 0.1) * rng.integers(0, 4_000_000, ROWS)
        table = pa.table(
            {
                "seen": pa.array(START + event - late).cast(pa.timestamp("us", "UTC")),
                "zone": pa.array(rng.integers(0, 5, ROWS), mask=rng.random(ROWS) < 0.05),
                "name": rng.choice(["a", "b", "c"], ROWS),
                "fare": pa.array(rng.random(ROWS), mask=rng.random(ROWS) < 0.05),
            }
        )
        pq.write_table(table, folder / f"{number:03d}.parquet")
    return folder


def rides_engine(spark: SparkSession, data: Path, files: int = 2, **settings: float) -> Engine:
    """An engine with the table alone."""
    # Spark gives a Python process 10 s to start: on a loaded machine that fails again and again
    tuned = {"correction_seconds": 0, "correction_span_seconds": 0.1, "retry_attempts": 40, **settings}
    return Engine(spark, **tuned).execute(
        f"CREATE TABLE rides ({COLUMNS}) USING parquet "
        f"OPTIONS (path '{data}', event_time 'seen', max_files_per_trigger '{files}')"
    )


def derived_engine(spark: SparkSession, folder: Path) -> Engine:
    """An engine over the table of a folder, with all views; files are merged at each publication."""
    engine = rides_engine(spark, folder / "data", 1, compact_every_batches=1)
    return engine.add_views({"fares": FARES, **OVER})


def expected(spark: SparkSession, data: Path, views: Mapping[str, str]) -> dict[str, DataFrame]:
    """What Spark answers over the table of a folder."""
    spark.read.schema(COLUMNS).parquet(str(data)).createOrReplaceTempView("rides")
    return answers_of(spark, views)


def answers_of(spark: SparkSession, views: Mapping[str, str]) -> dict[str, DataFrame]:
    """What Spark answers, each view a temporary view for those after it, which do not compute it again."""
    answers = {}
    for name, text in views.items():
        answers[name] = spark.sql(text).cache()
        answers[name].createOrReplaceTempView(name)
    return answers


def assert_same_rows(found: DataFrame, wanted: DataFrame) -> Counter[str]:
    """As multisets; gives how often each row is there."""
    assert found.schema.simpleString() == wanted.schema.simpleString()
    counts = row_counts(found)
    assert counts == row_counts(wanted)
    return counts


def row_counts(rows: DataFrame) -> Counter[str]:
    """How often each row is there, by its text: NaN is NaN."""
    return Counter(map(repr, rows.collect()))
