"""Which files hold the tuples of the entries of segments, as the ledger lists them: a document for each stretch of entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.spark.storage.formats import LOG_RUN
from penstock.spark.storage.layout import tuples_kind
from penstock.spark.storage.stored_log import StoredLog


@dataclass(frozen=True, slots=True)
class ListedRun:
    """Where the tuples of a demand lie that some entries brought.

    Attributes:
        demand: whose tuples.
        first, last: numbers of the entries.
        name: of their merged run; None: nothing of them is merged.
        bytes: size of that.
        own: names of the files that are not merged, by number of the entry.
    """

    demand: int
    first: int
    last: int
    name: str | None = None
    bytes: int = 0
    own: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def path(self) -> str | None:
        """Name of the merged run in the folder of the log's files."""
        return None if self.name is None else f"{tuples_kind(self.demand)}/{self.name}"

    def document(self) -> dict[str, Any]:
        """As JSON; demand and last entry are in the key."""
        fields = asdict(self)
        del fields["demand"], fields["last"]
        return LOG_RUN.stamped(fields)


def listed_runs(log: StoredLog, demand: int, after: int = -1) -> Iterator[ListedRun]:
    """Yield what is listed of the tuples behind an entry, in order; of one state of the ledger.

    Args:
        log: the stream's.
        demand: whose tuples.
        after: number of the entry.

    Raises:
        CheckpointError: a document is damaged, or of another version.
    """
    documents = log.runs(demand)
    for last, document in documents.since(after + 1, LOG_RUN.kind):
        fields = LOG_RUN.opened(document, documents[last])
        own = {int(number): tuple(names) for number, names in fields.pop("own").items()}
        yield ListedRun(demand, last=last, own=own, **fields)
