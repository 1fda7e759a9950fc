"""`penstock files`: the published files of a results folder, for other readers of Parquet."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer


class FilesFormat(StrEnum):
    """How the files are printed."""

    TEXT = "text"
    JSON = "json"


def files(
    folder: Annotated[str, typer.Argument(help="Results folder.", metavar="DIR")],
    name: Annotated[str | None, typer.Argument(help="Stream or view. Default: all.", metavar="NAME")] = None,
    output_format: Annotated[
        FilesFormat,
        typer.Option("--format", help="Output format: text (a path a line) or json (an object a line)."),
    ] = FilesFormat.TEXT,
) -> None:
    """List the published files of a results folder, so that other programs read each row once, also during a run."""
    from penstock.monitor.published import published_files

    for each in published_files(folder, name):
        print(
            each.path
            if output_format is FilesFormat.TEXT
            else json.dumps({**asdict(each), "path": str(each.path)})
        )
