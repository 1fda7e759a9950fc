"""The command line: one subcommand a file; exit codes 0 done, 2 the user's mistake, 1 anything else.

A subcommand's module names its options and imports nothing that takes long to load; its function imports what it needs.
"""

from __future__ import annotations

import atexit
import gc
import re
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.cli.check import check
from penstock.cli.demo import demo
from penstock.cli.explain import explain
from penstock.cli.files import files
from penstock.cli.import_rules import import_rules
from penstock.cli.page import page
from penstock.cli.prune import prune
from penstock.cli.results import results
from penstock.cli.run import run
from penstock.cli.screen import run_app
from penstock.cli.status import quarantine, status
from penstock.cli.try_view import try_view
from penstock.cli.verify import verify
from penstock.cli.why import why
from penstock.errors import InputError

#: objects made between two searches for garbage: loading modules makes a million that are none
_OBJECTS = 50_000

#: what the library says of a value
_BAD_VALUE = re.compile(
    r"Invalid value for '([^']+)': (?:.+ is not one of (.+)\.|Input should be greater than or equal to (\d+)|Input should be a valid integer.*)"
)


class _Commands(TyperGroup):
    """The commands; what is wrong with the value of an option is said as other mistakes are."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the arguments name.

        Raises:
            InputError: an option has a value that is not allowed.
        """
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            found = _BAD_VALUE.fullmatch(error.format_message())
            if found is None:
                raise
            option, words, least = found.groups()
            numbers = "whole numbers" if least is None else f"whole numbers from {least} on"
            allowed = numbers if words is None else words.replace("'", "")
            raise InputError(f"{option}: allowed values are {allowed}.") from None


app = typer.Typer(
    name="penstock",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (run, check, explain, why, results, status, page, quarantine, files, prune, verify, demo):
    app.command()(command)
app.command("try")(try_view)
app.command("import")(import_rules)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        print(f"penstock {version('penstock')}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and exit.")
]


@app.callback()
def _options(*, version: Version = False) -> None:
    """Run SQL alert rules, windows and joins over Kafka or files in one Spark job."""


def _skip_last_search() -> None:
    """Spare the end of the process a search for garbage, but where DuckDB is loaded: it reports what nobody searched for."""
    if "_duckdb" not in sys.modules:
        gc.freeze()


def main() -> None:
    """Entry point of the `penstock` command."""
    gc.set_threshold(_OBJECTS)
    atexit.register(_skip_last_search)
    run_app(app)


if __name__ == "__main__":
    main()
