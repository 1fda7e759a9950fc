"""The log of a stream: what its ingest query hands to everything behind it, in order.

An entry is a document of the ledger under its number, committed once its batch is published; the files that it names lie in the
checkpoint. Entries have no gap. The answers of every reader are a function of the entries alone.

One writer puts entries, merges their files and removes what is too old (`StreamLog`); any number of readers in any process
read (`LogReader`). Those of the writer's process say how far they have come.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.errors import CheckpointError, DamagedError, UnexpectedDocumentError
from penstock.spark.log.entries import Entry
from penstock.spark.storage.formats import LOG_ENTRY, LOG_KEPT, LOG_READER
from penstock.spark.storage.layout import ROWS_FILES
from penstock.spark.storage.ledger_documents import StoredDocument, commit
from penstock.spark.storage.offsets import REMEDY
from penstock.spark.storage.store_paths import StorePath
from penstock.spark.storage.stored_log import StoredLog
from penstock.stores.ledger import ABSENT

#: entries of a segment
SEGMENT = 64
#: what a reader with windows tells beside its mark: of tuples before it all windows are final, microseconds,
#: those of the views of a plan version
FINAL, PLAN = "final", "plan"
#: what a reader tells that reads tuples again: the first entry of which it may
SINCE = "since"
#: what a reader tells from when it joins until it puts a mark of its own
JOINED = "joined"


@dataclass(frozen=True, slots=True)
class Kept:
    """How far back a log goes.

    Attributes:
        first: number of the first entry that is kept.
        before: windows that begin before it, microseconds, may lack tuples in what is kept; None: none does. Entries
            say it as `kept_before`; for a reader that joins later it is at least what is said here as it does.
        since: what is before this entry goes as soon as no reader reads its tuples again.
        lacks: by demand: of its tuples, those with an event time before this, microseconds, may lack from `since` on.
        joined: how often a reader has joined.
    """

    first: int = 0
    before: int | None = None
    since: int = 0
    lacks: Mapping[int, int] = field(default_factory=dict)
    joined: int = 0

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Kept:
        """Of a document as `document` gave it."""
        lacks = {int(demand): moment for demand, moment in document["lacks"].items()}
        return cls(**{**document, "lacks": lacks})


class LogReader:
    """Reads the log of one stream; safe beside its writer, in any process, and in several threads.

    Args:
        log: where it is.
    """

    def __init__(self, log: StoredLog) -> None:
        self.log = log

    def path(self, kind: str, name: str) -> StorePath:
        """Where a file lies that an entry names."""
        return self.log.rows / name if kind == ROWS_FILES else self.log.files / kind / name

    def kept(self) -> Kept:
        """How far back the log goes."""
        document = LOG_KEPT.read(self.log.kept)
        return Kept() if document is None else Kept.of(document)

    @property
    def first(self) -> int:
        """Number of the first entry that is kept."""
        return self.kept().first

    def has(self, number: int) -> bool:
        """Whether an entry has been put, and is kept."""
        return self.log.entries[number].exists()

    @property
    def last(self) -> int:
        """Number of the last entry; -1 where none has been put."""
        return self.log.entries.last

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
        last, first, begins = self.last, self.first, after + 1
        if last < after:
            raise _set_back(reader, begins, f"{self.log} ends before entry {after}")
        if begins < first:
            raise _set_back(reader, begins, f"{self.log} starts at entry {first}")
        return min(last, after + most)

    def newest(self) -> Entry | None:
        """The last entry, or None."""
        last = self.last
        return None if last < 0 else self.entry(last)

    def entry(self, number: int) -> Entry:
        """An entry.

        Raises:
            CheckpointError: it is gone, or was never put.
        """
        found = self.between(number - 1, number)
        return found[0]

    def between(self, after: int, until: int) -> list[Entry]:
        """The entries behind one and up to another, in order; no more of the log is looked at.

        Args:
            after: number of the first one, which is left out; -1 for the beginning.
            until: number of the last one.

        Raises:
            CheckpointError: an entry between them is gone.
        """
        return self._without_gaps(self._there(after, until), after + 1, until)

    def kept_between(self, after: int, until: int) -> list[Entry]:
        """Likewise, for a reader that does not hold them: those that have left the log, before this call or meanwhile, are left out."""
        found = self._there(after, until)
        # in this order: what leaves once they are read is no gap
        return self._without_gaps(found, max(after + 1, self.first), until)

    def _there(self, after: int, until: int) -> list[Entry]:
        found = self.log.entries.between(after + 1, until, LOG_ENTRY.kind)
        return [Entry.of(document, self.log.entries[number]) for number, document in found.items()]

    def _without_gaps(self, found: list[Entry], first: int, until: int) -> list[Entry]:
        numbers = {entry.number for entry in found}
        for number in range(first, until + 1):
            if number not in numbers:
                raise DamagedError(str(self.log.entries[number]), f"({LOG_ENTRY.kind}) is missing")
        return found

    def segment_end(self, segment: int) -> int:
        """The number of the last entry of a segment."""
        return SEGMENT * (segment + 1) - 1

    def segment(self, segment: int) -> list[Entry]:
        """The entries of a segment that is whole and kept, in order."""
        return self.between(SEGMENT * segment - 1, self.segment_end(segment))

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
            furthest = self.furthest(middle)
            if furthest is None or furthest < moment:
                low = middle + 1
            else:
                high = middle
        return low

    def furthest(self, number: int) -> int | None:
        """The largest event time of the tuples up to an entry, see `Entry.furthest`.

        Raises:
            CheckpointError: the entry is gone.
        """
        return self.entry(number).furthest

    def marks(self) -> dict[str, int]:
        """How far each reader has come: number of the last entry it will never read again."""
        return {name: told["number"] for name, told in self.readers().items()}

    def mark(self, reader: str) -> int | None:
        """How far a reader has come; None where it has not joined."""
        told = LOG_READER.read(self.log.readers[reader])
        return None if told is None else int(told["number"])

    def has_only_joined(self, reader: str) -> bool:
        """Whether a reader's mark is where it joined: it has come nowhere since."""
        told = LOG_READER.read(self.log.readers[reader])
        return told is not None and JOINED in told

    def readers(self) -> dict[str, dict[str, Any]]:
        """What each reader last said, see `put_mark`."""
        documents = self.log.readers.all(LOG_READER.kind)
        return {
            str(name): LOG_READER.opened(told, self.log.readers[name]) for name, told in documents.items()
        }

    def put_mark(self, reader: str, number: int, **told: Any) -> None:
        """Says how far a reader has come.

        Args:
            reader: its name; each has one owner.
            number: the last entry it will never read again, whatever happens.
            told: what else it says to the writer.
        """
        commit(self.mark_document(reader, number, **told))

    def mark_document(self, reader: str, number: int, **told: Any) -> dict[StoredDocument, dict[str, Any]]:
        """The document of `put_mark`, for a commit of several."""
        return {self.log.readers[reader]: LOG_READER.stamped({**told, "number": number})}

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
        while True:
            before = self.log.kept.get()
            kept = self.kept()
            since = {SINCE: kept.first} if reads_again else {}
            mark = {**told, **since, "number": kept.first - 1, JOINED: True}
            # who removes the front of the log sees that somebody joined
            puts = {
                self.log.kept: LOG_KEPT.stamped(replace(kept, joined=kept.joined + 1).document()),
                self.log.readers[reader]: LOG_READER.stamped(mark),
            }
            try:
                commit(puts, expect={self.log.kept: before})
            except UnexpectedDocumentError:
                continue
            return kept.first - 1

    def leave(self, reader: str) -> None:
        """Lets the log go on without a reader, which has ended: nothing waits for it any more."""
        self.log.readers[reader].remove()


class StreamLog(LogReader):
    """The writer of a log: one object has it, in one process.

    Args:
        log: where it is; it begins where there is none, durable on return.
    """

    def __init__(self, log: StoredLog) -> None:
        super().__init__(log)
        LOG_KEPT.put(log.kept, Kept().document())

    def append(
        self,
        entry: Entry,
        expect: Mapping[StoredDocument, bytes | None] | None = None,
        beside: Mapping[StoredDocument, Mapping[str, Any]] | None = None,
    ) -> bool:
        """Puts an entry under its number.

        Args:
            entry: the entry.
            expect: what must be stored before.
            beside: documents that the same commit puts; none of them exists before.

        Returns:
            False where it is taken, by an entry that seemed to fail as it was put, or something else than `expect` is stored.
        """
        puts = {self.log.entries[entry.number]: entry.document(), **(beside or {})}
        try:
            commit(puts, expect={**dict.fromkeys(puts, ABSENT), **(expect or {})})
        except UnexpectedDocumentError:
            return False
        return True


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
