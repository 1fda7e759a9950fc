"""Rows of stored Parquet files, those of older files as rows of the columns there are now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import DamagedError
from penstock.spark.storage.store_paths import StorePath, opened


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


@contextmanager
def named_errors(path: StorePath) -> Iterator[None]:
    """Lets an error in reading a file name it; pyarrow's own say neither that nor, all of them, that they are of files."""
    try:
        yield
    except FileNotFoundError:
        raise DamagedError(str(path), "is missing") from None
    except pa.ArrowNotImplementedError:
        # pyarrow cannot read what Spark may
        raise
    except (OSError, pa.ArrowException) as error:
        if getattr(error, "errno", None) is not None:  # the system's, not the file's
            raise
        raise DamagedError(str(path), f"cannot be read: {error}") from error


def metadata_of(path: StorePath) -> pq.FileMetaData:
    """What the footer of a Parquet file says; raises what `batches_of` raises."""
    with named_errors(path), opened(path) as local:
        return pq.read_metadata(local)


def schema_of(path: StorePath) -> pa.Schema:
    """The columns of a Parquet file; raises what `batches_of` raises."""
    with named_errors(path), opened(path) as local:
        return pq.read_schema(local)


def batches_of(
    path: StorePath, columns: Sequence[str] | None = None, row_groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file; checksums of its pages are looked at.

    Args:
        path: the file.
        columns: those that are wanted, which it may lack, or parts of them (`window.end`); None: all.
        row_groups: likewise of its row groups.

    Raises:
        DamagedError: it is missing, or is not what was written.
    """
    with named_errors(path), opened(path) as local:
        file = pq.ParquetFile(local, page_checksum_verification=True)
    with file:
        batches = file.iter_batches(columns=columns, row_groups=row_groups)
        while True:
            with named_errors(path):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


def rows_of(
    path: StorePath, schema: pa.Schema, row_groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file with the columns of a schema, see `conform`; arguments and errors as of `batches_of`."""
    for batch in batches_of(path, schema.names, row_groups):
        yield conform(batch, schema)
