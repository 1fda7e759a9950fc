"""What looks wrong in a table beside its files: a sample of them is read without Spark, when the table is declared."""

from __future__ import annotations

from penstock.spark.sources.csv_checks import csv_warnings
from penstock.spark.sources.event_formats import Reads, time_warnings
from penstock.spark.sources.json_checks import json_warnings
from penstock.spark.sources.parquet_checks import parquet_event_times, parquet_warnings
from penstock.spark.sources.reader_options import known_options, plain_option
from penstock.spark.sources.sampled_files import has_no_files, sample
from penstock.sql.script.statements import CreateTable

_CHECKED = ("csv", "json", "parquet", "orc", "text")


def table_warnings(table: CreateTable, reads: Reads | None = None, *, is_static: bool = False) -> list[str]:
    """What is allowed and seldom meant in the declaration of a stream or static table.

    Args:
        table: a declaration whose path exists.
        reads: asks Spark whether a pattern fits; None: patterns of event times are not checked.
        is_static: whether it is a static table.

    Returns:
        A text each: a folder without files, columns that no record has, columns in another order or number than a CSV file's,
        columns of Parquet files whose type is not read as the declared one, numbers in JSON that are no moments as they are read,
        event times that their format does not fit, options that nobody knows. Files that cannot be read are passed over: reading them is the run's business.
    """
    options = {plain_option(name): value for name, value in table.options.items()}
    found = _unknown_options(table)
    kind = options.get("format", "parquet") if table.source == "replay" else table.source
    if not table.columns or "path" not in options or kind not in _CHECKED:
        return found
    try:
        if has_no_files(options["path"]):
            waits = "a join with the table" if is_static else "the stream"
            return [*found, f"{options['path']} has no files yet; {waits} waits for the first one"]
        files = sample(options["path"])
        if kind == "csv":
            for file in files[:1]:
                found += csv_warnings(table, file, options, reads)
        elif kind == "json":
            found += json_warnings(table, files, options, reads)
        elif kind == "parquet":
            found += parquet_warnings(table, files)
            if files and "eventtimeformat" in options and "eventtime" in options:
                found += time_warnings(
                    files[0], parquet_event_times(files, options["eventtime"]), options, reads
                )
    except Exception:  # whatever a file holds, it is the run's business
        return found
    return found


def _unknown_options(table: CreateTable) -> list[str]:
    if table.source not in ("csv", "json", "parquet", "orc", "text", "kafka", "rate", "replay"):
        return []
    known = known_options(table.source, table.options.get("format"))
    return [
        f"option {name} is unknown to Penstock and to Spark's reader of {table.source}; check its spelling"
        for name in table.options
        if plain_option(name) not in known and not name.startswith(("kafka.", "spark."))
    ]
