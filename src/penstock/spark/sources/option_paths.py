"""The paths of tables over files, checked before Spark starts."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from penstock.errors import ConnectionFailedError, InputError
from penstock.spark.sessions.file_systems import is_left_to_spark, object_address
from penstock.spark.sources.outside_values import filled
from penstock.spark.sources.patterns import is_pattern, listed_part
from penstock.sql.script.mistakes import Mistakes
from penstock.sql.script.statements import CreateTable

FILE_SOURCES = ("parquet", "csv", "json", "orc", "text")


def check_paths(tables: Iterable[CreateTable], mistakes: Mistakes) -> None:
    """Make sure that the paths of tables over files can be read; `mistakes` takes in those that cannot."""
    for table in tables:
        if "path" in table.options and table.source.lower() in (*FILE_SOURCES, "replay"):
            with mistakes.collected(table.name):
                check_path(table, filled(table).options["path"])


def check_path(table: CreateTable, path: str) -> None:
    """Make sure that the path of a table exists if it is local and no pattern, and can be listed if it is in an object store.

    What is left to Spark is not looked at.

    Raises:
        ConnectionFailedError: it does not, or cannot.
    """
    if is_left_to_spark(path):
        return
    if (address := object_address(listed_part(path))) is not None:
        try:
            has_files = address.has_objects()
        except InputError as error:
            raise ConnectionFailedError(f"table {table.name}: {error}", *table.at("path")) from error
        if not has_files:
            raise ConnectionFailedError(
                f"table {table.name}: {path} has no files yet. Add a file, or correct the option path.",
                *table.at("path"),
            )
    elif "://" not in path and not is_pattern(path) and not Path(path).exists():
        raise ConnectionFailedError(
            f"table {table.name}: path {path} does not exist. Create the folder, or correct the option path.",
            *table.at("path"),
        )


def stores_of(tables: Iterable[CreateTable]) -> list[str]:
    """Return the paths in object stores that tables over files read or write."""
    read = [
        table
        for table in tables
        if "path" in table.options and table.source.lower() in (*FILE_SOURCES, "replay")
    ]
    paths = []
    for table in read:
        # a value that cannot be filled in is a mistake of the table, which is found as it is opened
        with suppress(ConnectionFailedError):
            paths.append(filled(table).options["path"])
    return [path for path in paths if object_address(path) is not None]
