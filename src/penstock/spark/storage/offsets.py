"""What a batch reads, as the checkpoint of Spark's streaming query has it: its offsets, and the files behind them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from penstock.errors import CheckpointError
from penstock.spark.storage.spark_files import last_lines, numbered
from penstock.spark.storage.store_paths import StorePath, modified_at
from penstock.stores.durable import sync_file, sync_folder

#: what to do where a checkpoint was set back
REMEDY = (
    "Penstock published nothing more. Restore the newest copy of the checkpoint folder, or start with a new checkpoint "
    "and a new output folder, which answers everything that the source still has"
)

#: of an offset log's file: a version and what Spark knows of the batch; then a line a source
_HEAD_LINES = 2


def offsets_digest(checkpoint: StorePath, batch: int) -> str | None:
    """Identifies the records of a batch: two batches with the same digest read the same.

    Of files it is their names and times that count, not the numbers by which Spark logs them. Clocks and settings,
    which Spark keeps beside the offsets, do not count.

    Args:
        checkpoint: the streaming query's.
        batch: its number, planned by Spark.

    Returns:
        A hex digest; None where Spark's checkpoint does not know the batch.

    Raises:
        CheckpointError: Spark's checkpoint knows the batch and not its files: Spark would read nothing for it.
    """
    ends = _sources(checkpoint, batch)
    if ends is None:
        return None
    starts = _sources(checkpoint, batch - 1) or [None] * len(ends)
    read = [
        _read(checkpoint / "sources" / str(number), start, end)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    return hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()


def planned_after(checkpoint: StorePath, batch: int) -> dict[str, Any] | None:
    """The newest batch that Spark has planned and that is not published.

    Args:
        checkpoint: the streaming query's.
        batch: the last published one; -1 before the first.

    Returns:
        `batch`, `planned` (seconds since the epoch) and `files`, how many it reads (None where its sources are no files
        or cannot be told); None where there is no such batch.
    """
    try:
        newest = max(numbered(checkpoint / "offsets", ""))
        planned = modified_at(checkpoint / "offsets" / str(newest))
        ends = _sources(checkpoint, newest)
    except (OSError, ValueError):
        return None
    if newest <= batch or ends is None:
        return None
    files: int | None = None
    try:
        starts = _sources(checkpoint, newest - 1) or [None] * len(ends)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            log = checkpoint / "sources" / str(number)
            if log.is_dir():
                for each in _numbers(start, end):
                    files = (files or 0) + len(_files(log, each))
    except (OSError, ValueError, CheckpointError):
        files = None
    return {"batch": newest, "planned": planned, "files": files}


class PlannedBatches:
    """Makes what Spark has planned last through a power cut, which Spark does not: a published batch can be repeated.

    Args:
        checkpoint: the streaming query's.
    """

    def __init__(self, checkpoint: StorePath) -> None:
        self._checkpoint = checkpoint
        self._lasting: set[Path] = set()

    def sync(self, batch: int) -> None:
        """Syncs what a batch reads, the names of that, and that the batch before is done; an object store has no need of it.

        Args:
            batch: its number, planned by Spark.
        """
        if not isinstance(self._checkpoint, Path):
            return
        found = [self._checkpoint / "offsets" / str(batch), self._checkpoint / "commits" / str(batch - 1)]
        ends = _sources(self._checkpoint, batch) or []
        starts = _sources(self._checkpoint, batch - 1) or [None] * len(ends)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            log = self._checkpoint / "sources" / str(number)
            found += [log / name for each in _numbers(start, end) for name in (str(each), f"{each}.compact")]
            if log not in self._lasting:
                # where a source that logs no files began
                found.append(log / "0")
        if not self._lasting:
            found.append(self._checkpoint / "metadata")
        folders = dict.fromkeys(path.parent for path in found if path.exists())
        for path in found:
            for file in (path, path.with_name(f".{path.name}.crc")):
                if file.exists():
                    sync_file(file)
        for folder in list(folders):
            if folder not in self._lasting:
                top = self._checkpoint.parent.parent
                folders.update(dict.fromkeys(each for each in folder.parents if each.is_relative_to(top)))
        for folder in folders:
            sync_folder(folder)
        self._lasting.update(folders)


def files_of_batch(checkpoint: StorePath, batch: int) -> list[str] | None:
    """The files of a batch of a query with one file source, as Spark's readers take their names.

    Args:
        checkpoint: the streaming query's.
        batch: its number, planned by Spark.

    Returns:
        The paths; None where the source is none of files, or what was read before the batch is not known.

    Raises:
        CheckpointError: the log of the files is not whole.
    """
    times = times_of_batch(checkpoint, batch)
    return None if times is None else list(times)


def times_of_batch(checkpoint: StorePath, batch: int) -> dict[str, int] | None:
    """The like, with the time of each file's last modification as Spark planned it, milliseconds since the epoch."""
    ends, starts = _sources(checkpoint, batch), _sources(checkpoint, batch - 1) if batch else [None]
    if ends is None or starts is None or len(ends) != 1 or len(starts) != 1:
        return None
    end = ends[0]
    if not isinstance(end, dict) or end.keys() != {"logOffset"}:
        return None
    read = _read(checkpoint / "sources" / "0", starts[0], end)
    return {unquote(path): time for path, time in read if isinstance(path, str)}


