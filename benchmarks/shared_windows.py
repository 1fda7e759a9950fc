"""Many window views over one stream that differ in WHERE alone, beside one such view.

Tuples: an event time (400,000 tuples a second of it, shuffled within 50 ms), a key of 100, a value and three attributes of
1,000 values; windows of 10 s sliding by 1 s, SUM and COUNT by key. View i selects a range of one attribute: half of the
ranges are narrow (0.1 to 2 % of the tuples), half wide (5 to 40 %). Parts:

lanes    without Spark, processor time: the map stage over batches of 500,000 tuples, and the window lane's two shards, for
         1, 50 and 500 views; with ranges of one attribute (few sets of conditions) and of three (many)
spark    on Spark with two cores: tuples a second of 1, 50 and 500 views over Parquet files, from the end of the third
         batch to the publication of the last final result; the answers of some views must be DuckDB's

The exit code is 1 where 500 views have less than half of one view's rate on Spark, or an answer is wrong.

Run: python benchmarks/shared_windows.py [--small] [part ...]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from expectations import Expectations
from penstock.operators.ingest.map_stage import MapStage
from penstock.operators.ingest.outcomes import Outcomes
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.operators.selection.selector import compile_selections
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.pane_plan import PaneColumn, PanePlan, PaneProgram
from penstock.operators.windows.shard import Envelope, LogRecord, OperatorPlan, Shard, WindowProgram
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.value_sets import Interval, ValueSet
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.settings import Settings
from penstock.spark.engine import Engine
from penstock.spark.sessions.build import build_session
from penstock.trigger import Trigger
from windows_spark import ends_exact

OUTPUT = Path(__file__).resolve().parent.parent / "out" / "bench"
COLUMNS = "ts TIMESTAMP, key BIGINT, value DOUBLE, a0 BIGINT, a1 BIGINT, a2 BIGINT"
SECOND = 1_000_000
RATE, KEYS, VALUES, ATTRIBUTES = 400_000, 100, 1_000, 3
WINDOWS = Windows(10 * SECOND, SECOND)
PARTS = ("lanes", "spark")
VIEWS = (1, 50, 500)
FILES_A_BATCH, WARM_BATCHES = 4, 3
LEAST_SHARE = 0.5
SEED = 7
BATCH_TUPLES = 65_536


@dataclass(frozen=True, slots=True)
class Range:
    """The condition of a view: `attribute` lies in [low, high]."""

    attribute: int
    low: int
    high: int

    @property
    def text(self) -> str:
        """In SQL."""
        return f"a{self.attribute} BETWEEN {self.low} AND {self.high}"


def ranges(views: int, attributes: int) -> list[Range]:
    """The conditions of some views; the first is wide, so that one view alone has tuples to aggregate."""
    rng = np.random.default_rng(SEED)
    widths = np.where(np.arange(views) % 2, rng.integers(1, 20, views), rng.integers(50, 400, views))
    lows = (rng.random(views) * (VALUES - widths)).astype(int)
    places = zip(np.arange(views) % attributes, lows, lows + widths - 1, strict=True)
    return [Range(*map(int, each)) for each in places]


def tuples(number: int, rows: int) -> pa.Table:
    """The tuples of a file."""
    rng = np.random.default_rng([SEED, number])
    even = (number * rows + np.arange(rows)) * (SECOND / RATE)
    ts = 1_700_000_000_000_000 + (even + rng.uniform(0, 50_000, rows)).astype(np.int64)
    # sums of such values are exact, in any order
    columns = {"key": rng.integers(0, KEYS, rows), "value": rng.integers(0, 1 << 20, rows) / (1 << 20)}
    attributes = {f"a{number}": rng.integers(0, VALUES, rows) for number in range(ATTRIBUTES)}
    return pa.table({"ts": pa.array(ts).cast(pa.timestamp("us", "UTC")), **columns, **attributes})


@dataclass(frozen=True, slots=True)
class Lanes:
    """Processor time of a batch, seconds.

    Attributes:
        name: what was measured.
        matching, panes, shards: of the conditions, of the partials, and of the window lane's shards.
        pairs: (tuple, view) pairs, a tuple.
    """

    name: str
    matching: float
    panes: float
    shards: float
    pairs: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.matching + self.panes + self.shards


def lanes(views: int, attributes: int, batches: int, rows: int) -> Lanes:
    """The map stage and the window lane without Spark, over batches of which the first three do not count."""
    conditions = ranges(views, attributes)
    queries = tuple(
        Query(str(number), (Term(((each.attribute, ValueSet((Interval(each.low, each.high),))),)),))
        for number, each in enumerate(conditions)
    )
    columns = tuple(Attribute(f"a{number}", pa.int64(), f"`a{number}`") for number in range(attributes))
    aggregates = (Aggregate("sum", "_x0", pa.float64()), Aggregate("count", None, pa.int64()))
    parts = Parts.of(aggregates)
    keys = (PaneColumn("key", "_k0", pa.int64()),)
    arguments = (PaneColumn("value", "_x0", pa.float64()),)
    panes = PanePlan(0, tuple(range(views)), keys, arguments, (), parts, WINDOWS.pane, 0)
    program = StreamProgram(
        stream="tuples",
        version=0,
        plan=compile_selections(SelectionSet(columns, queries)),
        outcomes=Outcomes.numbered(0, views),
        columns=("ts", "key", "value"),
        event_time="ts",
        derived=None,
        settings=Settings(),
        windows=PaneProgram("ts", (panes,), 2),
    )
    plans = tuple(
        WindowPlan(
            f"v{number}",
            "ts",
            WINDOWS,
            (("_k0", pa.int64()),),
            aggregates,
            ErrorBound(0.05, 0.05),
            number if views > 1 else None,
        )
        for number in range(views)
    )
    program = WindowProgram(0, (OperatorPlan(0, plans, parts, WINDOWS.pane),), 60 * SECOND, 0)
    stage, shards = MapStage(program), [Shard(), Shard()]
    seconds = np.zeros(3)
    pairs = 0
    for number in range(batches):
        table = tuples(number, rows)
        stage.begin()
        marks = [time.process_time()]
        for batch in table.to_batches(BATCH_TUPLES):
            stage.process(batch)
        assert stage.panes is not None
        envelopes = stage.panes.envelopes()
        marks.append(time.process_time())
        answer(shards, program, table, envelopes)
        marks.append(time.process_time())
        counts = stage.finish()
        matching = (counts.encode_ns + counts.match_ns) / 1e9
        if number >= WARM_BATCHES:
            whole = marks[1] - marks[0]
            seconds += [min(matching, whole), max(0.0, whole - matching), marks[2] - marks[1]]
        pairs += selected(conditions, table)
    found = seconds / (batches - WARM_BATCHES)
    name = f"{views} views, {attributes} attribute" + "s" * (attributes > 1)
    lane = Lanes(name, *found.tolist(), pairs / (batches * rows))
    print(f"{name}: {lane.total * 1e9 / rows:,.0f} ns of processor time a tuple", flush=True)
    return lane


def answer(
    shards: Sequence[Shard],
    program: WindowProgram,
    table: pa.Table,
    envelopes: Sequence[tuple[int, Envelope]],
) -> None:
    """What the window lane does with a batch but for its files."""
    newest = int(table.column("ts").cast(pa.int64()).to_numpy().max())
    for number, shard in enumerate(shards):
        own = [envelope for where, envelope in envelopes if where == number]
        shard.process(LogRecord(program, newest, np.array([0, 40_000]), False, own))
        shard.scalars()
        list(shard.take_changes())


def selected(conditions: Sequence[Range], table: pa.Table) -> int:
    """How many (tuple, view) pairs satisfy their condition."""
    so_far: list[npt.NDArray[np.int64]] = []
    for number in range(ATTRIBUTES):
        counts = np.bincount(table.column(f"a{number}").to_numpy(), minlength=VALUES)
        so_far.append(np.append(0, np.cumsum(counts)))
    return sum(
        int(so_far[each.attribute][each.high + 1] - so_far[each.attribute][each.low]) for each in conditions
    )


def write(files: int, rows: int) -> Path:
    """Writes the files of the stream once."""
    folder = OUTPUT / "data" / f"shared-windows-{files}x{rows}"
    if len(list(folder.glob("*.parquet"))) != files:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for number in range(files):
            pq.write_table(
                tuples(number, rows), folder / f"{number:03d}.parquet", row_group_size=max(1, rows // 4)
            )
    return folder


def on_spark(spark: SparkSession, folder: Path, views: int, attributes: int, expect: Expectations) -> float:
    """Tuples a second of some views; the answers of up to five are compared with DuckDB's."""
    conditions = ranges(views, attributes)
    with tempfile.TemporaryDirectory(dir=OUTPUT) as place:
        engine = Engine(spark).execute(
            f"CREATE TABLE tuples ({COLUMNS}) USING parquet "
            f"OPTIONS (path '{folder}', event_time 'ts', max_files_per_trigger '{FILES_A_BATCH}')"
        )
        engine.add_views(
            {
                f"v{number}": "SELECT key, window(ts, '10 seconds', '1 second') AS w, sum(value) AS s, count(*) AS n "
                f"FROM tuples WHERE {each.text} GROUP BY key, w"
                for number, each in enumerate(conditions)
            }
        )
        run = engine.start(place, trigger=Trigger.available_now(ended=True))
        run.await_termination()
        run.stop()
        batches, cuts = run.events("batch"), run.events("windows")
        for number in range(0, views, max(1, views // 5)):
            view, what = f"v{number}", f"v{number}: DuckDB's answers"
            ends_exact(Path(place) / "results" / view, folder, expect, what, conditions[number].text)
    counted = batches[WARM_BATCHES:]
    began, ended = (datetime.fromisoformat(each["time"]) for each in (batches[WARM_BATCHES - 1], cuts[-1]))
    rate = sum(each["tuples"] for each in counted) / (ended - began).total_seconds()
    print(
        f"{views} views on Spark, {attributes} attributes: {rate:,.0f} tuples/s; ingest "
        f"{np.median([each['run_seconds'] for each in counted]):.2f} s a batch, windows {len(cuts)} batches of "
        f"{np.median([each['run_seconds'] for each in cuts]):.2f} s and {np.median([each['publish_seconds'] for each in cuts]):.2f} s to publish",
        flush=True,
    )
    return rate


def report(found: Sequence[Lanes], rows: int) -> None:
    """Prints the figures of the lanes."""
    table = Table(
        "views",
        "pairs a tuple",
        "matching",
        "partials",
        "shards",
        "all",
        title="ns of processor time a tuple",
    )
    for each in found:
        parts = (each.matching, each.panes, each.shards, each.total)
        table.add_row(each.name, f"{each.pairs:.1f}", *(f"{seconds * 1e9 / rows:,.0f}" for seconds in parts))
    Console(width=120).print(table)


def main(parts: Sequence[str], *, small: bool) -> int:
    """Runs some parts; 1 where an expectation does not hold."""
    expect = Expectations(judged=not small)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    if "lanes" in parts:
        batches, rows = (5, 100_000) if small else (6, 500_000)
        report([lanes(views, attributes, batches, rows) for attributes in (1, 3) for views in VIEWS], rows)
    if "spark" in parts:
        files, rows = (16, 50_000) if small else (60, 1_000_000)
        folder = write(files, rows)
        conf = {
            "spark.driver.memory": "6g",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
        }
        spark = build_session("local[2]", conf, "shared_windows")
        for attributes in (1, 3):
            on_spark(spark, folder, 1, attributes, expect)
            rates = {views: on_spark(spark, folder, views, attributes, expect) for views in VIEWS}
            for views in VIEWS[1:]:
                share, what = (
                    rates[views] / rates[1],
                    f"{views} views, {attributes} attributes, share of one view's rate",
                )
                if views == VIEWS[-1]:
                    expect.at_least(what, share, LEAST_SHARE)
                else:
                    print(f"{what}: {share:.3f}", flush=True)
        spark.stop()
    return expect.exit_code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--small", action="store_true", help="few tuples; figures then mean little and are not judged"
    )
    parser.add_argument("part", nargs="?", choices=PARTS, help="default: both")
    chosen = parser.parse_args()
    sys.exit(main((chosen.part,) if chosen.part else PARTS, small=chosen.small))
