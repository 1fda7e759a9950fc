"""`penstock import`: rules in another format become a script of views."""

from __future__ import annotations

from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.given import named_values
from penstock.errors import ConnectionFailedError, InputError
from penstock.monitor.figures import counted


class Imported(StrEnum):
    """The format of the rules."""

    SIGMA = "sigma"


def import_rules(
    what: Annotated[  # noqa: ARG001 - there is one
        Imported, typer.Argument(help="The format of the rules.", metavar="sigma")
    ],
    folder: Annotated[Path, typer.Argument(help="Folder with rules, or one file.", metavar="DIR")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="SQL script for the views; it is replaced.", metavar="FILE")
    ],
    table: Annotated[str, typer.Option(help="Stream that the views select from.", metavar="NAME")] = "events",
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="Column that replaces a field; repeat the option for several.",
            metavar="FIELD=COLUMN",
        ),
    ] = None,
    pipeline: Annotated[
        list[Path] | None,
        typer.Option(help="pySigma pipeline (YAML); repeat the option for several.", metavar="FILE"),
    ] = None,
    keywords: Annotated[
        list[str] | None,
        typer.Option(
            help="Column that keywords are searched in, default Message; repeat the option for several.",
            metavar="COLUMN",
        ),
    ] = None,
    number: Annotated[
        list[str] | None,
        typer.Option(
            help="Column of a numeric type, compared without a cast; repeat the option for several.",
            metavar="COLUMN",
        ),
    ] = None,
) -> None:
    """Convert detection rules to a SQL script, one view per rule. Exit code 1 if some were not converted."""
    columns = named_values("--map", "FIELD=COLUMN", fields)
    if not folder.exists():
        raise ConnectionFailedError(f"Cannot read {folder}: no such file or folder.")
    if find_spec("sigma") is None or find_spec("sigma.conversion") is None:
        raise InputError("Sigma rules need the package pySigma: `pip install 'penstock[sigma]'`.")
    from penstock.sigma.convert import convert_folder
    from penstock.sigma.script import licence_texts, script

    converted = convert_folder(folder, columns, pipeline or (), keywords or ("Message",), number or ())
    try:
        with output.open("w", encoding="utf-8") as file:
            file.writelines(script(converted.rules, table, licence_texts(folder)))
    except OSError as error:
        raise ConnectionFailedError(f"Cannot write {output}: {error.strerror}.") from error
    for each in converted.failed:
        print(f"{each.file}: not converted: {each.reason}")
    print(
        f"{output}: {counted(len(converted.rules), 'rule')} converted, {len(converted.failed)} not converted"
    )
    if converted.failed:
        raise typer.Exit(1)
