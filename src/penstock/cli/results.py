"""`penstock results`: prints the rows of a view from a results folder."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from penstock.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.plain_results import PlainRows

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
    from penstock.spark.catalog import find_view
    from penstock.spark.layout import Layout

    layout = Layout(folder.resolve(), folder.resolve())
    find_view(layout, view, changes)
    from penstock.spark.plain_results import plain_rows

    found = plain_rows(layout, view, limit, changes)
    if found is None or not _print_plain(found, output_format):
        _print_computed(folder, view, changes, limit, output_format)


def _print_plain(found: PlainRows, output_format: Format) -> bool:
    """Prints rows that files hold as they are; False, and nothing is printed, where a value's form is only Spark's."""
    import pyarrow as pa

    from penstock.cli.json_lines import json_cells, json_lines
    from penstock.cli.tables import print_rows, table_console

    rows = found.rows
    try:
        if output_format is Format.TABLE:
            print_rows(table_console(), rows, f"{found.name}: {found.count:,} rows")
        elif output_format is Format.CSV:
            for number, field in enumerate(rows.schema):
                if pa.types.is_nested(field.type):
                    cells = json_cells(rows.column(number))
                    if cells is None:
                        return False
                    rows = rows.set_column(number, field.name, pa.array(cells, pa.string()))
            _print_csv(rows)
        else:
            lines = json_lines(rows)
            if lines is None:
                return False
            for line in list(lines):
                print(line)
    except (OverflowError, ValueError):  # years that Python does not have
        return False
    return True


def _print_computed(folder: Path, view: str, changes: bool, limit: int, output_format: Format) -> None:
    """Prints rows that Spark computes."""
    from penstock.cli.tables import print_rows, table_console
    from penstock.spark.results import open_results
    from penstock.spark.session import build_session

    Console(stderr=True).print(f"Spark computes the columns of {view} ...", highlight=False, markup=False)
    frame = open_results(build_session("local[*]", {}, purpose="brief"), folder.resolve(), view, changes)
    shown = frame.limit(limit) if limit else frame
    if output_format is Format.CSV:
        columns = [
            f"to_json(`{name}`, {_TO_JSON}) AS `{name}`" if kind.startswith(_NESTED) else f"`{name}`"
            for name, kind in frame.dtypes
        ]
        _print_csv(shown.selectExpr(*columns).toArrow())
    elif output_format is Format.JSON:
        lines = shown.selectExpr(f"to_json(struct(*), {_TO_JSON}) AS line")
        for row in lines.toLocalIterator():
            print(row.line)
    else:
        print_rows(table_console(), shown.toArrow(), f"{view}: {frame.count():,} rows")


def _print_csv(rows: pa.Table) -> None:
    import pyarrow.csv as pacsv

    sys.stdout.flush()
    pacsv.write_csv(rows, sys.stdout.buffer)
