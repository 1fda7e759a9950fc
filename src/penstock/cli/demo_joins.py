"""`penstock demo joins`: a join of two streams and a static table whose best order changes with the seasons."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from penstock.cli.demo_start import heartbeat, penstock_command
from penstock.cli.tables import print_rows

if TYPE_CHECKING:
    from penstock.spark.run import Run

_JOIN, _WINDOWS = "southbound_in_warm_air", "storm_season"


def replay_joins(console: Console, data: Path, output: Path) -> None:
    """Replays a year of flights and weather in 40 seconds and tells how the join's order follows it.

    Args:
        console: where to.
        data: the folders of the flights, the weather and the airports.
        output: the results folder.
    """
    from penstock.cli.common import build_engine
    from penstock.cli.demo_storms import FUNCTIONS
    from penstock.monitor.live import follow
    from penstock.monitor.news import News
    from penstock.monitor.snapshot import take_lanes, take_snapshot
    from penstock.settings import Settings
    from penstock.trigger import Trigger

    with heartbeat(console, "Spark starts"):
        engine = build_engine(None, {}, Settings(), "whole")
    for name, (function, returns) in FUNCTIONS.items():
        engine.function(name, function, returns)
    script = resources.files("penstock.cli").joinpath("demo_storms.sql").read_text(encoding="utf-8")
    engine.execute(script.replace("examples/data", str(data)))
    console.print(engine.explain(), highlight=False, soft_wrap=True)
    with heartbeat(console, "The run starts"):
        run = engine.start(output, trigger=Trigger.available_now())
    try:
        follow(
            console,
            lambda: [*take_snapshot(status := run.status().to_dict()["streams"]), *take_lanes(status)],
            run.await_termination,
            News(run.events).lines,
        )
    finally:
        run.stop()
    _report(console, run)


def _report(console: Console, run: Run) -> None:
    switches = Table(
        "behind cut", "from then on", "because", title=f"{_JOIN}: how its order followed the data"
    )
    for each in run.events("join_switched"):
        switches.add_row(str(each["cut"]), each["order"], each["reason"])
    console.print(switches)
    rows = run.results(_JOIN)
    print_rows(console, rows.limit(5).toArrow(), f"{_JOIN}: {rows.count():,} rows, the first 5")
    seasons = run.results(_WINDOWS).orderBy("w", "origin")
    print_rows(console, seasons.toArrow(), f"{_WINDOWS}: a window view over these")
    console.print(
        f"`{penstock_command()} status {run.output}` shows the figures of each step; results: {run.output}",
        highlight=False,
        soft_wrap=True,
    )
