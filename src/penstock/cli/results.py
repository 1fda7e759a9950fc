"""`penstock results`: prints the rows of a view from a results folder."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from penstock.cli.common import Entries, Functions, load_functions, register, session_libraries
from penstock.errors import InputError, PenstockError, UnknownNameError
from penstock.monitor.figures import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.storage.layout import Layout


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def results(
    folder: Annotated[str, typer.Argument(help="Results folder.", metavar="DIR")],
    view: Annotated[str, typer.Argument(help="Name of a view of that folder.", metavar="VIEW")],
    changes: Annotated[
        bool,
        typer.Option(
            "--changes",
            help="All revisions of the rows of a window view; of a LEFT, RIGHT, FULL or ANTI JOIN also withdrawn rows.",
        ),
    ] = False,
    misses: Annotated[
        bool,
        typer.Option(
            "--misses",
            help="Windows of a view with a deadline that were not released in time, with the reason.",
        ),
    ] = False,
    definition: Annotated[
        int | None,
        typer.Option(
            "--definition",
            help="Rows of definition N of a redefined view, counted from 1; default: the current definition.",
            metavar="N",
            show_default=False,
        ),
    ] = None,
    all_definitions: Annotated[
        bool,
        typer.Option("--all", help="Rows of all definitions of a selection, with the number of each."),
    ] = False,
    final_only: Annotated[
        bool,
        typer.Option(
            "--final",
            help="Only final rows of a window or running view; of windows, marks those corrected after being final.",
        ),
    ] = False,
    limit: Annotated[int, typer.Option(help="Most rows to print; 0 prints all.", min=0)] = 20,
    output_format: Annotated[
        Format, typer.Option("--format", help="Output format: table, csv or json lines.")
    ] = Format.TABLE,
    functions: Functions = None,
) -> None:
    """Print the rows of a view."""
    from penstock.spark.storage.store_paths import store_path

    if not store_path(folder).is_dir():
        raise InputError(f"Results folder {folder} does not exist. A run creates it when it starts.")
    for option, is_given in (("--all", all_definitions), ("--final", final_only)):
        if is_given and (misses or changes):
            raise InputError(f"{option} and {'--misses' if misses else '--changes'} exclude each other.")
    if misses and definition is not None:
        raise InputError("--definition and --misses exclude each other: --misses covers all definitions.")
    own = None if functions is None else load_functions(functions)
    from penstock.spark.storage.layout import Layout

    layout = Layout.of(folder, folder)
    _require_views(folder, layout)
    if misses:
        _print_misses(layout, view, limit, output_format)
        return
    from penstock.spark.reporting.catalog import find_view

    asked = Asked(view, changes, limit, definition, all_definitions, final_only)
    find_view(layout, view, changes, definition)
    whole = not (limit or changes or final_only or output_format is Format.TABLE)
    try:
        count = _print_batches(layout, asked, output_format) if whole else None
        if count is None:
            count = _print_plain(layout, asked, output_format)
        if count is None:
            count = _print_computed(folder, asked, output_format, own)
    except UnknownNameError:  # the view exists: its windows are not answered yet
        count = 0
    if not count:
        _say_why_none(folder, layout, view, final_only)


def _require_views(folder: str, layout: Layout) -> None:
    """Make sure that a run has declared views.

    Raises:
        InputError: none has.
    """
    from penstock.monitor.folder import folder_status
    from penstock.monitor.no_rows import no_views_words
    from penstock.spark.reporting.catalog import known_catalog

    is_ours = (layout.output / "_penstock").is_dir()
    if is_ours and not layout.catalog.exists() and known_catalog(layout) is None:
        raise InputError(f"{folder}: {no_views_words(folder_status(folder))}")


def _say_why_none(folder: str, layout: Layout, view: str, final_only: bool) -> None:
    """Print why a view has no rows to the standard error."""
    from penstock.monitor.folder import folder_status
    from penstock.monitor.no_rows import no_rows_words
    from penstock.spark.reporting.catalog import find_view

    told = no_rows_words(folder_status(folder), *find_view(layout, view), final_only=final_only)
    Console(stderr=True, soft_wrap=True).print(told, highlight=False, markup=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """Which rows are to be printed.

    Attributes:
        view: of which view, in any case.
        changes: whether every revision.
        limit: how many at the most; 0: all.
        definition: the number of one of its definitions; None: the one it has now.
        all_definitions: whether those of all definitions.
        final_only: whether only final ones.
    """

    view: str
    changes: bool = False
    limit: int = 0
    definition: int | None = None
    all_definitions: bool = False
    final_only: bool = False

    def print(self, layout: Layout, rows: pa.Table, count: int, output_format: Format) -> None:
        """Prints rows; below a table what has to be known of them.

        Args:
            layout: of the results folder.
            rows: of types that all have a form here.
            count: how many there are in all.
            output_format: how they are printed.
        """
        from penstock.spark.reporting.catalog import find_view

        name, entry = find_view(layout, self.view)
        _print(rows, f"{name}: {counted(count, 'row')}", output_format)
        if output_format is Format.TABLE:
            for note in self._notes(name, entry):
                print(note)

    def _notes(self, name: str, entry: Mapping[str, Any]) -> Iterator[str]:
        from penstock.monitor.no_rows import FINAL_OF_RUNNING
        from penstock.spark.reporting.definitions import all_definitions, is_running_view, number_of

        shown = self.definition or number_of(entry)
        others = sorted({*map(number_of, all_definitions(entry))} - {shown})
        if others and not self.all_definitions:
            yield f"definition {shown} of {name}; rows of others: --definition {', '.join(map(str, others))}"
        if is_running_view(entry):
            if self.final_only:
                yield FINAL_OF_RUNNING
        elif self.final_only or (self.changes and "lanes" not in entry):
            mark = "corrected_after_final" if self.final_only else "its revisions start at 1,000,000"
            yield (f"final rows change only if a tuple arrives later than the horizon ({mark})")


def _print_misses(layout: Layout, view: str, limit: int, output_format: Format) -> None:
    """Prints windows that were not released in time, the newest ones last."""
    from penstock.spark.results.misses import missed_windows

    rows = missed_windows(layout, view)
    shown = rows.slice(max(0, rows.num_rows - limit)) if limit else rows
    _print(shown, f"{view}, misses: {counted(rows.num_rows, 'row')}", output_format)


def _print_batches(layout: Layout, asked: Asked, output_format: Format) -> int | None:
    """Prints all rows of a selection a batch at a time, as CSV or JSON; returns as `_print_plain`.

    They are in a file before the first is printed: one that cannot be read may be the last.
    """
    from penstock.spark.results.read_plain import plain_batches

    found = plain_batches(layout, asked.view, asked.definition, asked.all_definitions)
    if found is None or not _are_written_here(found[0]):
        return None
    schema, batches = found
    count = 0

    def counted_batches() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in batches:
            count += batch.num_rows
            yield batch

    with tempfile.TemporaryFile() as file:
        try:
            file.writelines(f"{line}\n".encode() for line in _lines(schema, counted_batches(), output_format))
        except PenstockError:
            raise
        except (NotImplementedError, ValueError):  # what only Spark can read
            return None
        file.seek(0)
        sys.stdout.flush()
        shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.flush()
    return count


def _are_written_here(schema: pa.Schema) -> bool:
    from penstock.spark.results.texts import has_form

    return all(has_form(field.type) for field in schema)


def _lines(schema: pa.Schema, batches: Iterable[pa.RecordBatch], output_format: Format) -> Iterator[str]:
    """Rows as lines of CSV, the header first, or JSON."""
    from penstock.spark.results.json_columns import json_lines
    from penstock.spark.results.texts import csv_line, csv_lines

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


def _print_plain(layout: Layout, asked: Asked, output_format: Format) -> int | None:
    """Prints rows that files hold as they are, and returns how many exist; None, and nothing is printed, where only Spark can."""
    from penstock.spark.results.read_plain import plain_rows

    found = plain_rows(
        layout,
        asked.view,
        asked.limit,
        asked.changes,
        asked.definition,
        asked.all_definitions,
        asked.final_only,
    )
    if found is None or not _are_written_here(found.rows.schema):
        return None
    asked.print(layout, found.rows, found.count, output_format)
    return found.count


def _print_computed(
    folder: str, asked: Asked, output_format: Format, own: tuple[Entries, Entries] | None = None
) -> int:
    """Prints rows that Spark computes, and returns how many.

    Args:
        folder: the results folder.
        asked: which rows.
        output_format: how they are printed.
        own: the user's functions and aggregates, if a file with them is given.
    """
    from penstock.spark.analysis.schemas import arrow_schema
    from penstock.spark.results.read import as_texts, open_results, rows_as_json
    from penstock.spark.results.texts import has_form
    from penstock.spark.sessions.build import build_session
    from penstock.spark.storage.layout import Layout

    told = f"Starting Spark to compute the columns of {asked.view} ..."
    Console(stderr=True).print(told, highlight=False, markup=False)
    spark = build_session("local[*]", session_libraries({}, kafka=False, stores=[folder]), purpose="brief")
    if own is not None:
        from penstock.spark.engine import Engine

        register(Engine(spark), *own)
    frame = open_results(
        spark,
        folder,
        asked.view,
        asked.changes,
        asked.definition,
        asked.all_definitions,
        asked.final_only,
    )
    shown = frame.limit(asked.limit) if asked.limit else frame
    if output_format is Format.JSON:
        count = 0
        for row in rows_as_json(shown).toLocalIterator():
            print(row.line)
            count += 1
        return count
    rows = shown.toDF(*map(str, range(len(frame.columns))))
    formless = [field.name for field in arrow_schema(rows.schema) if not has_form(field.type)]
    printable = as_texts(rows, formless).toArrow().rename_columns(frame.columns)
    count = frame.count()
    asked.print(Layout.of(folder, folder), printable, count, output_format)
    return int(count)
