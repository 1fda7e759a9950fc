"""The tuples of an instance, found in sorted runs by their event times; nothing else of the runs is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from penstock.operators.deadlines.instances import Extent, Tuples
from penstock.operators.joins.tuples import RunSlice


def tuples_of(runs: Iterable[RunSlice], columns: Sequence[str], extents: Iterable[Extent]) -> Tuples:
    """The tuples of runs whose event times lie in some extents, as they lie in memory, whichever entry they came with.

    Args:
        runs: sorted by event time alone, each tuple in one of them; of a run that does not know its entries the entry
            is that until which it is meant.
        columns: those that are given.
        extents: of which instances.

    Raises:
        ValueError: a run is sorted by a key, or lacks a column.
    """
    spans = _joined(extents)
    tables: list[pa.Table] = []
    times = [np.zeros(0, np.int64)]
    entries = [np.zeros(0, np.int64)]
    for each in runs:
        if each.run.plan.key:
            raise ValueError(
                f"a run is sorted by {', '.join(each.run.plan.key)}; deadlines read runs sorted by event time"
            )
        if absent := [name for name in columns if name not in each.run.schema.names]:
            raise ValueError(f"a run has no column {absent[0]}; it has {', '.join(each.run.schema.names)}")
        tables.append(each.run.schema.empty_table().select(list(columns)))
        for start, end in () if each.is_empty else spans:
            for number, summary in each.run.parts.items():
                oldest, newest = summary.oldest, summary.newest
                if oldest is None or newest is None or oldest >= end or newest < start:
                    continue
                part = each.run.part(number)
                assert part is not None, "it is in the directory"
                first, last = np.searchsorted(part.times, (start, end)).tolist()
                found = part.tuples.select(list(columns)).slice(first, last - first)
                own = np.full(last - first, each.until, np.int64)
                if part.entries is not None:
                    own = part.entries[first:last].astype(np.int64) + part.first_entry
                table, moments = pa.Table.from_batches([found]), part.times[first:last]
                if not each.is_whole:
                    meant = (own > each.after) & (own <= each.until)
                    table, moments, own = table.filter(pa.array(meant)), moments[meant], own[meant]
                tables.append(table)
                times.append(moments)
                entries.append(own)
    joined = pa.concat_tables(tables) if tables else pa.table({name: pa.nulls(0) for name in columns})
    return Tuples(joined, np.concatenate(times), np.concatenate(entries))


def _joined(extents: Iterable[Extent]) -> list[tuple[int, int]]:
    """The stretches of time that are in one of them, [start, end), ascending and apart."""
    spans: list[tuple[int, int]] = []
    for extent in sorted(extents, key=lambda each: each.start):
        if spans and extent.start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], extent.end)
        else:
            spans.append((extent.start, extent.end))
    return spans
