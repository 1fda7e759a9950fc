"""The small files of a segment become one a kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import merge_envelopes
from penstock.spark.log.run_levels import run_name
from penstock.spark.log.runs import merge_run_files
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.files import sync_folder
from penstock.spark.storage.layout import PARTIALS_FILES, TUPLES_FILES, VALUES_FILES


@dataclass(frozen=True, slots=True)
class Merging:
    """How a segment's files of a kind become one.

    Attributes:
        merge: makes one of several, each with the number of its entry.
        name: gives its name.
        most_bytes: of a file that is merged; larger ones stay as they are.
        fewest: so many files are worth it.
    """

    merge: Callable[[Sequence[tuple[int, Path]], Path], None]
    name: Callable[[int], str]
    most_bytes: int
    fewest: int


_ENVELOPES = Merging(merge_envelopes, "segment-{:010d}.parquet".format, 1 << 20, 2)
#: by kind; files of other kinds stay as they are for as long as their entries
MERGINGS: Mapping[str, Merging] = {
    PARTIALS_FILES: _ENVELOPES,
    VALUES_FILES: _ENVELOPES,
    # one alone, too: what is named like this is merged further
    TUPLES_FILES: Merging(merge_run_files, partial(run_name, 0), 4 << 20, 1),
}


def with_merged(
    log: LogReader, segment: int, kind: str, entries: Sequence[Entry]
) -> tuple[list[Entry], Sequence[str]]:
    """Merges the small files of a kind that a segment's entries name.

    Args:
        log: the log.
        segment: its number.
        kind: of the files.
        entries: the segment's, in order.

    Returns:
        The entries with the one file, durable, in place of the small ones, and the names of these; the entries as they are
        where nothing is to be merged.

    Raises:
        OSError, CheckpointError, pyarrow.ArrowException: a file cannot be read or written; there is no merged one then.
    """
    merging = MERGINGS.get(kind.partition("/")[0])
    if merging is None:
        return list(entries), ()
    small = {
        (entry.number, name): log.path(kind, name)
        for entry in entries
        for name in entry.files.get(kind, ())
        if log.path(kind, name).stat().st_size <= merging.most_bytes
    }
    if len(small) < merging.fewest:
        return list(entries), ()
    target = log.path(kind, merging.name(segment))
    try:
        merging.merge([(number, path) for (number, _), path in small.items()], target)
        sync_folder(target.parent)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    changed = []
    for entry in entries:
        names = entry.files.get(kind, ())
        large = tuple(name for name in names if (entry.number, name) not in small)
        if len(large) < len(names):
            entry = replace(entry, files={**entry.files, kind: (*large, target.name)})
        changed.append(entry)
    return changed, [name for _, name in small]
