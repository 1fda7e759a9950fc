"""The command line: one subcommand a file; exit codes 0 done, 2 the user's mistake, 1 anything else.

A subcommand's module names its options and imports nothing that takes long to load; its function imports what it needs.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli.check import check
from penstock.cli.demo import demo
from penstock.cli.explain import explain
from penstock.cli.import_rules import import_rules
from penstock.cli.page import page
from penstock.cli.results import results
from penstock.cli.run import run
from penstock.cli.screen import kept_clean, tell, tell_unforeseen
from penstock.cli.simulate import simulate
from penstock.cli.status import quarantine, status
from penstock.cli.verify import verify
from penstock.errors import PenstockError

app = typer.Typer(
    name="penstock",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (run, check, explain, results, status, page, quarantine, verify, simulate, demo):
    app.command()(command)
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


def main() -> None:
    """Entry point of the `penstock` command."""
    with kept_clean():
        try:
            app()
        except PenstockError as error:
            tell(str(error))
            sys.exit(error.exit_code)
        except Exception as error:
            tell_unforeseen(error)
            sys.exit(1)


if __name__ == "__main__":
    main()
