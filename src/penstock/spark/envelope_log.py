"""The envelope log of a stream: what the ingest query hands to the keyed query, in order.

An entry is one small JSON file, put if absent once its batch is published; it names the batch's
envelope files and carries what every shard must know. Entry `<batch>.0` is that of the batch; control entries
`<batch>.1`, `<batch>.2` ... follow it while no data come (idle time, the word to answer everything now, the end of
the stream). The keyed query's
state is a function of the entries alone.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import CheckpointError
from penstock.operators.shard import Envelope, KeyedProgram
from penstock.spark.files import put_json_if_absent, read_json
from penstock.spark.layout import Layout
from penstock.spark.offsets import REMEDY

#: columns of an envelope file
SHARD, OPERATOR, KIND, PAYLOAD = "shard", "operator", "kind", "payload"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry of the log.

    Attributes:
        batch, mark: its place: entries are ordered by both.
        plan: the plan version the batch is bound to.
        newest: largest event time seen up to here, microseconds, or None; tuples too far ahead to be believed aside.
        delays: delays of some tuples of the batch, microseconds, the largest among them.
        ended: whether the stream has ended.
        files: names of the batch's envelope files.
        flush: whether late tuples of answered windows are corrected now, however few.
        whole: operators whose partials in `files` are those of all batches before their first one.
        furthest: largest event time of any tuple in the envelopes up to here, or None.
        reached: the event time a silent stream is taken to have come to; None: `newest`.
        answer_all: whether every window with tuples is answered now: what is there is all there is for now.
    """

    batch: int
    mark: int
    plan: int
    newest: int | None
    delays: tuple[int, ...]
    ended: bool
    files: tuple[str, ...]
    flush: bool = False
    whole: tuple[int, ...] = ()
    furthest: int | None = None
    reached: int | None = None
    answer_all: bool = False

    @property
    def reached_or_newest(self) -> int | None:
        """The event time the stream has come to, or is taken to have come to; None before any."""
        return max((each for each in (self.reached, self.newest) if each is not None), default=None)

    @property
    def name(self) -> str:
        """Its file's name."""
        return entry_name(self.batch, self.mark)


def entry_name(batch: int, mark: int) -> str:
    """The file's name of the entry at a place; names sort as places do."""
    return f"{batch:010d}.{mark:010d}.json"


class EnvelopeLog:
    """The log of one stream."""

    def __init__(self, layout: Layout, stream: str) -> None:
        self.folder = layout.log(stream)
        self.envelopes = layout.envelopes(stream)
        self._programs = layout.keyed(stream)
        for folder in (self.folder, self.envelopes, self._programs):
            folder.mkdir(parents=True, exist_ok=True)

    def put(self, entry: LogEntry) -> bool:
        """Appends an entry; False where its place is taken, by a run before this one."""
        return put_json_if_absent(self.folder / entry.name, asdict(entry))

    def newest(self) -> LogEntry | None:
        """The last entry, or None."""
        names = sorted(path.name for path in self.folder.glob("*.json") if not path.name.startswith("."))
        return read_entry(self.folder / names[-1]) if names else None

    def between(self, after: str, until: LogEntry) -> list[LogEntry]:
        """The entries behind one and up to another, in order; no more of the log is looked at.

        Args:
            after: name of the first one, which is left out; "" for the beginning.
            until: the last one.

        Raises:
            CheckpointError: an entry between them is gone.
        """
        if until.name <= after:
            return []
        found = [until]
        for entry in self.backwards(until):
            if entry.name <= after:
                return found[::-1]
            found.append(entry)
        if after:
            raise CheckpointError(
                f"the log in {self.folder} has lost entries between {after} and {found[-1].name}"
            )
        return found[::-1]

    def backwards(self, entry: LogEntry) -> Iterator[LogEntry]:
        """The entries before one, the newest first: batches follow each other without a gap."""
        while (before := self._before(entry)) is not None:
            yield before
            entry = before

    def _before(self, entry: LogEntry) -> LogEntry | None:
        if entry.mark:
            return read_entry(self.folder / entry_name(entry.batch, entry.mark - 1))
        mark = 0
        while (self.folder / entry_name(entry.batch - 1, mark)).exists():
            mark += 1
        return read_entry(self.folder / entry_name(entry.batch - 1, mark - 1)) if mark else None

    def store_program(self, program: KeyedProgram) -> None:
        """Stores the window views of a plan version, before any batch is bound to it."""
        path = self._programs / f"{program.version}.json"
        put_json_if_absent(path, {"program": pickle.dumps(program).hex()})

    def program(self, version: int) -> KeyedProgram | None:
        """The window views of a plan version, None where it has none.

        Raises:
            CheckpointError: it cannot be read.
        """
        document = read_json(self._programs / f"{version}.json")
        if document is None:
            return None
        try:
            program: KeyedProgram = pickle.loads(bytes.fromhex(document["program"]))
        except (AttributeError, ImportError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the window views of plan version {version} were stored by another version of Penstock; "
                "start with a new checkpoint and a new output folder"
            ) from error
        return program


def read_entry(path: Path) -> LogEntry:
    """Reads an entry.

    Raises:
        CheckpointError: it is gone, though it is never removed while it is needed.
    """
    document = read_json(path)
    if document is None:
        raise CheckpointError(f"the entry {path} of the log is missing; {REMEDY}")
    lists = {name: tuple(document[name]) for name in ("delays", "files", "whole")}
    return LogEntry(**{**document, **lists})


def read_envelopes(paths: Iterable[Path], shard: int) -> Iterator[Envelope]:
    """The envelopes of one shard; row groups that their statistics show to hold none are not read."""
    for path in paths:
        with pq.ParquetFile(path) as file:
            groups = [
                number
                for number in range(file.num_row_groups)
                if _may_hold(file.metadata.row_group(number), shard)
            ]
            if not groups:
                continue
            table = file.read_row_groups(groups, [SHARD, OPERATOR, KIND, PAYLOAD], use_threads=False)
        own = table.filter(pc.equal(table.column(SHARD), pa.scalar(shard, table.schema.field(SHARD).type)))
        for row in own.to_pylist():
            yield Envelope(row[OPERATOR], row[KIND], row[PAYLOAD])


def _may_hold(group: Any, shard: int) -> bool:
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == SHARD:
            statistics = column.statistics
            return (
                statistics is None or not statistics.has_min_max or statistics.min <= shard <= statistics.max
            )
    return True
