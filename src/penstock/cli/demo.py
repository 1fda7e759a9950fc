"""`penstock demo`: a year of real flights, replayed against thousands of standing queries, joined with the weather, or answered in time."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.demo_deadlines import replay_deadlines
from penstock.cli.demo_joins import replay_joins
from penstock.cli.tables import print_rows, table_console
from penstock.errors import InputError

if TYPE_CHECKING:
    from penstock.spark.run import Run

_SAMPLES = ("insured_cases", "storm")
#: the window view whose corrections are shown
_WINDOWS = "departures_by_origin"


class Part(StrEnum):
    """What is shown."""

    QUERIES = "queries"
    JOINS = "joins"
    DEADLINES = "deadlines"


def demo(
    part: Annotated[
        Part, typer.Argument(help="Standing queries and windows, joins, or deadlines under overload.")
    ] = Part.QUERIES,
    output: Annotated[
        Path, typer.Option(help="Results folder; results of an earlier demo are removed.")
    ] = Path("out/demo"),
    queries: Annotated[
        int, typer.Option(help="Standing queries drawn from the templates; of `queries`.", min=1)
    ] = 2_000,
) -> None:
    """Replay the 336,776 flights out of New York in 2013 through Spark."""
    import pyarrow.parquet as pq

    from penstock.cli.common import build_engine, read_settings
    from penstock.cli.demo_data import prepare
    from penstock.cli.demo_queries import standing_queries
    from penstock.monitor.live import follow
    from penstock.monitor.snapshot import take_snapshot
    from penstock.trigger import Trigger

    console = table_console()
    if output.exists():
        if not (output / "_penstock").is_dir():
            raise InputError(f"--output {output} exists and is not a results folder; name another")
        shutil.rmtree(output)
    data = output.parent / "demo-data"
    flights, weather, _ = prepare(data)
    if part is Part.JOINS:
        replay_joins(console, data, output)
        return
    if part is Part.DEADLINES:
        replay_deadlines(console, data, output)
        return
    drawn = standing_queries(pq.read_table(flights), queries)
    # not beside the above: Arrow's functions fail while another thread loads numpy for the first time
    engine = build_engine(None, {}, read_settings(None), "whole")
    script = resources.files("penstock.cli").joinpath("demo_flights.sql").read_text(encoding="utf-8")
    script = script.replace("examples/data/flights", str(flights)).replace(
        "examples/data/weather", str(weather)
    )
    engine.execute(script)
    by_hand = sum(map(len, engine.declared.values()))
    engine.add_views({name: f"SELECT * FROM flights WHERE {condition}" for name, condition in drawn.items()})
    console.print(
        f"{len(drawn):,} standing queries from templates and {by_hand} written by hand", highlight=False
    )
    console.print(engine.explain().splitlines()[0], highlight=False, soft_wrap=True)
    began = time.perf_counter()
    run = engine.start(output, trigger=Trigger.available_now())
    try:
        follow(console, lambda: take_snapshot(run.status().to_dict()["streams"]), run.await_termination)
    finally:
        run.stop()
    _report(console, run, time.perf_counter() - began)


def _report(console: Console, run: Run, seconds: float) -> None:
    from penstock.monitor.snapshot import take_snapshot

    status = run.status().to_dict()["streams"]
    table = Table(
        "stream",
        "tuples",
        "queries",
        "matched",
        "pairs",
        "matched by no query",
        "tuples/s",
        title="The replay",
    )
    for stream in take_snapshot(status):
        table.add_row(
            stream.name,
            f"{stream.tuples:,}",
            f"{stream.views:,}",
            f"{stream.matched:,}",
            f"{stream.pairs:,}",
            f"{stream.dropped_share:.1%}",
            f"{stream.tuples_per_second:,.0f}",
        )
    console.print(table)
    busiest = Counter(status["flights"]["view_pairs"]).most_common(8)
    console.print(
        "Busiest queries: " + ", ".join(f"{name} {count:,}" for name, count in busiest), highlight=False
    )
    for decision in run.events("decision")[-2:]:
        console.print(
            f"Decision: {decision['stream']}: {decision['reason']}", highlight=False, soft_wrap=True
        )
    for view in _SAMPLES:
        _sample(console, run, view)
    _revisions(console, run)
    console.print(f"{seconds:.1f} s; results in {run.output}", highlight=False, soft_wrap=True)


def _revisions(console: Console, run: Run) -> None:
    """Hours whose early answer was not the last word."""
    changes = run.changes(_WINDOWS)
    changes.createOrReplaceTempView("changes")
    spark = changes.sparkSession
    hours = spark.sql("SELECT origin, w, count(DISTINCT departures) AS told FROM changes GROUP BY origin, w")
    hours.createOrReplaceTempView("hours")
    rows = spark.sql(
        """
        SELECT origin, date_format(w.start, 'MM-dd HH:mm') AS hour, revision, departures, round(coverage, 3) AS coverage,
               CAST(slack / 60 AS INT) AS slack_minutes, is_final
        FROM changes JOIN (SELECT origin, w FROM hours WHERE told > 1 ORDER BY w DESC, origin LIMIT 3) USING (origin, w)
        ORDER BY w, origin, revision
        """
    )
    told, revised = hours.count(), hours.where("told > 1").count()
    (early,) = spark.sql(
        "SELECT min(slack) / 60 FROM changes WHERE revision = 0 AND NOT is_final AND coverage IS NOT NULL"
    ).collect()[0]
    console.print(
        f"{_WINDOWS} asks that 95 % of its early answers are off by less than 5 % (MAX_ERROR). It told an hour as early as "
        f"{early:,.0f} minutes of event time after its end (slack); most hours had to wait for the end of their batch, as the "
        "replay's batches span weeks. What came later still is corrected. A later revision replaces the one before. Coverage is what final hours "
        "before suggest: the share of an hour's flights that were counted, not a measurement of this hour. Final (is_final) says that no flight is "
        "expected to change the hour any more; one that comes later than the horizon corrects it all the same, as a revision from "
        "1,000,000 on.",
        highlight=False,
        soft_wrap=True,
    )
    print_rows(
        console, rows.toArrow(), f"{_WINDOWS}: {told:,} results, {revised:,} of them corrected, such as these"
    )


def _sample(console: Console, run: Run, view: str) -> None:
    frame = run.results(view)
    rows = frame.limit(5).toArrow()
    print_rows(console, rows, f"{view}: {frame.count():,} rows, the first {len(rows)}")
