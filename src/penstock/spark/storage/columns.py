"""Columns that came later: rows of older files as rows of the columns there are now."""

from __future__ import annotations

import pyarrow as pa


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the columns of a schema, in its order; a column that the batch lacks is NULL."""
    there = frozenset(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in there
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
