"""The paths of tables over files, checked before Spark starts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.errors import ConnectionFailedError
from penstock.spark.sources.patterns import is_pattern
from penstock.sql.script.mistakes import Mistakes
from penstock.sql.script.statements import CreateTable

FILE_SOURCES = ("parquet", "csv", "json", "orc", "text")


def check_paths(tables: Iterable[CreateTable], mistakes: Mistakes) -> None:
    """Make sure that the local paths of tables over files exist; `mistakes` takes in those that do not."""
    for table in tables:
        path = table.options.get("path")
        if path is not None and table.source.lower() in (*FILE_SOURCES, "replay"):
            with mistakes.collected(table.name):
                check_path(table, path)


def check_path(table: CreateTable, path: str) -> None:
    """Make sure that the path of a table exists, if it is local and no pattern.

    Raises:
        ConnectionFailedError: it does not.
    """
    if "://" not in path and not is_pattern(path) and not Path(path).exists():
        raise ConnectionFailedError(
            f"table {table.name}: path {path} does not exist. Create the folder, or correct the option path.",
            *table.at("path"),
        )
