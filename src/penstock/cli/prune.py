"""`penstock prune`: delete old rows of a results folder that no run uses."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.common import TextFormat


def prune(
    folder: Annotated[str, typer.Argument(help="Results folder.", metavar="DIR")],
    older_than: Annotated[
        str,
        typer.Option(help="Delete rows that were published longer ago, such as '30 days'.", metavar="LENGTH"),
    ],
    name: Annotated[
        str | None,
        typer.Argument(help="Stream, window or join view. Default: all.", metavar="NAME"),
    ] = None,
    past_sinks: Annotated[
        bool, typer.Option("--past-sinks", help="Also delete rows that a sink has not delivered.")
    ] = False,
    now: Annotated[
        bool,
        typer.Option("--now", help="Delete the files at once: programs that are reading them may fail."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be deleted.")] = False,
    output_format: Annotated[
        TextFormat, typer.Option("--format", help="Output format: text or json.")
    ] = TextFormat.TEXT,
) -> None:
    """Delete old rows of a results folder that no run uses, by whole files, and print how many."""
    from penstock.monitor.figures import counted
    from penstock.monitor.verification import whole_layout
    from penstock.settings import Settings
    from penstock.spark.pruning import prune as delete
    from penstock.sql.script.statements import Retain

    seconds = Retain.of(older_than, what="--older-than").seconds
    grace = Settings().replaced_seconds
    found = delete(
        whole_layout(folder),
        seconds,
        name,
        past_sinks=past_sinks,
        now=now,
        grace_seconds=grace,
        only_tell=dry_run,
    )
    if output_format is TextFormat.JSON:
        for each in found:
            print(json.dumps({"name": each.name, **asdict(each)}))
        return
    for each in found:
        if each.files:
            done = "would be deleted" if dry_run else "deleted"
            print(
                f"{each.name}: {counted(each.rows, 'row')} of {each.told['rows_of']} in {counted(each.files, 'file')}, "
                f"{counted(each.bytes, 'byte')}, {done}"
            )
        if each.held:
            print(f"{each.name}: {counted(each.held, 'row')} remain, because of {', '.join(each.by)}")
    if not found:
        print(f"No file has only rows that were published more than {older_than} ago.")
    elif not (now or dry_run) and any(each.files for each in found):
        print(
            f"The next start, or the next `penstock prune`, deletes the files {grace:.0f} seconds from now; --now deletes them at once."
        )
