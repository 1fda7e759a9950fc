"""How long after the newest tuple of a result the result can be read, on two cores, and which part takes how long.

A process of its own writes a Parquet file every 100 ms at 10,000 and at 500,000 tuples/s; a tuple's event time is the
time of its making. The engine answers SUM and COUNT by 100 keys a second. Of every published batch that has rows:
from the newest event time in it to its publication, in parts: until the ingest batch began (the file, Spark's listing,
the end of the batch before), the ingest batch, until the cut began, the cut. The first batches
are not counted. How long a window waits for late tuples, its slack, is not in it: the newest tuple is the one that closes
the window. That is the part `order`. The part `having` has the same view with HAVING, judged by the worker, also as an expression, and by Spark. The part `late` has tuples that come late, and is told in `windows_late.py`. In the part `beyond` 5 % of
10,000 tuples/s come 10 to 60 s late where a window is final after 2 s, so that they correct final windows: early answers are timed with them
and without, and every window must be DuckDB's in the end. The part `policies` is told in `windows_policies.py`. The exit code is 1 where what is expected does not hold.

Run: python benchmarks/windows_latency.py [--small] [part ...]
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from expectations import Expectations
from latency import WARM_SECONDS, begun, due_files, event_times, moment, put_file
from penstock.spark.engine import Engine
from penstock.spark.sessions.build import build_session
from penstock.trigger import Trigger
from windows_late import late
from windows_policies import policies

COLUMNS = "ts TIMESTAMP, key BIGINT, value DOUBLE"
QUERY = "SELECT key, window(ts, '1 second') AS w, sum(value) AS s, count(*) AS n FROM tuples GROUP BY key, w"
RATES = (10_000, 500_000)
FILE_SECONDS = 0.1
KEYS = 100
STEPS = ("until ingest", "ingest", "until cut", "cut")
PARTS = ("order", "having", "late", "beyond", "policies")
#: what is judged nowhere, by the worker, and by Spark in a job of its own; each keeps all groups
HAVING = {
    "none": "",
    "the worker": " HAVING count(*) > 0",
    "the worker, an expression": " HAVING count(*) + 0 > 0",
    "Spark": " HAVING sqrt(count(*)) > 0",
}
BEYOND_SHARE, BEYOND_SECONDS, MOST_DELAY_SECONDS = 0.05, (10.0, 60.0), 2.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of a run.

    Attributes:
        steps: float64[batches, steps], the seconds of each step of every published batch that answers windows for the first time.
        corrected: final windows that were corrected, a second.
        rows, wrong: rows that all windows have by DuckDB; how many differ, or are lacking.
    """

    steps: npt.NDArray[np.float64]
    corrected: float
    rows: int
    wrong: int

    @property
    def seconds(self) -> npt.NDArray[np.float64]:
        """From the newest tuple to the publication, of each batch."""
        return np.asarray(self.steps.sum(axis=1), np.float64)


def produce(folder: Path, rate: int, seconds: float, beyond: float) -> None:
    """Writes files at a rate until the time is over; a share of the tuples comes long after its event time."""
    rows = int(rate * FILE_SECONDS)
    rng = np.random.default_rng(1)
    for number, due in due_files(FILE_SECONDS, seconds):
        late = np.where(rng.random(rows) < beyond, rng.uniform(*BEYOND_SECONDS, rows), 0.0)
        table = pa.table(
            {
                "ts": event_times(due - FILE_SECONDS + np.arange(1, rows + 1) / rate - late),
                "key": rng.integers(0, KEYS, rows),
                "value": rng.random(rows),
            }
        )
        put_file(folder, number, table)


def measure(
    spark: SparkSession, rate: int, seconds: float, beyond: float = 0.0, having: str = ""
) -> Measured:
    """Runs the view over a stream in real time, and then to the end of the stream."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "in"
        folder.mkdir()

        def engine() -> Engine:
            table = (
                f"CREATE TABLE tuples ({COLUMNS}) USING parquet OPTIONS (path '{folder}', event_time 'ts')"
            )
            return (
                Engine(spark, max_delay_seconds=MOST_DELAY_SECONDS)
                .execute(table)
                .view("sums", QUERY + having)
            )

        run = engine().start(Path(place) / "out")
        total = WARM_SECONDS + seconds
        arguments = (folder, rate, total, beyond)
        producer = multiprocessing.get_context("spawn").Process(target=produce, args=arguments)
        producer.start()
        producer.join()
        ingest = {event["batch"]: event for event in run.events("batch")}
        cuts = run.events("windows")
        run.stop()
        run = engine().start(Path(place) / "out", trigger=Trigger.available_now(ended=True))
        run.await_termination()
        run.stop()
        rows, wrong = compared(Path(place))
    first = min(moment(event) for event in ingest.values()) + WARM_SECONDS
    steps = []
    corrected = 0
    for event in cuts:
        counts = event["views"].values()
        if moment(event) >= first:
            corrected += sum(each["final_corrected"] for each in counts)
        if event["answered"] is None:
            continue
        batch = ingest[event["answered"]]
        newest = batch["newest_event_time_us"] / 1e6
        if newest < first or not any(each["early"] for each in counts):
            continue
        moments = [
            newest,
            begun(batch, "bind", "run", "publish"),
            moment(batch),
            begun(event, "run", "make", "publish"),
            moment(event),
        ]
        steps.append(np.diff(moments))
    return Measured(np.array(steps).reshape(-1, len(STEPS)), corrected / seconds, rows, wrong)


def compared(place: Path) -> tuple[int, int]:
    """Rows of DuckDB's answer, and how many are not the newest revision of ours."""
    newest = (
        f"SELECT epoch_us(w.start) AS start, key, max_by(n, revision) AS n FROM read_parquet('{place}/out/results/sums/*.parquet') "
        "GROUP BY ALL"
    )
    exact = (
        f"SELECT epoch_us(ts) // 1000000 * 1000000 AS start, key, count(*) AS n FROM read_parquet('{place}/in/*.parquet') "
        "GROUP BY ALL"
    )
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        return (
            _count(database, exact),
            _count(database, f"({exact}) EXCEPT ({newest})")
            + _count(database, f"({newest}) EXCEPT ({exact})"),
        )


