"""Files of kind `tuples` in a stream's log: sorted runs, mapped by those who read them."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from penstock.errors import CheckpointError
from penstock.operators.runs.run import Run, RunPlan, merge_runs, write_run
from penstock.spark.storage.files import sync_file
from penstock.spark.storage.offsets import REMEDY


def open_run(path: Path) -> Run:
    """Maps a run into memory. It stays readable for as long as it is held, whatever becomes of its name.

    Raises:
        FileNotFoundError: there is no such file: it was merged with others, and whoever named it is to be asked again.
        CheckpointError: it is no run, not a whole one, or of another format.
    """
    try:
        with pa.memory_map(os.fspath(path)) as file:
            return Run(file.read_buffer())
    except FileNotFoundError as error:
        # Arrow's own does not say which
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path)) from error
    except (ValueError, OSError) as error:
        raise CheckpointError(f"the tuples in {path} cannot be read: {error}; {REMEDY}") from error


def newest_of(path: Path) -> int | None:
    """The largest event time in a run, microseconds; None where it has none."""
    return max(
        (part.newest for part in open_run(path).parts.values() if part.newest is not None), default=None
    )


def write_run_file(path: Path, table: pa.Table, plan: RunPlan) -> None:
    """Writes tuples of one log entry as a run under a name nobody reads yet; its content is synced on return."""
    write_run(table, plan, os.fspath(path))
    sync_file(path)


def merge_run_files(sources: Sequence[tuple[int, Path]], target: Path) -> None:
    """Merges runs into one, which appears under its name whole and synced; the caller syncs the folder.

    Args:
        sources: the log entry of each, which counts where the run does not know it itself, and its path.
        target: the merged run's path.

    Raises:
        CheckpointError: a run cannot be read.
    """
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        merge_runs([(entry, open_run(path)) for entry, path in sources], os.fspath(beside))
        sync_file(beside)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
