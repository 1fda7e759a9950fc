"""What tests publish: files of a batch as its tasks store them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.spark.log.ingest_log import IngestLog
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.results.window_rows import MadeResults
from penstock.spark.results.window_staging import written
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.ledger_documents import commit
from penstock.spark.storage.replaced import ReplacedFiles
from penstock.stores.durable import checksum_of


def stored(
    layout: Layout,
    query: str,
    batch: int,
    kind: str,
    table: pa.Table,
    *,
    job: int = 0,
    partition: int = 0,
    owner: str | None = None,
) -> MadeResults:
    """Stores a table as the file of a task."""
    files = BatchFiles.of(layout, query, owner, batch)
    return MadeResults(job, partition, files.put(job, partition, [written(kind, table)]))


def put_batch(log: IngestLog, *given: Any, **named: Any) -> None:
    """Puts the entry of a batch, see `IngestLog.batch_entry`."""
    with log.batch_entry(*given, **named) as entry:
        if entry:
            commit(entry, expect=dict.fromkeys(entry))


def listed(kind: str, path: Path, rows: int, pairs: int = 0) -> dict[str, Any]:
    """A file as a manifest lists it."""
    size, crc = path.stat().st_size, checksum_of(path)
    return {"kind": kind, "name": path.name, "rows": rows, "pairs": pairs, "size": size, "crc": crc}


def shown(layout: Layout, query: str, folder: Path) -> list[Path]:
    """The files of a folder but for those that merged ones have replaced, in order of name."""
    replaced = {
        layout.output / name for name in ReplacedFiles(layout.replaced(query), layout.files, 0).listed()
    }
    return sorted(set(folder.glob("*.parquet")) - replaced)
