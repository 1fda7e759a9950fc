"""`penstock run`: runs a script until it is stopped, or until what is available now is answered."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.common import Conf, Functions, Master, Script, Tune, open_script, read_script
from penstock.errors import InputError
from penstock.monitor.live import follow
from penstock.monitor.snapshot import take_snapshot
from penstock.spark.engine import Engine


def run(
    script: Script,
    output: Annotated[Path, typer.Option(help="Results folder.", metavar="DIR")] = Path("penstock-out"),
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Folder a restart needs; default inside the results folder.", metavar="DIR"),
    ] = None,
    available_now: Annotated[bool, typer.Option("--available-now", help="End when all is answered.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow changes of the script while running.")
    ] = False,
    trigger: Annotated[str, typer.Option(help="Least time between two batches.")] = "0 seconds",
    master: Master = None,
    conf: Conf = None,
    tune: Tune = None,
    functions: Functions = None,
) -> None:
    """Run a script: matches appear in DIR/matches, decisions in DIR/events.jsonl."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    engine, text = open_script(script, master, conf, tune, functions)
    watcher = _Watcher(script, text, engine, console) if watch else None
    with _told_to_stop() as told:
        running = engine.start(output, checkpoint, trigger, available_now)
        for event in running.events("views_changed"):
            for what, happened in (
                ("redefined", "redefined, answered anew from here on"),
                ("dropped", "dropped"),
            ):
                if event[what]:
                    console.print(f"stream {event['stream']}: {happened}: {', '.join(event[what])}")

        def wait(seconds: float) -> bool:
            if watcher is not None:
                watcher.look()
            return running.await_termination(seconds) or told.is_set()

        try:
            follow(console, lambda: take_snapshot(running.status()), wait)
            if told.is_set():
                console.print("stopping; the same command goes on from here")
        finally:
            running.stop()
    console.print(f"results in {output}")


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """Takes note of Ctrl-C and SIGTERM instead of breaking off a call into the JVM half way.

    A second signal does what it always does.
    """
    told = threading.Event()

    def note(*_: object) -> None:
        told.set()
        restore()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    try:
        yield told
    finally:
        restore()


class _Watcher:
    """Brings a running engine to what its script says, whenever the script changes."""

    def __init__(self, path: Path, text: str, engine: Engine, console: Console) -> None:
        self._path = path
        self._text = text
        self._engine = engine
        self._console = console
        self._clock: Callable[[], float] = time.monotonic
        self._next = 0.0
        self._told = ""

    def look(self) -> None:
        """Reads the script, at most once a second; a mistake in it changes nothing and is told once."""
        if self._clock() < self._next:
            return
        self._next = self._clock() + 1.0
        try:
            text = read_script(self._path)
            if text == self._text:
                return
            added, dropped = self._engine.reconcile(text)
            self._text = text
            self._told = ""
            self._console.print(f"{self._path}: {added} views added or redefined, {dropped} dropped")
        except InputError as error:
            if str(error) != self._told:
                self._told = str(error)
                self._console.print(f"{self._path}: not followed: {error}", style="red")
