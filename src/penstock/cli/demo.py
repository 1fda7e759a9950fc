"""`penstock demo`: a year of real flights against thousands of rules, joined with the weather, or answered in time."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.common import PageToken, told_page
from penstock.cli.demo_deadlines import replay_deadlines
from penstock.cli.demo_joins import replay_joins
from penstock.cli.tables import table_console
from penstock.errors import InputError


class Part(StrEnum):
    """What is shown."""

    QUERIES = "queries"
    JOINS = "joins"
    DEADLINES = "deadlines"


def demo(
    part: Annotated[
        Part, typer.Argument(help="Rules and windows beside plain Spark, joins, or deadlines under overload.")
    ] = Part.QUERIES,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Results folder; results of an earlier demo in it are removed. Default: out/demo, out/demo-joins or out/demo-deadlines.",
            show_default=False,
        ),
    ] = None,
    queries: Annotated[int, typer.Option(help="Number of rules; for `queries`.", min=1)] = 2_000,
    page: Annotated[
        str,
        typer.Option(
            help="Show the demo in a browser at this address; port 0 takes a free one.", metavar="[HOST:]PORT"
        ),
    ] = "0",
    no_page: Annotated[bool, typer.Option("--no-page", help="Show no page.")] = False,
    page_token: PageToken = None,
) -> None:
    """Replay the 336,776 flights out of New York in 2013 through Spark."""
    from penstock.cli.demo_data import prepare
    from penstock.cli.demo_year import Sample, replay_year, written_script
    from penstock.page.asking import Script

    console = table_console()
    output = output or Path("out/demo" if part is Part.QUERIES else f"out/demo-{part.value}")
    if output.exists() and not (output / "_penstock").is_dir():
        raise InputError(f"--output {output} exists and is not a results folder; name another")
    data = output.parent / "demo-data"
    # the other parts have functions of their own, which no file has
    script = Script.of(written_script(data), None, (), ()) if part is Part.QUERIES else None
    with told_page(console, str(output), None if no_page else page, page_token, script=script):
        if output.exists():
            shutil.rmtree(output)
        console.print("Preparing the data, and starting Spark", highlight=False)
        flights, *_ = prepare(data)
        if part is Part.JOINS:
            replay_joins(console, data, output)
        elif part is Part.DEADLINES:
            replay_deadlines(console, data, output)
        else:
            replay_year(console, flights, output, queries, Sample())
        if not no_page:
            keep_page(console, threading.Event().wait)


def keep_page(console: Console, wait: Callable[[], object]) -> None:
    """Keep the page until Ctrl-C, where a person looks at a terminal.

    Args:
        console: where the demo prints.
        wait: waits for ever.
    """
    if console.is_terminal:
        console.print("The page remains open. Ctrl-C ends it.", highlight=False)
        with suppress(KeyboardInterrupt):
            wait()
