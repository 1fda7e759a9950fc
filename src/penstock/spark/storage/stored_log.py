"""Where a log is: its entries and what is known of it in the ledger, the files that entries name in a folder."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.spark.storage.ledger_documents import StoredDocument, StoredDocuments
from penstock.spark.storage.ledgers import LedgerFolder
from penstock.spark.storage.store_paths import StorePath


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The place of a log; it can be pickled.

    Attributes:
        ledger: which has the documents.
        name: of the log: a stream's, or that of a view's rows.
        files: the folder of the files that entries name, those of a kind in a folder each.
    """

    ledger: LedgerFolder
    name: str
    files: StorePath

    def __str__(self) -> str:
        return f"the log of {self.name} in {self.ledger}"

    @property
    def rows(self) -> StorePath:
        """The results folder, whose files entries of views' rows name."""
        return self.ledger.folder.parent

    @property
    def kept(self) -> StoredDocument:
        """How far back the log goes; it exists from the log's beginning on."""
        return StoredDocument(self.ledger, ("log", self.name))

    @property
    def entries(self) -> StoredDocuments:
        """The entries that are kept, by number."""
        return StoredDocuments(self.ledger, ("entry", self.name))

    @property
    def segments(self) -> StoredDocuments:
        """The segments whose files are merged, by number."""
        return StoredDocuments(self.ledger, ("segment", self.name))

    @property
    def readers(self) -> StoredDocuments:
        """How far each reader has come, by name."""
        return StoredDocuments(self.ledger, ("reader", self.name))

    @property
    def replaced(self) -> StoredDocuments:
        """The files that merged ones have replaced, and those of segments that have left, until they are deleted."""
        return StoredDocuments(self.ledger, ("replaced_log", self.name))

    def runs(self, demand: int) -> StoredDocuments:
        """Where the tuples of a demand lie that the entries of segments brought, by number of the last entry of each stretch."""
        return StoredDocuments(self.ledger, ("run", self.name, demand))

    def demands(self) -> list[int]:
        """The demands that have such tuples."""
        return [int(each) for each in StoredDocuments(self.ledger, ("run", self.name)).groups()]

    def exists(self) -> bool:
        """Whether the log has begun."""
        return self.kept.exists()
