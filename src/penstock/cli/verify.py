"""`penstock verify`: whether all that a results folder and its checkpoint hold is there, and is what was written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.monitor.verification import Fault


class VerifyFormat(StrEnum):
    """How the findings are printed."""

    TEXT = "text"
    JSON = "json"


def verify(
    folder: Annotated[Path, typer.Argument(help="Results folder.", metavar="DIR")],
    output_format: Annotated[
        VerifyFormat, typer.Option("--format", help="text or json.")
    ] = VerifyFormat.TEXT,
) -> None:
    """Read every file of a results folder and its checkpoint, and say what is damaged: exit code 1 if a file is lost."""
    from penstock.monitor import verification

    found = verification.verify(folder)
    if output_format is VerifyFormat.JSON:
        told = {
            "output": str(found.output),
            "checkpoint": str(found.checkpoint),
            "writer": found.writer,
            "files": found.files,
            "bytes": found.bytes,
            "faults": [asdict(each) for each in found.faults],
        }
        print(json.dumps(told))
    else:
        for each in found.faults:
            print(f"{each.path} {each.fault}")
        if found.writer is not None:
            print(f"process {found.writer} writes to {found.checkpoint}: the checkpoint was not read")
        print(f"{found.files:,} files, {found.bytes:,} bytes read: {_said(found.faults)}")
    if not all(each.is_mended for each in found.faults):
        raise typer.Exit(1)


def _said(faults: Sequence[Fault]) -> str:
    mended = sum(each.is_mended for each in faults)
    damaged = len(faults) - mended
    told = "no damage found"
    if damaged:
        told = (
            f"{damaged} {'file is' if damaged == 1 else 'files are'} damaged; put them back from a copy of the folder, or start "
            "with a new checkpoint and a new output folder, which answers all that the source still has"
        )
    return f"{told}. Nothing is lost of {mended} more: the next start mends them" if mended else told
