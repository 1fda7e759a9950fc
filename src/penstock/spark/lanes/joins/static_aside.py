"""Records of static tables that do not fit their columns: in the quarantine as those of streams are, a file a version."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.operators.ingest.malformed import explained_each
from penstock.spark.storage.files import newest_first, replace_bytes
from penstock.spark.tasks.dataframe_stage import CORRUPT, ORIGIN, REASON
from penstock.spark.tasks.record_lines import with_lines

#: versions whose records are kept
_KEPT = 10


def keep_aside(folder: Path, version: str, aside: pa.Table, schema: pa.Schema) -> dict[str, int]:
    """Keeps the records of a version that do not fit, durable on return; lanes that read the same write the same.

    Args:
        folder: the table's in the quarantine.
        version: of the table.
        aside: the records: CORRUPT, REASON, ORIGIN.
        schema: the table's columns.

    Returns:
        How many there are, by reason.
    """
    if not aside.num_rows:
        return {}
    record, reason, origin = (aside.column(name).combine_chunks() for name in (CORRUPT, REASON, ORIGIN))
    reasons = explained_each(reason, record, schema)
    sink = pa.BufferOutputStream()
    kept = pa.table({"record": record, "origin": with_lines(origin, record), "reason": reasons})
    pq.write_table(kept, sink, compression="zstd")
    replace_bytes(folder / f"{version}.parquet", sink.getvalue().to_pybytes())
    for old in newest_first(folder, "*.parquet")[_KEPT:]:
        old.unlink(missing_ok=True)
    return dict(Counter(reasons.to_pylist()))
