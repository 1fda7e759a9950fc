"""A change of an Iceberg table. It imports pyiceberg, so that it is imported where a table is written."""

from __future__ import annotations

from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate


class Change(Transaction):
    """A transaction that the library does not repeat on a newer snapshot, which may have the delivery already.

    It makes the table's metadata once for each update. The library makes them some thirty times a commit, each time with all snapshots.

    Args:
        table: as it was read for this change.
    """

    def __init__(self, table: Table) -> None:
        table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
        super().__init__(table)
        self._made: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with the updates so far; nobody changes them in place."""
        made = self._made
        if made is None or made[0] is not self._table.metadata or made[1] is not self._updates:
            made = self._made = (self._table.metadata, self._updates, super().table_metadata)
        return made[2]