def planned_at(checkpoint: StorePath, batch: int) -> int:
    """When Spark planned a batch, milliseconds since the epoch: what `current_timestamp()` is in it.

    Args:
        checkpoint: the streaming query's.
        batch: its number, planned by Spark.
    """
    known: int = json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[1])[
        "batchTimestampMs"
    ]
    return known


def _sources(checkpoint: StorePath, batch: int) -> list[Any] | None:
    """How far each source has been read with a batch."""
    try:
        lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    except FileNotFoundError:
        return None
    return [_plain(line) for line in lines[_HEAD_LINES:]]


def _plain(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line


def _read(log: StorePath, start: Any, end: Any) -> Any:
    """What lies between two offsets of a source: (path, time) of files, else the offsets themselves."""
    if not isinstance(end, dict) or end.keys() != {"logOffset"} or not log.is_dir():
        return [start, end]
    return sorted(file for number in _numbers(start, end) for file in _files(log, number))


def _numbers(start: Any, end: Any) -> range:
    """The batches of a file source's log that lie between two offsets; none where the source logs no files."""
    if not isinstance(end, dict) or end.keys() != {"logOffset"}:
        return range(0)
    return range(start["logOffset"] + 1 if isinstance(start, dict) else 0, end["logOffset"] + 1)


def _files(log: StorePath, number: int) -> list[tuple[str, int]]:
    """The files that one batch of a file source's log adds."""
    # a compacted log begins with all that came before
    wanted = f'"batchId":{number}}}'.encode()
    for name in (str(number), f"{number}.compact"):
        try:
            lines = list(takewhile(lambda line: line.endswith(wanted), last_lines(log / name)))
        except FileNotFoundError:
            continue
        entries = [json.loads(line) for line in reversed(lines)]
        return [(entry["path"], entry["timestamp"]) for entry in entries]
    raise CheckpointError(f"{log / str(number)} is missing, which lists the files of a batch; {REMEDY}")


def refuse_others(
    stream: str, figures: Mapping[str, Any], offsets: str | None, checkpoint: StorePath
) -> None:
    """Makes sure that a published batch which Spark repeats has the records it was published with.

    Args:
        stream: the stream's name.
        figures: what the manifest says of the batch.
        offsets: what the batch reads now.
        checkpoint: the streaming query's.

    Raises:
        CheckpointError: it has others: they would be taken for answered.
    """
    known = figures.get("offsets")
    if known is not None and offsets is not None and known != offsets:
        raise CheckpointError(
            f"stream {stream}: batch {figures['batch']} was published, but Spark now reads other records for it: "
            f"{checkpoint} was restored from an older copy, or files are missing; {REMEDY}"
        )
