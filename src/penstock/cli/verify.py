"""`penstock verify`: whether all that a results folder and its checkpoint hold is there, and is what was written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.monitor.verification import Fault


class VerifyFormat(StrEnum):
    """How the findings are printed."""

    TEXT = "text"
    JSON = "json"


def verify(
    folder: Annotated[str, typer.Argument(help="Results folder.", metavar="DIR")],
    output_format: Annotated[
        VerifyFormat, typer.Option("--format", help="Output format: text or json.")
    ] = VerifyFormat.TEXT,
) -> None:
    """Read every file of a results folder and its checkpoint, and name the damaged ones. Exit code 1 if a file is lost."""
    from penstock.monitor import verification
    from penstock.monitor.figures import counted

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
            print(f"Process {found.writer} is writing to checkpoint {found.checkpoint}; it was not checked.")
        print(
            f"{counted(found.files, 'file')}, {counted(found.bytes, 'byte')} read: {_verdict(found.faults)}"
        )
    if found.faults:
        raise typer.Exit(1)


def _verdict(faults: Sequence[Fault]) -> str:
    if not faults:
        return "no damage found"
    return (
        f"{len(faults)} {'file is' if len(faults) == 1 else 'files are'} damaged. Restore them from a copy of the folder, or start "
        "with a new checkpoint and a new output folder: the new run reads everything that the source still has"
    )
