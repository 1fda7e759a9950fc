"""`penstock demo`: a year of flights against thousands of rules and three windows, and the same on plain Spark beside."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from penstock.cli.demo_compare import (
    EXACT,
    Compared,
    arrived,
    compare_exactly,
    compare_matches,
    compare_windows,
    flat,
    together,
)
from penstock.cli.demo_plain import (
    WATERMARK,
    PlainRules,
    PlainWindows,
    answer_rules,
    answer_windows,
    write_sample,
)
from penstock.cli.demo_start import heartbeat, penstock_command
from penstock.page.judgements import Judgement, judge, read_revisions
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

if TYPE_CHECKING:
    from penstock.spark.run import Run

#: the window view whose first answers are judged, the error that it allows, and revisions that are read for that
_JUDGED, _ERROR, _MOST_REVISIONS = "departures_by_origin", 0.05, 500_000
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Sample:
    """What plain Spark gets: rows of each file, the first to arrive.

    Attributes:
        rules: files for the rules.
        windows: files for the windows.
    """

    rules: tuple[int, ...] = (500, 2_000)
    windows: tuple[int, ...] = (8_000, 8_000, 8_000)


@dataclass(frozen=True, slots=True)
class Ours:
    """What Penstock made of the year.

    Attributes:
        flights: replayed.
        seconds: from the start to the last readable row.
        file_flights, file_seconds: of a file, from file to readable rows, in the median; the first file is left out.
        window_seconds: from file to the readable rows of windows, in the median over their batches.
        wait_minutes: for late flights, as learned, of the newest batch that promises; None: none did.
    """

    flights: int
    seconds: float
    file_flights: int
    file_seconds: float
    window_seconds: float
    wait_minutes: float | None


def written_script(data: Path) -> Path:
    """Where the script of the demo is written, for questions about its views.

    Args:
        data: the folder with the demo's data.
    """
    return data / "demo.sql"


def replay_year(console: Console, flights: Path, output: Path, queries: int, sample: Sample) -> None:
    """Replays the year, asks plain Spark the same about a sample, compares all rows and prints one screen.

    Args:
        console: where to.
        flights: the folder of the flights.
        output: the results folder.
        queries: rules drawn from the templates.
        sample: what plain Spark gets.
    """
    from penstock.cli.common import build_engine
    from penstock.cli.demo_queries import create_view, standing_queries
    from penstock.settings import Settings
    from penstock.sql.script.script import parse_script

    table = pq.read_table(flights)
    rules = standing_queries(table, queries)
    # not beside the above: Arrow's functions fail while another thread loads numpy for the first time
    with heartbeat(console, "Spark starts"):
        engine = build_engine(None, {}, Settings(), "whole")
    script = resources.files("penstock.cli").joinpath("demo_flights.sql").read_text(encoding="utf-8")
    script = script.replace("examples/data", str(flights.parent))
    windows = {view.name: view.text for view in parse_script(script).views if view.name in EXACT}
    written_script(flights.parent).write_text(
        "\n".join([script, *(create_view(*rule) for rule in rules.items())])
    )
    with heartbeat(console, f"Penstock reads {len(rules):,} rules"):
        engine.execute(script)
        engine.drop(*(name for names in engine.declared.values() for name in names if name not in windows))
        engine.add_views(
            {name: f"SELECT * FROM flights WHERE {condition}" for name, condition in rules.items()}
        )
    console.print(
        f"{len(table):,} flights, {len(rules):,} rules, {len(windows)} window queries: first Penstock, then plain Spark.",
        highlight=False,
    )
    began = time.perf_counter()
    with heartbeat(console, "The run starts"):
        run = engine.start(output, trigger=Trigger.available_now())
    # what is no terminal shows no bar
    lines = nullcontext() if console.is_terminal else heartbeat(console, "Penstock replays the year")
    try:
        with lines, Progress(console=console, transient=True) as bar:
            task = bar.add_task("Penstock replays the year", total=len(table))
            while not run.await_termination(0.5):
                bar.update(task, completed=(done := _tuples(run)))
                if done == len(table):
                    bar.update(task, description="Penstock answers the last windows")
    finally:
        run.stop()
    ours = _measured(run, time.perf_counter() - began)
    beside = output / "plain-spark"
    with console.status("Plain Spark answers a sample"):
        files = write_sample(table, sample.rules, beside / "flights")
        write_sample(table, sample.windows, beside / "window-flights")
        plain = answer_rules(run, files, rules, beside / "rules")
        plain_windows = answer_windows(run, beside / "window-flights", windows, beside / "windows")
    with console.status("Comparing the rows"):
        matched = run.matches("flights").toArrow()
        rows = {name: flat(run.results(name, final_only=True).toArrow(), name) for name in windows}
        same_matches = compare_matches(arrived(matched, plain.rows), plain.rows, table.column_names)
        same_windows = together(
            compare_windows(rows[name], flat(each, name)) for name, each in plain_windows.rows.items()
        )
        exact = together(compare_exactly(name, each, table) for name, each in rows.items())
        told = same_matches, same_windows, exact
        judged = judged_windows(output)
    _print(console, run, len(rules), ours, plain, plain_windows, told, judged)


def _tuples(run: Run) -> int:
    return run.status().streams["flights"].tuples


def _measured(run: Run, seconds: float) -> Ours:
    batches = [event for event in run.events("batch") if event["stream"] == "flights"]
    later = batches[1:] or batches
    parts = ("bind_seconds", "run_seconds", "publish_seconds")
    begun = {event["batch"]: _moment(event) - sum(event[part] for part in parts) for event in batches}
    # corrections of final windows may come alone, and answer no batch
    answers = [event for event in run.events("windows") if event["entries"] and event["answered"] in begun]
    waits = [
        event["standing"][_JUDGED]["slack"] / 60e6
        for event in answers
        if event["standing"][_JUDGED]["promised"]
    ]
    return Ours(
        sum(event["tuples"] for event in batches),
        seconds,
        int(median(event["tuples"] for event in later)),
        median(sum(event[part] for part in parts) for event in later),
        median(_moment(event) - begun[event["answered"]] for event in answers),
        waits[-1] if waits else None,
    )


def _moment(event: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(event["time"]).timestamp()


def judged_windows(output: Path) -> Judgement | None:
    """How the first answers of the judged windows came out, by what the page of windows shows; None: none was early.

    Args:
        output: the results folder.
    """
    found = read_revisions(Layout(output, output / "_penstock" / "checkpoint"), _JUDGED, _MOST_REVISIONS)
    return judge(found, {"epsilon": _ERROR})


def _print(
    console: Console,
    run: Run,
    rules: int,
    ours: Ours,
    plain: PlainRules,
    windows: PlainWindows,
    compared: tuple[Compared, Compared, Compared],
    judged: Judgement | None,
) -> None:
    matches, window_rows, exact = compared
    year = ours.flights / plain.flights_per_second
    first = early = corrected = "no early answer"
    if judged is not None:
        first = f"{judged.first_off:,} of {judged.first:,} rows"
        early = f"{judged.off:,} of {judged.early:,} rows (allowed: {_ERROR:.0%})"
        corrected = f"{judged.corrected:,} of {judged.first:,} rows"
    wait = (
        "no promise yet"
        if ours.wait_minutes is None
        else f"{ours.wait_minutes:,.0f} minutes in the end, learned"
    )
    rates = ours.flights / ours.seconds / plain.flights_per_second
    table = Table("", "Penstock", "plain Spark, same session", width=_WIDTH)
    sections: list[Mapping[str, tuple[str, str]]] = [
        {
            f"{rules:,} rules: flights": (f"{ours.flights:,}, the year", f"{plain.flights:,}, a sample"),
            "seconds, start to last row": (
                f"{ours.seconds:,.1f} (windows included)",
                f"{plain.seconds:,.1f}",
            ),
            "flights a second": (
                f"{ours.flights / ours.seconds:,.0f} (x {rates:,.0f})",
                f"{plain.flights_per_second:,.0f}, its last file",
            ),
            "flights arrive": ("as fast as they are answered", "in files of a fixed size"),
            "the whole year": (f"{ours.seconds:,.0f} s", f"{_length(year)}, extrapolated"),
            "from file to readable row": (
                f"{ours.file_seconds:.1f} s for {ours.file_flights:,} flights",
                f"{plain.file_seconds:.1f} s for {plain.file_flights:,} flights",
            ),
            "same rows, by the sample": (matches.text, ""),
        },
        {
            "windows: flights": (f"{ours.flights:,}, the year", f"{windows.flights:,}, a sample"),
            "seconds": ("included above", f"{windows.seconds:,.1f}"),
            "from file to readable row": (
                f"{ours.window_seconds:.1f} s, behind the whole replay",
                f"{windows.batch_seconds:.1f} s",
            ),
            "wait for late flights": (wait, f"{WATERMARK}, set by hand"),
            f"first answers off by {_ERROR:.0%} or more": (first, "none, a day later"),
            "of early ones, which are promised": (early, ""),
            "corrected by later flights": (corrected, "cannot"),
            "same rows, by the sample": (window_rows.text, ""),
            "exact in the end, by DuckDB": (exact.text, "not judged"),
        },
    ]
    for section in sections:
        for name, cells in section.items():
            table.add_row(name, *cells)
        table.add_section()
    console.print(table)
    command = penstock_command()
    console.print(
        f"Both ran on {_cores(run)} cores. Spark ran second, with a warm JVM: one SELECT with a CASE for each rule,\n"
        "planned again for each file (larger files share that cost), and a streaming query for each window.\n\n"
        "Try next:\n"
        f"  {command} results {run.output} {_JUDGED} --limit 5\n"
        f"  {command} status {run.output}\n"
        f"  {command} page {run.output}\n"
        f"  {command} demo deadlines",
        highlight=False,
        soft_wrap=True,
    )


def _length(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} minutes"


def _cores(run: Run) -> int:
    return run.matches("flights").sparkSession.sparkContext.defaultParallelism
