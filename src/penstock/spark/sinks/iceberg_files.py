"""Data files of an Iceberg table, rewritten: for keys that change, and for small files that are merged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.results.stored_rows import Ints
from penstock.spark.sinks.delivery import IS_FINAL, Upserts, flat_keys

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import FileScanTask, Table, Transaction

#: files below this size are merged, and so many of one partition at the least
_SMALL_BYTES, _LEAST_FILES = 16 << 20, 8
#: compressed bytes that are merged at once
_MERGED_BYTES = 256 << 20
#: types whose least and greatest value tell which files may have a key
_ORDERED = (pa.types.is_integer, pa.types.is_string, pa.types.is_date32, pa.types.is_timestamp)


def upsert(change: Transaction, told: dict[str, str], changed: Upserts, key: Sequence[str]) -> None:
    """Stage a snapshot that has the new rows of some keys in place of the old ones.

    Args:
        change: of the table.
        told: what the summary says.
        changed: rows by key; a final row is replaced by a final one only.
        key: its columns.
    """
    tasks = _files_that_may_have(change, changed, key)
    has_final = IS_FINAL in changed.rows.column_names
    wanted = [*key, *([IS_FINAL] if has_final else [])]
    found = [_read(change, task, wanted) for task in tasks]
    ids = _key_ids([flat_keys(each, key) for each in (changed.rows, changed.deleted, *found)])
    new, gone, there = ids[0], ids[1], ids[2:]
    kept = np.zeros(1 + max((int(each.max()) for each in ids if len(each)), default=0), np.bool_)
    replaced = [np.isin(each, np.concatenate([new, gone])) for each in there]
    if has_final:
        early = np.concatenate([new[~_flags(changed.rows)], gone[~_flags(changed.deleted)]])
        for each, rows, old in zip(replaced, found, there, strict=True):
            final = _flags(rows) & np.isin(old, early)
            kept[old[final]] = True
            each &= ~final
    rows = changed.rows.filter(pa.array(~kept[new]))
    hit = [(task, mask) for task, mask in zip(tasks, replaced, strict=True) if mask.any()]
    others = [_read(change, task).filter(pa.array(~mask)) for task, mask in hit]
    _rewrite(change, told, [task for task, _ in hit], [*others, rows])


def merge_small(change: Transaction, told: dict[str, str]) -> bool:
    """Stage a snapshot in which small files of a partition are one file.

    Args:
        change: of the table.
        told: what the summary says.

    Returns:
        Whether there is something to merge.
    """
    spec = change.table_metadata.default_spec_id
    small: dict[Any, list[FileScanTask]] = defaultdict(list)
    for task in change._scan().plan_files():
        if task.file.file_size_in_bytes < _SMALL_BYTES and task.file.spec_id == spec:
            partition = task.file.partition
            small[tuple(partition[place] for place in range(len(partition)))].append(task)
    merged: list[FileScanTask] = []
    size = 0
    for tasks in (each for each in small.values() if len(each) >= _LEAST_FILES):
        for task in tasks:
            if size >= _MERGED_BYTES:
                break
            merged.append(task)
            size += task.file.file_size_in_bytes
    if merged:
        _rewrite(change, told, merged, [_read(change, task) for task in merged])
    return bool(merged)


def _rewrite(
    change: Transaction, told: dict[str, str], tasks: Iterable[FileScanTask], rows: Sequence[pa.Table]
) -> None:
    from pyiceberg.io.pyarrow import _dataframe_to_data_files, schema_to_pyarrow

    schema = schema_to_pyarrow(change.table_metadata.schema(), include_field_ids=False)
    whole = pa.concat_tables([_fitted(each, schema) for each in rows])
    with change.update_snapshot(snapshot_properties=told).overwrite() as files:
        for task in tasks:
            files.delete_data_file(task.file)
        if whole.num_rows:
            written = _dataframe_to_data_files(
                change.table_metadata, whole, change._table.io, files.commit_uuid
            )
            for each in written:
                files.append_data_file(each)


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with all columns of a table."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=pa.schema([pa.field(each.name, each.type) for each in schema]))


def _read(change: Transaction, task: FileScanTask, columns: Sequence[str] | None = None) -> pa.Table:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    metadata = change.table_metadata
    schema = metadata.schema()
    if columns is not None:
        schema = schema.select(*columns)
    return ArrowScan(metadata, change._table.io, schema, AlwaysTrue()).to_table([task])


def _key_ids(keys: Sequence[pa.Table]) -> list[Ints]:
    """A number for each row, the same for the same key and for no other; NULL is a value."""
    schema = keys[0].schema
    whole = pa.concat_tables([each.cast(schema) for each in keys])
    ids = np.zeros(whole.num_rows, np.int64)
    for column in whole.columns:
        codes = column.combine_chunks().dictionary_encode(null_encoding="encode").indices
        values = codes.to_numpy(zero_copy_only=False).astype(np.int64)
        ids = np.unique(ids * (1 + values.max(initial=0)) + values, return_inverse=True)[1]
    ends = np.cumsum([each.num_rows for each in keys])[:-1]
    return [np.asarray(each, np.int64) for each in np.split(ids, ends)]


def _flags(rows: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
    flags: np.ndarray[Any, np.dtype[np.bool_]] = (
        pc.fill_null(rows.column(IS_FINAL), False).combine_chunks().to_numpy(zero_copy_only=False)
    )
    return flags.astype(np.bool_)


def _files_that_may_have(change: Transaction, changed: Upserts, key: Sequence[str]) -> list[FileScanTask]:
    from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator

    # a scan with a condition fails where a partition is of NULL
    tasks = change._scan().plan_files()
    may_have = _InclusiveMetricsEvaluator(change.table_metadata.schema(), _condition(changed, key)).eval
    return [task for task in tasks if may_have(task.file)]


def _condition(changed: Upserts, key: Sequence[str]) -> BooleanExpression:
    """What files must fulfil that have one of the keys, by the least and greatest values of the key's columns."""
    from pyiceberg.expressions import (
        AlwaysTrue,
        And,
        GreaterThanOrEqual,
        IsNull,
        LessThanOrEqual,
        Or,
        Reference,
    )
    from pyiceberg.expressions.literals import literal

    condition: BooleanExpression = AlwaysTrue()
    keys = pa.concat_tables([changed.rows.select(list(key)), changed.deleted.select(list(key))])
    for name in key:
        column, place = keys.column(name), name
        if pa.types.is_struct(column.type) and column.type.num_fields and not column.null_count:
            first = column.type.field(0).name
            column, place = pc.struct_field(column, first), f"{name}.{first}"
        if not any(each(column.type) for each in _ORDERED):
            continue
        ends = pc.min_max(column).as_py()
        if ends["min"] is None:
            continue
        term = Reference(place)
        between: BooleanExpression = And(
            GreaterThanOrEqual(term=term, value=literal(ends["min"])),
            LessThanOrEqual(term=term, value=literal(ends["max"])),
        )
        condition = And(condition, Or(between, IsNull(term=term)) if column.null_count else between)
    return condition


def delete_unreached(table: Table, expired: Iterable[Any]) -> None:
    """Delete the files of snapshots that have expired, but for those that another snapshot has.

    Args:
        table: as it is without them.
        expired: the snapshots.
    """
    io, seen = table.io, {}
    lists = {each.manifest_list for each in expired}
    for each in expired:
        seen.update({one.manifest_path: one for one in each.manifests(io)})
    reached = {one.manifest_path: one for each in table.snapshots() for one in each.manifests(io)}
    dropped = {path: one for path, one in seen.items() if path not in reached}
    data = {
        entry.data_file.file_path for one in dropped.values() for entry in one.fetch_manifest_entry(io, False)
    }
    if data:
        for one in reached.values():
            data -= {entry.data_file.file_path for entry in one.fetch_manifest_entry(io)}
    lists -= {each.manifest_list for each in table.snapshots()}
    for path in (*data, *dropped, *lists):
        try:
            io.delete(path)
        except FileNotFoundError:
            continue
