"""`penstock run`: runs a script until it is stopped, or until what is available now is answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from penstock.cli.common import (
    Conf,
    Functions,
    Master,
    PageToken,
    Script,
    Tune,
    open_script,
    tell_warnings,
    told_page,
)
from penstock.cli.given import Given
from penstock.cli.stopping import StopSignals
from penstock.errors import InputError, StartStoppedError

if TYPE_CHECKING:
    from penstock.monitor.live import Snapshot

#: time between two lines on what a start is at
_PRINTED_SECONDS = 5.0


def run(
    script: Script,
    output: Annotated[
        str, typer.Option(help="Results folder, or s3://BUCKET/PREFIX, gs:// or az://.", metavar="DIR")
    ] = "penstock-out",
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="Folder with the state for restarts; default: inside the results folder.", metavar="DIR"
        ),
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process the current input, then stop.")
    ] = False,
    ended: Annotated[
        bool,
        typer.Option(
            "--ended",
            help="With --available-now: treat the current input as complete; every window becomes final.",
        ),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Apply changes of the script while it runs.")
    ] = False,
    trigger: Annotated[str, typer.Option(help="Shortest time between two batches.")] = "0 seconds",
    master: Master = None,
    conf: Conf = None,
    tune: Tune = None,
    functions: Functions = None,
    page: Annotated[
        str | None,
        typer.Option(
            help="Show the run in a browser at this address; port 0 takes a free one.",
            metavar="[HOST:]PORT",
            show_default=False,
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Serve only /metrics, for Prometheus, at this address; port 0 takes a free one.",
            metavar="[HOST:]PORT",
            show_default=False,
        ),
    ] = None,
    page_token: PageToken = None,
) -> None:
    """Run a script until Ctrl-C. The folder --output gets matches, results of views and events.jsonl."""
    from penstock.cli.watch import Watcher
    from penstock.monitor.figures import shown_view, source_words
    from penstock.monitor.live import follow
    from penstock.monitor.news import News
    from penstock.monitor.snapshot import take_lanes, take_snapshot
    from penstock.monitor.troubles import take_troubles
    from penstock.page.asking import Script as Asked
    from penstock.spark.storage.layout import Layout
    from penstock.trigger import Trigger

    console = Console(highlight=False, markup=False, soft_wrap=True)
    if ended and not available_now:
        raise InputError("--ended requires --available-now.")
    when = Trigger(trigger, is_bounded=available_now, is_complete=ended)
    asked = Asked.of(script, functions, conf or (), tune or ())
    # options of stores count from here on
    options = Given.of(tune, conf)
    with _told_if_stopped(console), StopSignals() as signals:
        with _checked(output, checkpoint), told_page(console, output, page, page_token, metrics, asked):
            engine, text = open_script(
                *(script, master, conf, tune, functions),
                purpose="run",
                folders=[output, checkpoint or output],
                show=console.print,
            )
            tell_warnings(engine, console)
            watcher = Watcher(script, text, engine, console, options=options) if watch else None
            printed = Layout.of(output, checkpoint).spark_log
            before: int | None = _size(printed)
            signals.take_note()
            starting = Starting(console, signals.are_told)
            try:
                running = engine.start(output, checkpoint, trigger=when, progress=starting)
            except Exception as error:
                from penstock.spark.recovery.causes import SESSION_ENDED, cause_of

                if signals.are_told() and cause_of(error).kind == SESSION_ENDED:
                    raise StartStoppedError("The start was stopped.") from error
                raise
            for refused in engine.refused_rules:
                console.print(f"warning: rule with a mistake: {refused}", style="red")
            for event in running.events("views_changed"):
                for what, happened in (
                    (
                        "redefined",
                        "redefined; without BACKFILL the new definition applies to tuples that arrive from now on",
                    ),
                    ("dropped", "dropped"),
                ):
                    if event[what]:
                        console.print(
                            f"{source_words(event['stream'])}: {happened}: {', '.join(map(shown_view, event[what]))}"
                        )

            incomplete: set[str] = set()

            def wait(seconds: float) -> bool:
                nonlocal before
                if watcher is not None:
                    watcher.look()
                if before is not None and _size(printed) != before:
                    before = None
                    console.print(f"Spark or a Python worker printed messages; see {printed}")
                told_of = [
                    (event, f"never become final: {event['reason']}")
                    for event in running.events("backfill_impossible")
                ]
                told_of += [
                    (event, f"become final after the next start only: {event['told']}")
                    for event in running.events("backfill_failed")
                ]
                for event, what in told_of:
                    views = ", ".join(event["views"]) or "its views"
                    line = f"{source_words(event['stream'])}: windows that began before {views} {what}"
                    if line not in incomplete:
                        incomplete.add(line)
                        console.print(line)
                return running.await_termination(seconds) or signals.are_told()

            def read() -> list[Snapshot]:
                status = running.status().to_dict()["streams"]
                return [*take_troubles(status), *take_snapshot(status), *take_lanes(status)]

            try:
                follow(console, read, wait, News(running.events).lines)
                if signals.are_told():
                    console.print("Stopping. Run the same command again to continue.")
            finally:
                running.stop()
        console.print(f"Results: {output}; state: penstock status {output}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class Starting:
    """Print the progress of a start every few seconds, and abort the start on request.

    Args:
        console: where it is printed.
        is_told_to_stop: whether somebody has asked for the end.
        clock: seconds.
    """

    def __init__(
        self,
        console: Console,
        is_told_to_stop: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._is_told_to_stop = is_told_to_stop
        self._clock = clock
        self._printed = clock()

    def __call__(self, what: str) -> None:
        """Takes in what the start is at.

        Raises:
            StartStoppedError: the end is asked for.
        """
        if self._is_told_to_stop():
            raise StartStoppedError("The start was stopped.")
        if self._clock() - self._printed >= _PRINTED_SECONDS:
            self._printed = self._clock()
            self._console.print(what)


@contextmanager
def _checked(output: str, checkpoint: str | None) -> Iterator[None]:
    """Check the folders before Spark starts, and report the start to their readers."""
    from penstock.spark.reporting.starting import told_as_starting
    from penstock.spark.storage.layout import Layout

    layout = Layout.of(output, checkpoint)
    layout.check()
    with told_as_starting(layout) if layout.checkpoint.is_dir() else nullcontext():
        yield


@contextmanager
def _told_if_stopped(console: Console) -> Iterator[None]:
    """Say that a start was stopped: that is no failure."""
    try:
        yield
    except StartStoppedError:
        console.print("Stopped during the start. Run the same command again to start.")
