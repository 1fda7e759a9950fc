"""`penstock explain`: shows what would run where, and why."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.common import Conf, Functions, Master, Script, Tune, open_script


def explain(
    script: Script,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            help="Results folder; shows what its run has measured of your functions.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    tune: Tune = None,
    functions: Functions = None,
) -> None:
    """Explain how Penstock would run a script: decoding, compared columns, your functions, joins. Starts no query."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    engine, _ = open_script(script, master, conf, tune, functions, show=console.print)
    console.print(engine.explain(output))
