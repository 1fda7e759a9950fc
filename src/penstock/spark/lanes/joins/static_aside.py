"""Records of static tables that do not fit their columns: in the quarantine as those of streams are, a file a version."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.operators.ingest.malformed import RecordForm, Repeats, explained_each
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import name_below
from penstock.spark.tasks.dataframe_stage import QUARANTINED
from penstock.spark.tasks.record_lines import with_lines

#: column that says whether the reader has found a value of a column, by the number of that
HAS_VALUE = "_has_value_{}"
#: versions whose records are kept
_KEPT = 10


def keep_aside(
    layout: Layout, table: str, version: str, aside: pa.Table, schema: pa.Schema, form: RecordForm
) -> dict[str, int]:
    """Keeps the records of a version that do not fit, durable on return; lanes that read the same write the same.

    Args:
        layout: of the results folder.
        table: the table's name.
        version: of the table.
        aside: rows of the records: CORRUPT, REASON, ORIGIN, and HAS_VALUE of each column.
        schema: the table's columns.
        form: of the records.

    Returns:
        How many there are, by reason.
    """
    if not aside.num_rows:
        return {}
    (rows,) = aside.combine_chunks().to_batches()
    has_value = {name: rows.column(HAS_VALUE.format(number)) for number, name in enumerate(schema.names)}
    if form.is_nested:
        has_value = {}
    found = explained_each(
        pa.record_batch({name: rows.column(own) for name, own in QUARANTINED.items()}),
        form.stored or schema,
        form,
        Repeats(),
        has_value,
    )
    record, origin, reasons = found.columns
    sink = pa.BufferOutputStream()
    kept = pa.table(
        {"record": record, "origin": with_lines(origin, record, form.encoding), "reason": reasons}
    )
    pq.write_table(kept, sink, compression="zstd")
    folder, files = name_below(layout.output, layout.quarantine(table)), layout.files
    files.put(f"{folder}/{version}.parquet", sink.getvalue().to_pybytes())
    stored = sorted(files.list(folder), key=lambda each: each.modified, reverse=True)
    files.delete(each.name for each in stored[_KEPT:])
    return dict(Counter(reasons.to_pylist()))
