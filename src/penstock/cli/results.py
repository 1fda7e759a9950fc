"""`penstock results`: prints the rows of a view from a results folder."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from penstock.errors import InputError, PenstockError

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.results.read_plain import PlainRows
    from penstock.spark.storage.layout import Layout


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
    from penstock.spark.results.read_plain import plain_batches

    found = plain_batches(layout, view)
    if found is None or not _are_written_here(found[0]):
        return False
    with tempfile.TemporaryFile() as file:
        try:
            file.writelines(f"{line}\n".encode() for line in _lines(*found, output_format))
        except PenstockError:
            raise
        except (NotImplementedError, ValueError):  # what only Spark can read
            return False
        file.seek(0)
        sys.stdout.flush()
        shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.flush()
    return True


def _are_written_here(schema: pa.Schema) -> bool:
    from penstock.cli.texts import has_form

    return all(has_form(field.type) for field in schema)


def _lines(schema: pa.Schema, batches: Iterable[pa.RecordBatch], output_format: Format) -> Iterator[str]:
    """Rows as lines of CSV, the header first, or JSON."""
    from penstock.cli.texts import csv_line, csv_lines, json_lines

    if output_format is Format.CSV:
        yield csv_line(schema.names)
    write = csv_lines if output_format is Format.CSV else json_lines
    for batch in batches:
        yield from write(batch)


def _print(rows: pa.Table, title: str, output_format: Format) -> None:
    """Prints rows whose types all have a form here."""
    from penstock.cli.tables import print_rows, table_console

    if output_format is Format.TABLE:
        print_rows(table_console(), rows, title)
        return
    sys.stdout.flush()
    for line in _lines(rows.schema, rows.to_batches(), output_format):
        sys.stdout.buffer.write(f"{line}\n".encode())
    sys.stdout.flush()


def _print_plain(found: PlainRows, output_format: Format) -> bool:
    """Prints rows that files hold as they are; False, and nothing is printed, where a value's form is only Spark's."""
    if not _are_written_here(found.rows.schema):
        return False
    _print(found.rows, f"{found.name}: {found.count:,} rows", output_format)
    return True


def _print_computed(folder: Path, view: str, changes: bool, limit: int, output_format: Format) -> None:
    """Prints rows that Spark computes."""
    from penstock.cli.texts import has_form
    from penstock.spark.analysis.schemas import arrow_schema
    from penstock.spark.results.read import as_texts, open_results, rows_as_json
    from penstock.spark.sessions.build import build_session

    Console(stderr=True).print(f"Spark computes the columns of {view} ...", highlight=False, markup=False)
    frame = open_results(build_session("local[*]", {}, purpose="brief"), folder.resolve(), view, changes)
    shown = frame.limit(limit) if limit else frame
    if output_format is Format.JSON:
        for row in rows_as_json(shown).toLocalIterator():
            print(row.line)
        return
    rows = shown.toDF(*map(str, range(len(frame.columns))))
    formless = [field.name for field in arrow_schema(rows.schema) if not has_form(field.type)]
    printable = as_texts(rows, formless).toArrow().rename_columns(frame.columns)
    _print(printable, f"{view}: {frame.count():,} rows", output_format)
