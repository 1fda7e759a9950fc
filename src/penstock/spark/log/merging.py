"""The small files of a segment become one a kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import envelope_bytes, merge_envelopes
from penstock.spark.log.run_levels import run_name
from penstock.spark.log.runs import merge_run_files
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.layout import PARTIALS_FILES, TUPLES_FILES, VALUES_FILES
from penstock.spark.storage.store_paths import StorePath, put_written, size_of

#: envelopes of a merged file: what their readers, and twice what the driver, has in memory
_ENVELOPE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Merging:
    """How a segment's files of a kind become one.

    Attributes:
        merge: makes one of several, each with the number of its entry.
        name: gives its name.
        is_named: whether entries name it; otherwise the ledger lists it by itself.
        size: bytes of a file once it is in memory.
        most_bytes: of a file that is merged, on disk; larger ones stay as they are.
        most_in_all: of those that become one, in memory; further ones stay as they are.
        fewest: so many files are worth it.
    """

    merge: Callable[[Sequence[tuple[int, StorePath]], Path], None]
    name: Callable[[int], str]
    is_named: bool
    size: Callable[[StorePath], int]
    most_bytes: int
    most_in_all: int
    fewest: int


_ENVELOPES = Merging(
    merge_envelopes, "segment-{:010d}.parquet".format, True, envelope_bytes, 1 << 20, _ENVELOPE_BYTES, 2
)


def mergings(run_bytes: int) -> Mapping[str, Merging]:
    """How files become one, by kind; files of other kinds stay as they are for as long as their entries.

    Args:
        run_bytes: no run of tuples is made of more.
    """
    # one alone, too: it is merged further
    runs = Merging(merge_run_files, partial(run_name, 0), False, size_of, 4 << 20, run_bytes, 1)
    return {PARTIALS_FILES: _ENVELOPES, VALUES_FILES: _ENVELOPES, TUPLES_FILES: runs}


def with_merged(
    log: LogReader, merging: Merging, segment: int, kind: str, entries: Sequence[Entry]
) -> tuple[list[Entry], Sequence[str]]:
    """Merges the small files of a kind that a segment's entries name.

    Args:
        log: the log.
        merging: how.
        segment: its number.
        kind: of the files.
        entries: the segment's, in order.

    Returns:
        The entries with the one file, durable, in place of the small ones, or without these if it is not named, and the names of
        these; the entries as they are where nothing is to be merged.

    Raises:
        OSError, CheckpointError, pyarrow.ArrowException: a file cannot be read or written; there is no merged one then.
    """
    small: dict[tuple[int, str], StorePath] = {}
    room = merging.most_in_all
    for number, name in ((entry.number, name) for entry in entries for name in entry.files.get(kind, ())):
        path = log.path(kind, name)
        if size_of(path) <= merging.most_bytes and (size := merging.size(path)) <= room:
            small[number, name] = path
            room -= size
    if len(small) < merging.fewest:
        return list(entries), ()
    target, sources = merging.name(segment), [(number, path) for (number, _), path in small.items()]
    put_written(log.log.files, f"{kind}/{target}", partial(merging.merge, sources))
    changed = []
    for entry in entries:
        names = entry.files.get(kind, ())
        large = tuple(name for name in names if (entry.number, name) not in small)
        if len(large) < len(names):
            files = {**entry.files, kind: (*large, target) if merging.is_named else large}
            entry = replace(entry, files={each: names for each, names in files.items() if names})
        changed.append(entry)
    return changed, [name for _, name in small]
