"""What the ledger says of a follower, and the commits that followers share."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from penstock.spark.sinks.published import Feed, Place
from penstock.spark.storage.formats import SINK
from penstock.spark.storage.ledger_documents import StoredDocument, commit


@dataclass(frozen=True, slots=True)
class Planned:
    """A delivery that is made, or about to be.

    Attributes:
        feed: whose rows.
        end: the place behind the last one.
        definition: of a selection, the number of the definition that its rows are of.
    """

    feed: Feed
    end: Place
    definition: int | None


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a follower has come.

    Attributes:
        id: of the follower, made with its document.
        since: of a selection, the first definition whose rows it is given.
        delivered: number of the last delivery; -1: none.
        places: behind the last delivered row of each feed, in the order of the feeds.
        planned: the next delivery; None: nothing is planned.
        sent: rows that were delivered; None where nobody counts them, as in a ledger of before.
    """

    id: str
    since: int
    delivered: int = -1
    places: Mapping[Feed, Place] = field(default_factory=dict)
    planned: Planned | None = None
    sent: int | None = None

    @classmethod
    def new(cls, since: int, places: Mapping[Feed, Place], *, is_counted: bool = True) -> Self:
        """The mark of a follower that begins; `is_counted`: whether it counts rows."""
        return cls(uuid.uuid4().hex, since, -1, places, sent=0 if is_counted else None)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Read a document."""
        planned = document["planned"]
        return cls(
            document["id"],
            document["since"],
            document["delivered"],
            {Feed(each["query"], each["kind"]): Place(**each["place"]) for each in document["feeds"]},
            None
            if planned is None
            else Planned(Feed(**planned["feed"]), Place(**planned["end"]), planned["definition"]),
            document.get("sent"),
        )

    def document(self) -> dict[str, Any]:
        """As the ledger has it."""
        feeds = [{**asdict(feed), "place": asdict(place)} for feed, place in self.places.items()]
        return {
            "id": self.id,
            "since": self.since,
            "delivered": self.delivered,
            "feeds": feeds,
            "planned": None if self.planned is None else asdict(self.planned),
            "sent": self.sent,
        }


class Marks:
    """Stores marks; whoever comes while a commit is running shares the next one. Any thread may store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._committing = threading.Lock()
        self._waiting: dict[StoredDocument, tuple[Mapping[str, Any], Future[None]]] = {}

    def put(self, where: StoredDocument, mark: Mark) -> None:
        """Store a mark, durable on return.

        Raises:
            FencedError: another run has taken over.
            StoreFailedError: the ledger failed.
        """
        done: Future[None] = Future()
        with self._lock:
            self._waiting[where] = SINK.stamped(mark.document()), done
        with self._committing:
            with self._lock:
                taken, self._waiting = self._waiting, {}
            if taken:
                _commit(taken)
        done.result()


def _commit(taken: Mapping[StoredDocument, tuple[Mapping[str, Any], Future[None]]]) -> None:
    try:
        commit({where: document for where, (document, _) in taken.items()})
    except BaseException as error:
        for _, done in taken.values():
            done.set_exception(error)
    else:
        for _, done in taken.values():
            done.set_result(None)
