"""`penstock results`: prints the rows of a view from a results folder."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from penstock.errors import InputError

#: types that CSV has no form for; they are written as JSON
_NESTED = ("array", "map", "struct")
#: of Spark's to_json, which cuts moments to milliseconds
_TO_JSON = (
    """map('ignoreNullFields', 'false', 'timestampFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", """
    """'timestampNTZFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")"""
)


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def results(
    folder: Annotated[Path, typer.Argument(help="Results folder.", metavar="DIR")],
    view: Annotated[str, typer.Argument(help="Name of a view.", metavar="VIEW")],
    changes: Annotated[
        bool, typer.Option("--changes", help="Every revision of the rows of a window view.")
    ] = False,
    limit: Annotated[int, typer.Option(help="Rows at the most; 0 prints all.", min=0)] = 20,
    output_format: Annotated[
        Format, typer.Option("--format", help="table, csv or json lines.")
    ] = Format.TABLE,
) -> None:
    """Print the rows of a view."""
    if not folder.is_dir():
        raise InputError(f"no such results folder: {folder}")
    import pyarrow.csv as pacsv

    from penstock.cli.tables import print_rows, table_console
    from penstock.spark.results import open_results
    from penstock.spark.session import build_session

    frame = open_results(build_session("local[*]", {}), folder.resolve(), view, changes)
    shown = frame.limit(limit) if limit else frame
    if output_format is Format.CSV:
        columns = [
            f"to_json(`{name}`, {_TO_JSON}) AS `{name}`" if kind.startswith(_NESTED) else f"`{name}`"
            for name, kind in frame.dtypes
        ]
        pacsv.write_csv(shown.selectExpr(*columns).toArrow(), sys.stdout.buffer)
    elif output_format is Format.JSON:
        lines = shown.selectExpr(f"to_json(struct(*), {_TO_JSON}) AS line")
        for row in lines.toLocalIterator():
            print(row.line)
    else:
        print_rows(table_console(), shown.toArrow(), f"{view}: {frame.count():,} rows")
