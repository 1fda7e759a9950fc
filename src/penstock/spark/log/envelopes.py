"""Files of envelopes, pane partials and kept values, that entries of the log name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.operators.windows.shard import PARTIALS, Envelope
from penstock.spark.log.entries import Entry
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.columns import batches_of, metadata_of, named_errors
from penstock.spark.storage.layout import PARTIALS_FILES, VALUES_FILES
from penstock.spark.storage.store_paths import StorePath, opened

#: columns of an envelope file; one that holds those of several entries says of each row which
SHARD, OPERATOR, KIND, PAYLOAD, ENTRY = "shard", "operator", "kind", "payload", "entry"
COLUMNS = (SHARD, OPERATOR, KIND, PAYLOAD)
#: a row group of a merged file has about so many bytes
_GROUP_BYTES = 1 << 20


def file_kind(kind: str) -> str:
    """The kind of the files in which envelopes of a kind lie."""
    return PARTIALS_FILES if kind == PARTIALS else VALUES_FILES


def write_envelopes(envelopes: Iterable[tuple[int, Envelope]], path: Path) -> None:
    """Writes (shard, envelope) pairs to a file; the caller syncs it."""
    rows = [(shard, each.operator, each.kind, each.payload) for shard, each in envelopes]
    types = (pa.int32(), pa.int32(), pa.string(), pa.binary())
    columns = zip(*rows, strict=True) if rows else ((),) * len(types)
    table = pa.table(
        {name: pa.array(column, type_) for name, column, type_ in zip(COLUMNS, columns, types, strict=True)}
    )
    pq.write_table(table, path, **_options(table.schema))


def merge_envelopes(files: Sequence[tuple[int, StorePath]], target: Path) -> None:
    """Writes the envelopes of several files to one, by shard.

    Twice their `envelope_bytes` are in memory.

    Args:
        files: number of the entry that names it, and file.
        target: where.
    """
    tables = []
    for number, path in files:
        table = pa.Table.from_batches(batches_of(path, COLUMNS), metadata_of(path).schema.to_arrow_schema())
        tables.append(table.append_column(ENTRY, pa.array([number] * table.num_rows, pa.int64())))
    table = pa.concat_tables(tables).combine_chunks()
    del tables
    order = pc.sort_indices(table, sort_keys=[(SHARD, "ascending"), (ENTRY, "ascending")])
    groups = max(1, table.nbytes // _GROUP_BYTES)
    rows = max(1, -(-table.num_rows // groups))
    with pq.ParquetWriter(target, table.schema, **_options(table.schema)) as writer:
        for start in range(0, table.num_rows, rows):
            writer.write_table(table.take(order.slice(start, rows)))


def envelope_bytes(path: StorePath) -> int:
    """Bytes of the envelopes of a file once they are in memory."""
    metadata = metadata_of(path)
    return sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))


class EnvelopeReader:
    """Reads the envelopes of one shard; of a file that holds those of several entries it keeps them all.

    Args:
        log: the log.
        shard: which.
    """

    def __init__(self, log: LogReader, shard: int) -> None:
        self._log = log
        self._shard = shard
        #: kind of files -> the last merged one that was read, its envelopes by entry
        self._merged: dict[str, tuple[str, dict[int, list[Envelope]]]] = {}

    def of(self, entry: Entry) -> list[Envelope]:
        """The envelopes that an entry brought.

        Raises:
            DamagedError: a file of the entry is missing or damaged.
        """
        found = []
        for kind in (PARTIALS_FILES, VALUES_FILES):
            for name in entry.files.get(kind, ()):
                known, by_entry = self._merged.get(kind, ("", {}))
                if name != known:
                    rows = _rows(self._log.path(kind, name), self._shard)
                    if ENTRY not in rows.column_names:
                        found += _envelopes(rows)
                        continue
                    by_entry = {}
                    for number, envelope in zip(
                        rows.column(ENTRY).to_pylist(), _envelopes(rows), strict=True
                    ):
                        by_entry.setdefault(number, []).append(envelope)
                    self._merged[kind] = name, by_entry
                found += by_entry.get(entry.number, [])
        return found


def _rows(path: StorePath, shard: int) -> pa.Table:
    """The rows of one shard; row groups that their statistics show to hold none are not read."""
    with (
        named_errors(path),
        opened(path) as local,
        pq.ParquetFile(local, page_checksum_verification=True) as file,
    ):
        groups = [
            number
            for number in range(file.num_row_groups)
            if _may_hold(file.metadata.row_group(number), shard)
        ]
        table = file.read_row_groups(groups, use_threads=False)
    return table.filter(pc.equal(table.column(SHARD), pa.scalar(shard, table.schema.field(SHARD).type)))


def _envelopes(rows: pa.Table) -> list[Envelope]:
    return [Envelope(row[OPERATOR], row[KIND], row[PAYLOAD]) for row in rows.select(COLUMNS).to_pylist()]


def _options(schema: pa.Schema) -> dict[str, Any]:
    """How Parquet files of envelopes are written."""
    return {
        "compression": "zstd",
        "compression_level": 1,
        "store_schema": False,
        "write_page_checksum": True,
        "use_dictionary": [KIND],
        "write_statistics": [name for name in schema.names if name in (SHARD, OPERATOR, ENTRY)],
    }


def _may_hold(group: Any, shard: int) -> bool:
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == SHARD:
            statistics = column.statistics
            return (
                statistics is None or not statistics.has_min_max or statistics.min <= shard <= statistics.max
            )
    return True
