"""The log of a stream: what its ingest query hands to everything behind it, in order.

An entry is a file of its own, put if absent under its number once its batch is published; later it is in the file of
its segment. Nothing is listed to follow the log: whether there is one more entry is one look at a name.
The answers of every reader are a function of the entries alone.

One writer puts entries, makes segments and removes what is too old (`StreamLog`); any number of readers in any process
read (`LogReader`), and say how far they have come.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import CheckpointError, DamagedError
from penstock.spark.log.entries import Entry
from penstock.spark.storage.documents import put_json_if_absent, read_json
from penstock.spark.storage.files import make_folder, numbered
from penstock.spark.storage.formats import LOG_ENTRY, LOG_KEPT, LOG_READER, LOG_SEGMENT
from penstock.spark.storage.names import from_disk, on_disk
from penstock.spark.storage.offsets import REMEDY

#: entries of a segment
SEGMENT = 64
#: what a reader with windows tells beside its mark: of tuples before it all windows are final, microseconds,
#: those of the views of a plan version
FINAL, PLAN = "final", "plan"
#: what a reader tells that reads tuples again: the first entry of which it may
SINCE = "since"
#: what a reader tells until it knows that the entries it begins with are kept, and then until it puts a mark of its own
JOINING, JOINED = "joining", "joined"


@dataclass(frozen=True, slots=True)
class Kept:
    """How far back a log goes.

    Attributes:
        first: number of the first entry that is kept.
        before: windows that begin before it, microseconds, may lack tuples in what is kept; None: none does. Entries
            say it as `kept_before`; for a reader that joins later it is at least what is said here as it does.
        since: what is before this entry goes as soon as no reader reads its tuples again.
        lacks: by demand: of its tuples, those with an event time before this, microseconds, may lack from `since` on.
    """

    first: int = 0
    before: int | None = None
    since: int = 0
    lacks: Mapping[int, int] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Kept:
        """Of a document as `document` gave it; those of before tuples were read again do not say since when."""
        first = document["first"]
        lacks = {int(demand): moment for demand, moment in document.get("lacks", {}).items()}
        return cls(first, document["before"], document.get("since", first), lacks)


class LogReader:
    """Reads the log of one stream; safe beside its writer, in any process, and in several threads.

    Args:
        folder: the log's.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: what is remembered, each replaced as a whole: an entry that there is, and the segment read last
        self._known = -1
        self._segment: tuple[int, tuple[Entry, ...]] = -1, ()

    def path(self, kind: str, name: str) -> Path:
        """Where a file lies that an entry names."""
        return self.folder / "files" / kind / name

    def kept(self) -> Kept:
        """How far back the log goes."""
        document = LOG_KEPT.read(self.kept_path)
        return Kept() if document is None else Kept.of(document)

    @property
    def first(self) -> int:
        """Number of the first entry that is kept."""
        return self.kept().first

    def has(self, number: int) -> bool:
        """Whether an entry has been put."""
        return self.entry_path(number).exists() or self.segment_path(number // SEGMENT).exists()

    def ahead(self, reader: str, after: int, most: int) -> int:
        """How far a reader may go on now.

        Args:
            reader: who it is and of which stream, for messages.
            after: number of the last entry that it has taken; -1 where it begins with the first.
            most: it is to take no more entries than so many.

        Returns:
            Number of the last entry that it may take; `after` where none has been put behind that one yet.

        Raises:
            CheckpointError: what it is to take next is gone: the log begins behind it, or ends before `after`.
        """
        last = after
        while last < after + most and self.has(last + 1):
            last += 1
        # the newest entry is never removed, so that one is put yet where this one is there
        if last == after and not self.has(after):
            first, begins = self.first, after + 1
            if begins < first:
                raise _set_back(reader, begins, f"{self.folder} starts at entry {first}")
            if after >= 0 and not self.has(begins):
                raise _set_back(reader, begins, f"{self.folder} ends before entry {after}")
        return last

    def newest(self) -> Entry | None:
        """The last entry, or None.

        Raises:
            CheckpointError: entries before it are gone.
        """
        known = self._known
        while True:
            first = self.first
            if known < first:
                # nothing is known, or all of it was removed since the last call. The newest entry is never in a
                # segment alone, so that few names are listed, and seldom
                singles = numbered(self.folder / "entries")
                self._refuse_gaps(singles)
                known = max(singles, default=-1)
                if known < first and first:
                    raise CheckpointError(
                        f"the log in {self.folder} has lost entries: it starts at {first}, but has none; {REMEDY}"
                    )
            while self.has(known + 1):
                known += 1
            self._known = known
            if known < 0:
                return None
            if known >= self.first:
                return self.entry(known)

    def entry(self, number: int) -> Entry:
        """An entry.

        Raises:
            CheckpointError: it is gone, or was never put.
        """
        segment, entries = self._segment
        if segment == number // SEGMENT:
            return entries[number % SEGMENT]
        found = self._single(number) or self._of_segment(number) or self._single(number)
        if found is None:
            raise DamagedError(str(self.entry_path(number)), f"({LOG_ENTRY.kind}) is missing")
        return found

    def segment_number(self, number: int) -> int:
        """The number of the segment that an entry is in, or will be."""
        return number // SEGMENT

    def segment(self, segment: int) -> tuple[Entry, ...] | None:
        """The entries of a segment, in order; None where it is not made."""
        held, entries = self._segment
        if held == segment:
            return entries
        path = self.segment_path(segment)
        document = LOG_SEGMENT.read(path)
        if document is None:
            return None
        entries = tuple(Entry.of(each, path) for each in document["entries"])
        self._segment = segment, entries
        return entries

    def between(self, after: int, until: int) -> list[Entry]:
        """The entries behind one and up to another, in order; no more of the log is looked at.

        Args:
            after: number of the first one, which is left out; -1 for the beginning.
            until: number of the last one.

        Raises:
            CheckpointError: an entry between them is gone.
        """
        return [self.entry(number) for number in range(after + 1, until + 1)]

    def first_reaching(self, moment: int, after: int, until: int) -> int:
        """The first entry that may hold tuples with an event time not before some moment.

        Entries know the largest one of all tuples up to them (`Entry.furthest`), which only grows: that is searched for.

        Args:
            moment: microseconds.
            after: entries up to here are not looked at.
            until: nor those behind it.

        Returns:
            Its number; until + 1 where there is none.

        Raises:
            CheckpointError: an entry is gone.
        """
        low, high = after + 1, until + 1
        while low < high:
            middle = (low + high) // 2
            furthest = self.entry(middle).furthest
            if furthest is None or furthest < moment:
                low = middle + 1
            else:
                high = middle
        return low

    def backwards(self, number: int) -> Iterator[Entry]:
        """The entries before one that are kept, the newest first."""
        for each in range(number - 1, self.first - 1, -1):
            try:
                yield self.entry(each)
            except CheckpointError:
                if each < self.first:
                    # it was removed meanwhile, and all before it
                    return
                raise

    def marks(self) -> dict[str, int]:
        """How far each reader has come: number of the last entry it will never read again."""
        return {name: told["number"] for name, told in self.readers().items()}

    def mark(self, reader: str) -> int | None:
        """How far a reader has come; None where it has not joined, or was about to when it ended."""
        told = LOG_READER.read(self.reader_path(reader))
        return None if told is None or JOINING in told else int(told["number"])

    def has_only_joined(self, reader: str) -> bool:
        """Whether a reader's mark is where it joined: it has come nowhere since."""
        told = LOG_READER.read(self.reader_path(reader))
        return told is not None and JOINED in told

    def readers(self) -> dict[str, dict[str, Any]]:
        """What each reader last said, see `put_mark`."""
        paths = [path for path in (self.folder / "readers").glob("*.json") if not path.name.startswith(".")]
        return {
            from_disk(path.stem): document
            for path in paths
            if (document := LOG_READER.read(path)) is not None
        }

    def put_mark(self, reader: str, number: int, **told: Any) -> None:
        """Says how far a reader has come.

        Args:
            reader: its name; each has one owner.
            number: the last entry it will never read again, whatever happens.
            told: what else it says to the writer.
        """
        LOG_READER.replace(self.reader_path(reader), {**told, "number": number})

    def join(self, reader: str, *, reads_again: bool = False, **told: Any) -> int:
        """Lets a reader begin with the first entry that is kept: from now on nothing goes that it has not left behind.

        Args:
            reader: its name; one that comes again after it left begins anew.
            reads_again: whether it will read tuples again that it has left behind: then nothing goes at all until it says
                `SINCE` when it does.
            told: what else it says to the writer.

        Returns:
            Number of the entry before that one; -1 where nothing is gone.
        """
        first = self.first
        while True:
            said = {**told, SINCE: first} if reads_again else told
            self.put_mark(reader, first - 1, **said, **{JOINING: True})
            kept = self.first
            if kept == first:
                self.put_mark(reader, first - 1, **said, **{JOINED: True})
                return first - 1
            first = kept

    def leave(self, reader: str) -> None:
        """Lets the log go on without a reader, which has ended: nothing waits for it any more."""
        self.reader_path(reader).unlink(missing_ok=True)

    def reader_path(self, reader: str) -> Path:
        """The file that says how far a reader has come."""
        return self.folder / "readers" / f"{on_disk(reader)}.json"

    def _refuse_gaps(self, singles: list[int]) -> None:
        """Makes sure that the entry before each is there."""
        alone = {number - 1 for number in singles}.difference(singles)
        for number in sorted(alone):
            if not self.has(number) and number >= self.first:
                raise DamagedError(
                    str(self.entry_path(number)), f"({LOG_ENTRY.kind}) is missing before {number + 1}"
                )

    @property
    def kept_path(self) -> Path:
        """The file that says how far back the log goes."""
        return self.folder / "kept.json"

    def entry_path(self, number: int) -> Path:
        """The file of an entry while it is in no segment."""
        return self.folder / "entries" / f"{number:010d}.json"

    def segment_path(self, segment: int) -> Path:
        """The file of a segment."""
        return self.folder / "segments" / f"{segment:010d}.json"

    def _single(self, number: int) -> Entry | None:
        path = self.entry_path(number)
        document = read_json(path, LOG_ENTRY.kind)
        return None if document is None else Entry.of(document, path)

    def _of_segment(self, number: int) -> Entry | None:
        entries = self.segment(number // SEGMENT)
        return None if entries is None else entries[number % SEGMENT]


class StreamLog(LogReader):
    """The writer of a log: one object has it, in one process.

    Args:
        folder: the log's; created where there is none, durable on return.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for name in ("entries", "segments", "files", "readers"):
            make_folder(folder / name)

    def append(self, entry: Entry) -> bool:
        """Puts an entry under its number; False where it is taken, by an entry that seemed to fail as it was put."""
        return put_json_if_absent(self.entry_path(entry.number), entry.document())


def since_of(readers: Mapping[str, Mapping[str, Any]]) -> int:
    """The first entry whose tuples a reader may read again, given what they say; one behind all others where none reads any."""
    return min((int(told[SINCE]) for told in readers.values() if SINCE in told), default=sys.maxsize)


def first_needed(readers: Mapping[str, Mapping[str, Any]]) -> int:
    """The first entry that a reader has not left behind, or whose tuples it may read again."""
    return min([since_of(readers), *(int(told["number"]) + 1 for told in readers.values())])


def _set_back(reader: str, entry: int, found: str) -> CheckpointError:
    """Says that the log and what a reader has come to do not belong together."""
    return CheckpointError(
        f"{reader} continues with entry {entry} of the log, but {found}: one of them was restored from an older copy, or "
        f"files are missing; {REMEDY}"
    )
