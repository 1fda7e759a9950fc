"""The command line: one subcommand a file; exit codes 0 done, 2 the user's mistake, 1 anything else.

A subcommand's module names its options and imports nothing that takes long to load; its function imports what it needs.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import traceback
from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.check import check
from penstock.cli.demo import demo
from penstock.cli.explain import explain
from penstock.cli.results import results
from penstock.cli.run import run
from penstock.cli.simulate import simulate
from penstock.cli.status import quarantine, status
from penstock.errors import PenstockError

app = typer.Typer(
    name="penstock",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (run, check, explain, results, status, quarantine, simulate, demo):
    app.command()(command)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        print(f"penstock {version('penstock')}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and stop.")
]


@app.callback()
def _options(*, version: Version = False) -> None:
    """Adaptive continuous queries on Apache Spark."""


def main() -> None:
    """Entry point of the `penstock` command."""
    before, threading.excepthook = threading.excepthook, _tell_of_thread
    try:
        app()
    except PenstockError as error:
        _print(str(error))
        sys.exit(error.exit_code)
    except Exception as error:
        _tell_unforeseen(error)
        sys.exit(1)
    finally:
        threading.excepthook = before


def _tell_of_thread(failed: threading.ExceptHookArgs) -> None:
    if isinstance(failed.exc_value, Exception):
        _tell_unforeseen(failed.exc_value)


def _tell_unforeseen(error: Exception) -> None:
    """Prints one line on an error that is a fault of Penstock's, and writes its traceback to a file."""
    what = traceback.format_exception_only(error)[0].splitlines()[0]
    try:
        number, path = tempfile.mkstemp(".log", "penstock-error-")
        with os.fdopen(number, "w", encoding="utf-8", errors="replace") as file:
            traceback.print_exception(error, file=file)
        where = f"The traceback is in {path}. Please report it."
    except OSError as second:
        where = f"Its traceback could not be written: {second.strerror or second}"
    _print(f"an error that Penstock did not foresee: {what}. {where}")


def _print(told: str) -> None:
    Console(stderr=True).print(
        f"penstock: {told}", style="red", markup=False, highlight=False, soft_wrap=True
    )


if __name__ == "__main__":
    main()
