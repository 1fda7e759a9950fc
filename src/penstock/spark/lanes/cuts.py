"""Cuts of a lane on disk: what each is an answer to, put before any work, gone once everything behind it is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.errors import CheckpointError
from penstock.spark.log.entries import Entry
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.formats import CUT
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.ledger_documents import StoredDocument, StoredDocuments
from penstock.spark.storage.offsets import REMEDY


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a lane has come in a log.

    Attributes:
        entry: number of the last entry that is answered; one less than the first where none is.
        clock: when that entry was put, microseconds since the epoch: tells it from any other of that number. None:
            no entry.
    """

    entry: int
    clock: int | None = None

    @classmethod
    def at(cls, entry: Entry) -> Reach:
        """Up to an entry."""
        return cls(entry.number, entry.clock)


@dataclass(frozen=True, slots=True)
class Since:
    """From where on the tuples of a log are read again that a lane has left behind.

    Attributes:
        entry: number of the first entry; they are there until the cut is done with.
        lacks: by demand: of its tuples, those with an event time before this, microseconds, may lack from that entry on.
    """

    entry: int
    lacks: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Since:
        """Of a document as `asdict` gave it, read as JSON."""
        return cls(document["entry"], {int(demand): moment for demand, moment in document["lacks"].items()})


@dataclass(frozen=True, slots=True)
class Cut:
    """What a lane answers in one go: its answer is a function of this alone.

    Attributes:
        number: cuts follow each other without a gap, from 0.
        before: how far the cut before reached, by stream.
        until: how far this one does.
        orders: what else the answer depends on: plan versions, orders of joins; JSON values.
        since: by stream which older tuples it may take; of a lane that takes none: none.
    """

    number: int
    before: Mapping[str, Reach]
    until: Mapping[str, Reach]
    orders: Mapping[str, Any] = field(default_factory=dict)
    since: Mapping[str, Since] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        """How many entries of all logs are in it."""
        return sum(reach.entry - self.before[stream].entry for stream, reach in self.until.items())

    def document(self) -> dict[str, Any]:
        """The cut as JSON."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Cut:
        """The cut of a document, as `document` gave it."""
        before, until = (
            {stream: Reach(**reach) for stream, reach in document[which].items()}
            for which in ("before", "until")
        )
        since = {stream: Since.of(each) for stream, each in document.get("since", {}).items()}
        return cls(document["number"], before, until, document["orders"], since)


class Cuts:
    """The cuts of one lane that are not done with; one thread owns it.

    Args:
        cuts: where.
    """

    def __init__(self, cuts: StoredDocuments) -> None:
        self._cuts = cuts

    def oldest(self) -> Cut | None:
        """The first cut that is not done with, or None.

        Raises:
            CheckpointError: another version of Penstock wrote it.
        """
        for number in self._cuts.numbers():
            document = CUT.read(self._cuts[number])
            if document is not None:
                return Cut.of(document)
        return None

    def put(self, cut: Cut) -> None:
        """Puts a cut, durable on return.

        Raises:
            CheckpointError: its place is taken.
        """
        path = self._cuts[cut.number]
        if not CUT.put(path, cut.document()):
            raise CheckpointError(
                f"{path} exists already: another run answers the same views. Stop it first."
            )

    def clear(self) -> None:
        """Removes all cuts that are not done with: nobody will answer them."""
        self._cuts.remove(self._cuts.numbers())

    def document(self, cut: Cut) -> StoredDocument:
        """The document of a cut, for a commit that removes it."""
        return self._cuts[cut.number]

    def remove(self, cut: Cut) -> None:
        """Removes a cut that is done with."""
        self.document(cut).remove()


def refuse_another_log(lane: str, stream: str, reader: LogReader, reach: Reach) -> None:
    """Makes sure that a log is the one that a lane has come so far in.

    Raises:
        CheckpointError: it ends before, or has another entry there: it was set back to an older copy.
    """
    if reach.clock is None or reach.entry < reader.first:
        return
    if not reader.has(reach.entry) or reader.entry(reach.entry).clock != reach.clock:
        raise CheckpointError(
            f"lane {lane} has answered the log of stream {stream} up to entry {reach.entry}, but "
            f"{reader.log.entries[reach.entry]} is missing or another: the checkpoint was restored from an older copy, or "
            f"files were removed; {REMEDY}"
        )


def newest_reach(published: Sequence[Mapping[str, Any]]) -> tuple[int, dict[str, Reach]] | None:
    """Number and reach of the last published cut, given the figures of a lane's cuts in order; None where there is none."""
    if not published:
        return None
    figures = published[-1]
    return figures["batch"], {stream: Reach(**reach) for stream, reach in figures["until"].items()}


def forget_lane(layout: Layout, lane: str, streams: Iterable[str]) -> None:
    """Removes what a lane that does not run has left beside its results; the lane itself last, so that it can be repeated.

    Args:
        layout: output and checkpoint folders.
        lane: its name.
        streams: the logs that it has read.
    """
    for stream in streams:
        LogReader(layout.log(stream)).leave(lane)
    Cuts(layout.cuts(lane)).clear()
    layout.lanes[lane].remove()
