"""Files of kind `tuples` in a stream's log: sorted runs, mapped by those who read them.

A run is an Arrow file with a checksum of it behind.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from penstock.errors import DamagedError
from penstock.operators.runs.run import Run, RunPlan, merge_runs, write_run
from penstock.spark.storage.store_paths import StorePath, opened
from penstock.stores.durable import checksum_of

_KIND = "tuples of a log"
#: what is behind a run: a mark, and the CRC-32 of what is before
_SEAL, _MAGIC = struct.Struct("<4sI"), b"PRUN"


def open_run(path: StorePath) -> Run:
    """Maps a run into memory. It stays readable for as long as it is held, whatever becomes of its name.

    Raises:
        DamagedError: it is missing, is no run, not a whole one, or of another format.
    """
    return _open(path)[0]


def check_run(path: StorePath) -> None:
    """Reads all of a run.

    Raises:
        DamagedError: as `open_run`, or it is not what was written.
    """
    with opened(path) as local:
        _, checksum, size = _open(path)
        if checksum_of(local, size) != checksum:
            raise DamagedError(str(path), f"({_KIND}) is damaged: its content does not match its checksum")


def _open(path: StorePath) -> tuple[Run, int, int]:
    """A run, its checksum, and of how many bytes that is."""
    try:
        with opened(path) as local, pa.memory_map(os.fspath(local)) as file:
            whole = file.read_buffer()
        size = whole.size - _SEAL.size
        magic, checksum = _SEAL.unpack(whole.slice(size)) if size >= 0 else (b"", 0)
        run = Run(whole.slice(0, size)) if magic == _MAGIC else None
    except FileNotFoundError:
        raise DamagedError(str(path), f"({_KIND}) is missing") from None
    except (ValueError, OSError) as error:
        raise DamagedError(str(path), f"({_KIND}) cannot be read: {error}") from error
    if run is None:
        raise DamagedError(str(path), f"({_KIND}) is damaged: it does not end with a checksum")
    return run, checksum, size


def newest_of(path: StorePath) -> int | None:
    """The largest event time in a run, microseconds; None where it has none."""
    return max(
        (part.newest for part in open_run(path).parts.values() if part.newest is not None), default=None
    )


def write_run_file(path: Path, table: pa.Table, plan: RunPlan) -> None:
    """Writes tuples of one log entry as a run under a name nobody reads yet; whoever gives it its own name syncs it."""
    write_run(table, plan, os.fspath(path))
    _seal(path)


def merge_run_files(sources: Sequence[tuple[int, StorePath]], target: Path) -> None:
    """Merges runs into one under a name nobody reads yet.

    Args:
        sources: the log entry of each, which counts where the run does not know it itself, and its path.
        target: the merged run's path.

    Raises:
        DamagedError: a run cannot be read.
    """
    merge_runs([(entry, open_run(path)) for entry, path in sources], os.fspath(target))
    _seal(target)


def _seal(path: Path) -> None:
    """Writes the checksum behind a run."""
    checksum = checksum_of(path)
    with path.open("ab") as file:
        file.write(_SEAL.pack(_MAGIC, checksum))
