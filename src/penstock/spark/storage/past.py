"""What a streaming query has read so far, from Spark's own checkpoint, so that it can be read again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from penstock.errors import PenstockError
from penstock.spark.storage.store_paths import StorePath

#: bytes of files that are read in one job, so that the stream's own jobs come in between
_PORTION_BYTES = 128 << 20

#: offsets by topic and partition
Offsets = dict[str, dict[str, int]]


class CannotReadAgainError(PenstockError):
    """A source has no more of what a stream read before; the message says what and why."""


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file that a file stream has read.

    Attributes:
        uri: as Spark's file log has it, URL-encoded.
        modified: when it was modified, milliseconds since the epoch.
        batch: number of the log's entry.
    """

    uri: str
    modified: int
    batch: int

    @property
    def path(self) -> str:
        """As Spark's readers take it."""
        return unquote(self.uri)

    def size(self) -> int:
        """Bytes; 0 where the file is not on a local or shared file system.

        Raises:
            CannotReadAgainError: it is gone, or is not the one that was read.
        """
        parsed = urlparse(self.uri)
        if parsed.scheme not in ("", "file"):
            return 0
        local = Path(unquote(parsed.path))
        try:
            found = local.stat()
        except OSError as error:
            raise CannotReadAgainError(f"file {local} does not exist any more") from error
        if found.st_mtime_ns // 1_000_000 != self.modified:
            raise CannotReadAgainError(f"file {local} changed after Penstock read it")
        return found.st_size


@dataclass(frozen=True, slots=True)
class Past:
    """The batches of a stream before one.

    Attributes:
        checkpoint: Spark's, of the ingest query.
        batch: the first batch that is not among them.
        offset: how far the source had been read then, as Spark's checkpoint has it.
        is_needed: whether one of the batches up to a number may have brought tuples that are wanted.
    """

    checkpoint: StorePath
    batch: int
    offset: str
    is_needed: Callable[[int], bool]

    def files(self) -> Iterator[list[str]]:
        """The paths of the files that were read, some at a time.

        Raises:
            CannotReadAgainError: one of them is gone or was changed, before it is given or after.
        """
        portion: list[SeenFile] = []
        held = 0
        # the log's entries may run ahead of the batches, never behind them
        every = [file for file in self._logged() if self.is_needed(file.batch)]
        for file in every:
            size = file.size()
            if portion and held + size > _PORTION_BYTES:
                yield [file.path for file in portion]
                portion, held = [], 0
            portion.append(file)
            held += size
        if portion:
            yield [file.path for file in portion]
        for file in every:
            file.size()

    def partitions(self) -> tuple[Offsets, Offsets]:
        """Of a Kafka stream the first offset and the offset after the last one, by topic and partition.

        Raises:
            CannotReadAgainError: the checkpoint says neither.
        """
        until: Offsets = json.loads(self.offset)
        begun = self._begun()
        # a partition that came later was read from its beginning
        return {
            topic: {partition: max(begun.get(topic, {}).get(partition, 0), 0) for partition in partitions}
            for topic, partitions in until.items()
        }, until

    def _begun(self) -> Offsets:
        for number in range(self.batch - 2, -1, -1):
            offset = read_offset(self.checkpoint, number)
            if offset is None:
                break
            if not self.is_needed(number):
                newest: Offsets = json.loads(offset)
                return newest
        try:
            content = (self.checkpoint / "sources" / "0" / "0").read_text()
        except OSError as error:
            raise CannotReadAgainError(f"the offsets at which the stream began: {error}") from error
        first: Offsets = json.loads(content[content.index("{") :])
        return first

    def _logged(self) -> list[SeenFile]:
        """The files of the file log up to `offset`, in the order in which they were read."""
        folder = self.checkpoint / "sources" / "0"
        until = int(json.loads(self.offset)["logOffset"])
        compacted = [int(path.stem) for path in folder.glob("[0-9]*.compact")]
        last = max((number for number in compacted), default=-1)
        paths = [folder / f"{last}.compact"] if compacted else []
        paths += [
            folder / str(number)
            for number in sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
            if number > last
        ]
        found = []
        for path in paths:
            for line in path.read_text().splitlines()[1:]:
                entry = json.loads(line)
                if entry["batchId"] <= until:
                    found.append(SeenFile(entry["path"], entry["timestamp"], entry["batchId"]))
        return found


def offsets_of_batch(checkpoint: StorePath, batch: int) -> tuple[Offsets, Offsets] | None:
    """Of a Kafka stream the first offset of a batch and the one after its last, by topic and partition.

    Args:
        checkpoint: Spark's, of the ingest query.
        batch: its number, planned by Spark.

    Returns:
        None where the checkpoint does not say, or is of another source.
    """
    until = read_offset(checkpoint, batch)
    if until is None or not all(isinstance(each, dict) for each in json.loads(until).values()):
        return None
    try:
        return Past(checkpoint, batch + 1, until, lambda number: number == batch).partitions()
    except CannotReadAgainError:
        return None


def portions(first: Offsets, until: Offsets, most: int) -> Iterator[tuple[Offsets, Offsets]]:
    """Divides ranges of offsets evenly, so that jobs of others come in between.

    Args:
        first, until: the first offset and the offset after the last one, by topic and partition.
        most: records that a portion has at most, but for one of each partition.

    Yields:
        The like, one after the other.
    """
    held = sum(
        end - first[topic][partition]
        for topic, partitions in until.items()
        for partition, end in partitions.items()
    )
    number = max(1, -(-held // most))

    def at(portion: int) -> Offsets:
        return {
            topic: {
                partition: begin + (until[topic][partition] - begin) * portion // number
                for partition, begin in partitions.items()
            }
            for topic, partitions in first.items()
        }

    for portion in range(number):
        yield at(portion), at(portion + 1)


def read_offset(checkpoint: StorePath, batch: int) -> str | None:
    """How far the one source of a streaming query had been read with a batch, as Spark wrote it; None if it is gone.

    Args:
        checkpoint: the query's.
        batch: its number.
    """
    try:
        lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    except FileNotFoundError:
        return None
    # a version, what Spark knows of the batch, and a line for each source
    return lines[2] if len(lines) == 3 and lines[2] != "-" else None
