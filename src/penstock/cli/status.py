"""`penstock status` and `penstock quarantine`: report on a results folder from its files alone."""

from __future__ import annotations

import json
import sys
import time
from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.common import TextFormat

Folder = Annotated[str, typer.Argument(help="Results folder of a run.", metavar="DIR")]
_COLUMNS = ("batch", "reason", "origin", "record", "number", "time")
#: seconds that are spent on how many early answers were within their bound
_JUDGING_SECONDS = 2.0
_CLEAR = "\x1b[H\x1b[2J"


class RecordFormat(StrEnum):
    """How records are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def status(
    folder: Folder,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="All views, and the details of each stream and view.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every second until Ctrl-C.")] = False,
    without_matches: Annotated[
        bool, typer.Option("--without-matches", help="Only the selections that no tuple has matched.")
    ] = False,
    output_format: Annotated[
        TextFormat, typer.Option("--format", help="Output format: text or json (everything).")
    ] = TextFormat.TEXT,
) -> None:
    """Show the state of a run: problems first, then one line per stream and per view."""
    from penstock.monitor.folder import folder_layout, folder_status
    from penstock.monitor.overview import unmatched_lines
    from penstock.monitor.report import status_lines

    shown, judgements = "", None
    while True:
        document = folder_status(folder)
        if any((view.get("standing") or {}).get("promised") for view in document["views"].values()):
            # it loads pyarrow
            from penstock.page.judgements import Judgements

            judgements = judgements or Judgements()
            judgements.put(folder_layout(folder), document["views"], _JUDGING_SECONDS)
        text = (
            json.dumps(document)
            if output_format is TextFormat.JSON
            else "\n".join(
                unmatched_lines(document) if without_matches else status_lines(document, verbose=verbose)
            )
        )
        if text != shown:
            print(_CLEAR + text if watch and sys.stdout.isatty() else text, flush=True)
            shown = text
        if not watch:
            return
        try:
            time.sleep(1.0)
        except KeyboardInterrupt:
            return


def quarantine(
    folder: Folder,
    stream: Annotated[
        str | None,
        typer.Argument(
            help="Name of a stream or static table; default: the only stream.",
            metavar="[STREAM]",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="Most records to print; 0 prints all.", min=0)] = 20,
    output_format: Annotated[
        RecordFormat, typer.Option("--format", help="Output format: table, csv or json lines.")
    ] = RecordFormat.TABLE,
) -> None:
    """Print the records of a stream or static table that Penstock set aside, newest first."""
    from penstock.monitor.folder import (
        folder_layout,
        is_static_table,
        quarantined_records,
        quarantined_stream,
    )

    layout = folder_layout(folder)
    name = quarantined_stream(layout, stream)
    records = quarantined_records(layout, name, limit)
    if output_format is RecordFormat.JSON:
        for record in records:
            print(json.dumps(record, ensure_ascii=False))
    elif output_format is RecordFormat.CSV:
        from penstock.spark.results.texts import csv_line

        print(csv_line(_COLUMNS))
        for record in records:
            print(csv_line(None if record[name] is None else str(record[name]) for name in _COLUMNS))
    else:
        is_empty, part = True, "version" if is_static_table(layout, name) else "batch"
        for record in records:
            is_empty = False
            at = "" if record["time"] is None else f", {record['time']}"
            print(
                f"{record['number']}: {part} {record['batch']}{at} | {record['reason']} | {record['origin']}"
            )
            if record["record"] is not None:
                print(f"  {record['record']}")
        if is_empty:
            print(_why_none(folder, name))


def _why_none(folder: str, name: str) -> str:
    from penstock.monitor.figures import counted
    from penstock.monitor.folder import folder_status

    stream = folder_status(folder)["streams"].get(name, {})
    count = sum((stream.get("quarantined") or {}).values())
    if not count:
        return f"Penstock has set aside no records of {name}."
    return f"Penstock has set aside {counted(count, 'record')} of {name}, but their files were deleted."
