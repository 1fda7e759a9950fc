"""Rows as tables on a terminal or in a pipe."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

#: columns of text where no terminal sets a limit
_UNLIMITED = 100_000


def table_console() -> Console:
    """A console as wide as its terminal; in a pipe or file as wide as its tables, where COLUMNS says nothing else."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=_UNLIMITED)


def print_rows(console: Console, rows: pa.Table, title: str) -> None:
    """Prints rows as a table, whatever their text; as records where the columns do not fit beside each other."""
    from penstock.spark.results.texts import shown_texts

    table = Table(*map(escape, rows.column_names), title=escape(title))
    columns = map(shown_texts, rows.columns)
    shown = [list(map(escape, cells)) for cells in zip(*columns, strict=True)]
    for cells in shown:
        table.add_row(*cells)
    unlimited = console.options.update(max_width=_UNLIMITED)
    if Measurement.get(console, unlimited, table).minimum <= console.width:
        console.print(table)
        return
    records = Table("row", "column", Column("value", overflow="fold"), title=escape(title))
    for number, cells in enumerate(shown, 1):
        for column, cell in zip(rows.column_names, cells, strict=True):
            records.add_row(str(number), escape(column), cell)
        records.add_section()
    console.print(records)