def _count(database: duckdb.DuckDBPyConnection, text: str) -> int:
    found = database.execute(f"SELECT count(*) FROM ({text})").fetchone()
    assert found is not None, "a count has one row"
    return int(found[0])


def in_order(spark: SparkSession, small: bool) -> None:
    """Measures both rates and prints the table."""
    table = Table("tuples/s", "batches", "p50 s", "p99 s", *(f"{step}, p50 s" for step in STEPS))
    for rate in RATES:
        found = measure(spark, rate, 25.0 if small else 60.0)
        figures = [*np.quantile(found.seconds, (0.5, 0.99)), *np.median(found.steps, axis=0)]
        table.add_row(f"{rate:,}", str(len(found.steps)), *(f"{figure:.2f}" for figure in figures))
    Console(width=150).print(table)


def judged(spark: SparkSession, small: bool, expect: Expectations) -> None:
    """Measures the view with HAVING, and without."""
    table = Table("HAVING is judged by", "batches", "p50 s", "p99 s", "cut, p50 s")
    cuts = {}
    for who, having in HAVING.items():
        found = measure(spark, RATES[0], 25.0 if small else 60.0, having=having)
        cuts[who] = float(np.median(found.steps[:, STEPS.index("cut")]))
        quantiles = [f"{each:.2f}" for each in np.quantile(found.seconds, (0.5, 0.99))]
        table.add_row(who, str(len(found.steps)), *quantiles, f"{cuts[who]:.2f}")
        expect.hold(
            f"HAVING by {who}: every row is DuckDB's",
            found.rows > 0 and not found.wrong,
            f"{found.rows:,} rows",
        )
    Console(width=150).print(table)
    expect.at_most(
        "a cut with HAVING in the worker, times one without", cuts["the worker"] / cuts["none"], 1.25
    )
    expect.at_most(
        "a cut with an expression in HAVING, times one without",
        cuts["the worker, an expression"] / cuts["none"],
        1.25,
    )


def beyond(spark: SparkSession, small: bool, expect: Expectations) -> None:
    """Measures early answers with tuples that correct final windows, and without."""
    seconds = 25.0 if small else 60.0
    parts = (f"{step}, p50 s" for step in STEPS)
    table = Table("beyond the horizon", "batches", "p50 s", "p99 s", *parts, "corrected windows/s", "rows")
    sides = {share: measure(spark, RATES[0], seconds, share) for share in (0.0, BEYOND_SHARE)}
    for share, found in sides.items():
        seconds_by_part = (*np.quantile(found.seconds, (0.5, 0.99)), *np.median(found.steps, axis=0))
        figures = [f"{each:.2f}" for each in seconds_by_part]
        counts = (f"{found.corrected:.1f}", f"{found.rows:,}")
        table.add_row(f"{share:.0%}", str(len(found.steps)), *figures, *counts)
        expect.hold(
            f"{share:.0%} beyond: every row is DuckDB's",
            found.rows > 0 and not found.wrong,
            f"{found.rows:,} rows",
        )
    Console(width=150).print(table)
    plain, with_them = (np.quantile(found.seconds, 0.99) for found in sides.values())
    expect.at_most("beyond the horizon: p99 of early answers, times that without", with_them / plain, 1.1)
    expect.hold("final windows are corrected on the way", sides[BEYOND_SHARE].corrected > 0, "")


def main(small: bool, parts: Sequence[str]) -> int:
    """Runs some parts; 1 where an expectation does not hold."""
    conf = {
        "spark.driver.memory": "4g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = build_session("local[2]", conf, "windows_latency")
    expect = Expectations()
    if "order" in parts:
        in_order(spark, small)
    if "having" in parts:
        judged(spark, small, expect)
    if "late" in parts:
        late(spark, small, expect)
    if "beyond" in parts:
        beyond(spark, small, expect)
    if "policies" in parts:
        policies(spark, small, expect)
    spark.stop()
    return expect.exit_code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--small", action="store_true", help="25 seconds a rate; one stream with late tuples")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"some of {', '.join(PARTS)}; all if none")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; allowed: {', '.join(PARTS)}")
    sys.exit(main(arguments.small, arguments.parts or PARTS))
