"""Records that are set aside and may be lines of files: each once, explained, and with its line, each file read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from penstock.operators.ingest.malformed import RecordForm, Repeats, explained_each
from penstock.spark.tasks.record_lines import with_lines

#: so many records of a task, and bytes, are told with their lines
_PLACED_ROWS = 10_000
_PLACED_BYTES = 16 << 20


def quarantined(record: pa.Array, origin: pa.Array, reason: pa.Array) -> pa.RecordBatch:
    """Rows as the quarantine keeps them."""
    return pa.record_batch({"record": record, "origin": origin, "reason": reason})


class QuarantinedLines:
    """Those of one task.

    Args:
        write: takes the records.
    """

    def __init__(self, write: Callable[[pa.RecordBatch], None]) -> None:
        self._write = write
        self._repeats = Repeats()
        #: records whose lines are not looked up yet, and the encoding of the files that they are lines of
        self._unplaced: list[pa.RecordBatch] = []
        self._unplaced_rows = self._unplaced_bytes = 0
        self._encoding = RecordForm().encoding

    def add(
        self,
        aside: pa.RecordBatch,
        schema: pa.Schema,
        form: RecordForm,
        has_value: Mapping[str, pa.BooleanArray],
    ) -> pa.RecordBatch:
        """Takes in the records of rows; the first ones of the task wait for their lines.

        Args:
            aside: of the rows record, origin and reason.
            schema: the tuple's columns.
            form: of the records.
            has_value: see `explained_each`.

        Returns:
            The records.
        """
        records = explained_each(aside, schema, form, self._repeats, has_value)
        self._encoding = form.encoding
        first = records.slice(0, _PLACED_ROWS - self._unplaced_rows)
        if self._unplaced_bytes + first.nbytes > _PLACED_BYTES:
            first = first.slice(0, 0)
        if first.num_rows:
            self._unplaced.append(first)
            self._unplaced_rows += first.num_rows
            self._unplaced_bytes += first.nbytes
        if first.num_rows < records.num_rows:
            self._write(records.slice(first.num_rows))
        return records

    def place(self) -> None:
        """Writes the records that wait for their lines."""
        if self._unplaced:
            record, origin, reason = (
                column.combine_chunks() for column in pa.Table.from_batches(self._unplaced).columns
            )
            self._write(quarantined(record, with_lines(origin, record, self._encoding), reason))
