"""`penstock results`: prints the rows of a view from a results folder."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from penstock.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.results.read_plain import PlainRows
    from penstock.spark.storage.layout import Layout

#: types that CSV has no form for; they are written as JSON


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def results(
    folder: Annotated[Path, typer.Argument(help="Results folder.", metavar="DIR")],
    view: Annotated[str, typer.Argument(help="Name of a view.", metavar="VIEW")],
    changes: Annotated[
        bool,
        typer.Option(
            "--changes",
            help="Every revision of the rows of a window view; of a LEFT JOIN what was withdrawn too.",
        ),
    ] = False,
    misses: Annotated[
        bool,
        typer.Option(
            "--misses", help="The windows of a view with a deadline that were not released in time."
        ),
    ] = False,
    limit: Annotated[int, typer.Option(help="Rows at the most; 0 prints all.", min=0)] = 20,
    output_format: Annotated[
        Format, typer.Option("--format", help="table, csv or json lines.")
    ] = Format.TABLE,
) -> None:
    """Print the rows of a view."""
    if not folder.is_dir():
        raise InputError(f"no such results folder: {folder}")
    from penstock.spark.reporting.catalog import find_view
    from penstock.spark.storage.layout import Layout

    layout = Layout(folder.resolve(), folder.resolve())
    if misses:
        _print_misses(layout, view, limit, output_format)
        return
    find_view(layout, view, changes)
    from penstock.spark.results.read_plain import plain_rows

    if not (limit or changes or output_format is Format.TABLE) and _print_batches(
        layout, view, output_format
    ):
        return
    found = plain_rows(layout, view, limit, changes)
    if found is None or not _print_plain(found, output_format):
        _print_computed(folder, view, changes, limit, output_format)


def _print_misses(layout: Layout, view: str, limit: int, output_format: Format) -> None:
    """Prints windows that were not released in time, the newest ones last."""
    from penstock.spark.results.misses import missed_windows
    from penstock.spark.results.read_plain import PlainRows

    rows = missed_windows(layout, view)
    shown = rows.slice(max(0, rows.num_rows - limit)) if limit else rows
    _print_plain(PlainRows(f"{view}, misses", shown, rows.num_rows), output_format)


def _print_batches(layout: Layout, view: str, output_format: Format) -> bool:
    """Prints all rows of a selection a batch at a time, as CSV or JSON; False, and nothing is printed, as `_print_plain`.

    They are in a file before the first is printed: one that cannot be read may be the last.
    """
    from penstock.spark.results.read_plain import TRIES, plain_batches

    for _ in range(TRIES):
        found = plain_batches(layout, view)
        if found is None:
            return False
        with tempfile.TemporaryFile() as file:
            try:
                if not _write(*found, output_format, file):
                    return False
            except FileNotFoundError:  # a compaction
                continue
            except (NotImplementedError, OverflowError, ValueError):  # what only Spark can read or write
                return False
            file.seek(0)
            sys.stdout.flush()
            shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.flush()
            return True
    return False


def _write(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], output_format: Format, file: IO[bytes]
) -> bool:
    """Writes rows; False where a value's form is only Spark's."""
    import pyarrow as pa
    import pyarrow.csv as pacsv

    from penstock.cli.json_lines import json_lines

    if output_format is Format.JSON:
        for batch in batches:
            lines = json_lines(pa.table(batch))
            if lines is None:
                return False
            file.writelines(f"{line}\n".encode() for line in lines)
        return True
    first = _as_csv(schema.empty_table())
    if first is None:
        return False
    with pacsv.CSVWriter(file, first.schema) as writer:
        for batch in batches:
            rows = _as_csv(pa.table(batch))
            if rows is not None:
                writer.write_table(rows)
    return True


def _as_csv(rows: pa.Table) -> pa.Table | None:
    """Rows with nested values as JSON; None where one has no form here."""
    import pyarrow as pa

    from penstock.cli.json_lines import json_cells

    for number, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            cells = json_cells(rows.column(number))
            if cells is None:
                return None
            rows = rows.set_column(number, field.name, pa.array(cells, pa.string()))
    return rows


def _print_plain(found: PlainRows, output_format: Format) -> bool:
    """Prints rows that files hold as they are; False, and nothing is printed, where a value's form is only Spark's."""
    from penstock.cli.json_lines import json_lines
    from penstock.cli.tables import print_rows, table_console

    rows = found.rows
    try:
        if output_format is Format.TABLE:
            print_rows(table_console(), rows, f"{found.name}: {found.count:,} rows")
        elif output_format is Format.CSV:
            printable = _as_csv(rows)
            if printable is None:
                return False
            _print_csv(printable)
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
    from penstock.spark.results.read import nested_as_json, open_results, rows_as_json
    from penstock.spark.sessions.build import build_session

    Console(stderr=True).print(f"Spark computes the columns of {view} ...", highlight=False, markup=False)
    frame = open_results(build_session("local[*]", {}, purpose="brief"), folder.resolve(), view, changes)
    shown = frame.limit(limit) if limit else frame
    if output_format is Format.CSV:
        _print_csv(nested_as_json(shown).toArrow())
    elif output_format is Format.JSON:
        for row in rows_as_json(shown).toLocalIterator():
            print(row.line)
    else:
        print_rows(table_console(), shown.toArrow(), f"{view}: {frame.count():,} rows")


def _print_csv(rows: pa.Table) -> None:
    import pyarrow.csv as pacsv

    sys.stdout.flush()
    pacsv.write_csv(rows, sys.stdout.buffer)
