"""The window views of each plan version, as the ingest query tells them to those who answer them."""

from __future__ import annotations

from penstock.errors import CheckpointError
from penstock.operators.windows.shard import KeyedProgram
from penstock.spark.storage.codec import Codec
from penstock.spark.storage.formats import PROGRAM
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.offsets import REMEDY

_PROGRAMS = Codec(KeyedProgram)


def store_program(layout: Layout, stream: str, program: KeyedProgram) -> None:
    """Stores the window views of a plan version, before any batch is bound to it."""
    path = layout.keyed(stream) / f"{program.version}.json"
    PROGRAM.put(path, {"program": _PROGRAMS.document(program)})


def stored_program(layout: Layout, stream: str, version: int) -> KeyedProgram | None:
    """The window views of a plan version, None where it has none.

    Raises:
        CheckpointError: it cannot be read.
    """
    path = layout.keyed(stream) / f"{version}.json"
    document = PROGRAM.read(path)
    if document is None:
        return None
    try:
        return _PROGRAMS.value(document["program"])
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path}, {PROGRAM.kind}, is damaged: {error}; {REMEDY}") from error
