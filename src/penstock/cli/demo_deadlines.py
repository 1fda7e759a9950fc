"""`penstock demo deadlines`: views with a deadline under twice the load that fits."""

from __future__ import annotations

import time
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from penstock.cli.demo_start import heartbeat, penstock_command
from penstock.cli.tables import print_rows

if TYPE_CHECKING:
    from penstock.spark.run import Run

_VIEWS = ("jfk_gates", "ewr_gates", "lga_gates")
_SECONDS = 60.0


def replay_deadlines(console: Console, data: Path, output: Path) -> None:
    """Replays some days of flights for a minute and tells which windows made it.

    Args:
        console: where to.
        data: the folder of the folders of the flights and the weather.
        output: the results folder.
    """
    from penstock.cli.common import build_engine
    from penstock.cli.demo_gates import AGGREGATES
    from penstock.monitor.live import follow
    from penstock.monitor.news import News
    from penstock.monitor.snapshot import take_lanes, take_snapshot
    from penstock.settings import Settings
    from penstock.spark.sessions.slots import with_ingest_slot

    with heartbeat(console, "Spark starts"):
        engine = build_engine(None, with_ingest_slot(None) or {}, Settings(), "whole")
    for name, (aggregate, returns) in AGGREGATES.items():
        engine.aggregate(name, aggregate, returns)
    script = resources.files("penstock.cli").joinpath("demo_gates.sql").read_text(encoding="utf-8")
    engine.execute(script.replace("examples/data", str(data)))
    console.print(engine.explain(), highlight=False, soft_wrap=True)
    with heartbeat(console, "The run starts"):
        run = engine.start(output)
    until = time.monotonic() + _SECONDS

    def over(seconds: float) -> bool:
        return run.await_termination(seconds) or time.monotonic() > until

    try:
        follow(
            console,
            lambda: [*take_snapshot(status := run.status().to_dict()["streams"]), *take_lanes(status)],
            over,
            News(run.events).lines,
        )
    finally:
        run.stop()
    _report(console, run)


def _report(console: Console, run: Run) -> None:
    views = Table(
        "view", "windows", "in time", "shed", "missed", "failed", title="What became of the windows"
    )
    counts: dict[str, dict[str, int]] = {}
    cuts = run.events("cut")
    for cut in cuts:
        for view, told in cut["figures"]["views"].items():
            known = counts.setdefault(view, {})
            known.update({what: known.get(what, 0) + count for what, count in told.items()})
    for view in _VIEWS:
        told = counts.get(view, {})
        created = told.get("created", 0)
        share = f"{told['released'] / created:.0%}" if created else ""
        views.add_row(
            view, f"{created:,}", share, *(f"{told.get(kind, 0):,}" for kind in ("shed", "missed", "failed"))
        )
    console.print(views)
    if len(cuts) > 1:
        first, last = (datetime.fromisoformat(cut["time"]) for cut in (cuts[0], cuts[-1]))
        seconds = (last - first).total_seconds()
        created, worked = (
            sum(told.get(kind, 0) for told in counts.values() for kind in kinds)
            for kinds in (("created",), ("released", "missed"))
        )
        console.print(
            f"Windows a second, measured in this run: the stream asked for {created / seconds:.1f}; this machine computed {worked / seconds:.1f}.",
            highlight=False,
            soft_wrap=True,
        )
    print_rows(
        console, run.results(_VIEWS[0]).orderBy("w").limit(3).toArrow(), f"{_VIEWS[0]}: the first 3 rows"
    )
    misses = run.misses(_VIEWS[0]).orderBy("arrived")
    lost = misses.select("arrived", "outcome", "predicted_seconds", "reason")
    print_rows(
        console, lost.limit(5).toArrow(), f"{_VIEWS[0]}: {lost.count():,} windows not released, the first 5"
    )
    console.print(
        f"`{penstock_command()} status {run.output}` shows the state of each view; results: {run.output}",
        highlight=False,
        soft_wrap=True,
    )
