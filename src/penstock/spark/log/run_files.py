"""Which runs hold the tuples of some log entries, for those who read them while others merge and remove."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from penstock.errors import CheckpointError
from penstock.operators.runs.run import Run
from penstock.spark.log.run_levels import run_path, segment_of
from penstock.spark.log.runs import open_run
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.layout import tuples_kind
from penstock.spark.storage.offsets import REMEDY

#: a file that is gone is looked for again so often: a merge has put it into a larger one
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True, eq=False)
class OpenRun:
    """A mapped run and the entries whose tuples are to be taken from it; it may hold those of others.

    Attributes:
        run: the run.
        after, until: the entries behind one and up to another: arguments of `Part.rows_of`.
    """

    run: Run
    after: int
    until: int


def open_runs(log: LogReader, demand: int, after: int, until: int) -> list[OpenRun]:
    """Maps what holds the tuples of the entries behind one and up to another: each tuple is taken from one run.

    Safe in any process beside the one that merges: what is open stays readable.

    Args:
        log: the stream's.
        demand: whose tuples.
        after: number of the first entry, which is left out; -1 for the beginning.
        until: number of the last one.

    Raises:
        CheckpointError: entries or their tuples are gone, or a file is damaged.
    """
    kind = tuples_kind(demand)
    folder = log.path(kind, "")
    found: list[OpenRun] = []
    #: the merged run that was taken from last, and its place in `found`
    path, run, place = folder, None, 0
    number, attempts = after + 1, 0
    while number <= until:
        try:
            paths = [_path(folder, name) for name in log.entry(number).files.get(kind, ())]
            own = [(each, run if run is not None and each == path else open_run(each)) for each in paths]
        except FileNotFoundError as error:
            # the entry may be in a segment by now, its tuples in the segment's run, and those in a larger one
            attempts += 1
            if attempts == _ATTEMPTS:
                raise CheckpointError(f"the tuples in {error.filename} are missing; {REMEDY}") from error
            continue
        for each, opened in own:
            if opened is run:
                # nothing in between was taken from another: a merge may be at work between two looks
                found[place] = replace(found[place], until=number)
                continue
            found.append(OpenRun(opened, number - 1, number))
            if opened.entries is not None:
                path, run, place = each, opened, len(found) - 1
        number, attempts = number + 1, 0
    return found


def _path(folder: Path, name: str) -> Path:
    segment = segment_of(name)
    return folder / name if segment is None else run_path(folder, segment)
