"""The window views of each plan version, as the ingest query tells them to those who answer them.

They are needed for as long as the log has entries of the version. Of older versions those stay that are the last ones
to have some operator: so it is known for good up to where in the stream a view was answered that was dropped.
"""

from __future__ import annotations

from itertools import pairwise

from penstock.errors import DamagedError
from penstock.operators.windows.shard import WindowProgram
from penstock.spark.storage.codec import Codec
from penstock.spark.storage.formats import PROGRAM
from penstock.spark.storage.layout import Layout

_PROGRAMS = Codec(WindowProgram)


def store_program(layout: Layout, stream: str, program: WindowProgram) -> None:
    """Stores the window views of a plan version, before any batch is bound to it."""
    document = _PROGRAMS.document(program)
    if not program.running:
        # code of before knows of none
        del document["running"]
    PROGRAM.put(layout.programs(stream)[program.version], {"program": document})


def prune_programs(layout: Layout, stream: str, first: int, before: int) -> None:
    """Removes the window views of old plan versions, but for the last version of each operator.

    Args:
        layout: output and checkpoint folders.
        stream: the stream's name.
        first: the oldest version that is looked at: what was looked at once need not be again.
        before: the oldest version of which entries are kept, or readers have come no further.
    """
    versions = [version for version in layout.programs(stream).numbers() if first <= version <= before]
    operators = {version: operators_of(layout, stream, version) for version in versions}
    layout.programs(stream).remove(
        version for version, following in pairwise(versions) if operators[version] <= operators[following]
    )


def operators_of(layout: Layout, stream: str, version: int) -> frozenset[int]:
    """The operators of a plan version; of one that was removed those of the next one, which has them and maybe more."""
    program = stored_program(layout, stream, version)
    if program is None:
        later = (each for each in layout.programs(stream).numbers() if each > version)
        program = stored_program(layout, stream, next(later, version))
    return program.ids if program is not None else frozenset()


def refuse_lost_program(layout: Layout, stream: str, version: int) -> None:
    """Makes sure that the window views of the plan version are there that the newest entry of a log is of.

    Raises:
        DamagedError: they are missing.
    """
    path = layout.programs(stream)[version]
    if not path.exists():
        raise DamagedError(str(path), f"({PROGRAM.kind}) is missing")


def stored_program(layout: Layout, stream: str, version: int) -> WindowProgram | None:
    """The window views of a plan version, None where it has none.

    Raises:
        DamagedError: it is damaged.
    """
    path = layout.programs(stream)[version]
    document = PROGRAM.read(path)
    if document is None:
        return None
    try:
        return _PROGRAMS.value(document["program"])
    except ValueError as error:
        raise DamagedError(str(path), f"({PROGRAM.kind}) is damaged: {error}") from error
