"""`penstock results`: prints the rows of a view from a results folder."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pyarrow.csv as pacsv
import typer
from rich.console import Console
from rich.table import Table

from penstock.errors import InputError
from penstock.spark.results import open_results
from penstock.spark.session import build_session


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def results(
    folder: Annotated[Path, typer.Argument(help="Results folder.", metavar="DIR")],
    view: Annotated[str, typer.Argument(help="Name of a view.", metavar="VIEW")],
    limit: Annotated[int, typer.Option(help="Rows at the most; 0 prints all.", min=0)] = 20,
    output_format: Annotated[
        Format, typer.Option("--format", help="table, csv or json lines.")
    ] = Format.TABLE,
) -> None:
    """Print the rows of a view."""
    if not folder.is_dir():
        raise InputError(f"no such results folder: {folder}")
    frame = open_results(build_session("local[*]", {}), folder, view)
    rows = (frame.limit(limit) if limit else frame).toArrow()
    if output_format is Format.CSV:
        pacsv.write_csv(rows, sys.stdout.buffer)
    elif output_format is Format.JSON:
        for line in frame.limit(limit).toJSON().collect() if limit else frame.toJSON().toLocalIterator():
            print(line)
    else:
        table = Table(*rows.column_names, title=f"{view}: {frame.count():,} rows")
        for row in rows.to_pylist():
            table.add_row(*("" if value is None else str(value) for value in row.values()))
        Console().print(table)
