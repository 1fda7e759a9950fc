"""Joined rows as record batches: columns are decoded at the end, for rows that are told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from penstock.operators.joins.measures import DecodeMeasure, timing
from penstock.operators.joins.steps import Rows
from penstock.operators.joins.tuples import CellTuples
from penstock.plan.joins import JoinPlan

#: bytes of strings in a batch, unless a single row has more
TEXT_BYTES = 64 << 20


def owned(plan: JoinPlan, columns: Sequence[str]) -> list[tuple[str, int]]:
    """Columns with the inputs they are of.

    Raises:
        ValueError: there are none, or the inputs do not have one of them.
    """
    owners = {column.name: number for number, each in enumerate(plan.inputs) for column in each.columns}
    if not columns or not set(columns) <= owners.keys():
        raise ValueError(
            f"join {plan.name}: columns {', '.join(columns) or 'none'} of {', '.join(sorted(owners))}"
        )
    return [(name, owners[name]) for name in columns]


def decoded(
    rows: Rows,
    tuples: Mapping[int, CellTuples],
    columns: Sequence[tuple[str, int]],
    text_bytes: int,
    measure: DecodeMeasure,
) -> Iterator[pa.RecordBatch]:
    """Joined rows as record batches: one, or several where its strings would have too many bytes.

    Args:
        rows: the joined rows, at least one.
        tuples: by input those that the rows' ids are of.
        columns: `owned` ones.
        text_bytes: a batch of several rows has no more bytes of strings than this.
        measure: what is done is added to it.
    """
    count = len(next(iter(rows.values())))
    with timing(measure):
        found = [(tuples[number].column(name), rows[number]) for name, number in columns]
        ends = [column.ends(ids) if column.is_text else None for column, ids in found]
        is_small = count == 1 or sum(int(each[-1]) for each in ends if each is not None) <= text_bytes
        if is_small:
            arrays = [column.take(ids, each) for (column, ids), each in zip(found, ends, strict=True)]
            batch = pa.RecordBatch.from_arrays(arrays, [name for name, _ in columns])
            measure.rows += count
    if is_small:
        yield batch
        return
    for part in (slice(0, count // 2), slice(count // 2, count)):
        half = {number: ids[part] for number, ids in rows.items()}
        yield from decoded(half, tuples, columns, text_bytes, measure)
