"""The tuples of an instance, found in sorted runs by their event times; nothing else of the runs is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.operators.deadlines.instances import Extent, Integers, Mask, Tuples
from penstock.operators.joins.tuples import RunSlice


@dataclass(frozen=True, slots=True)
class Share:
    """One of the equal parts that tuples are divided into, by the places of those of each run.

    Attributes:
        number: from 0.
        of: how many there are.
    """

    number: int
    of: int

    def within(self, first: int, last: int) -> tuple[int, int]:
        """The places of this part among first, ..., last - 1: its first one, and the one behind its last."""
        rows = last - first
        return first + rows * self.number // self.of, first + rows * (self.number + 1) // self.of


#: all tuples
WHOLE = Share(0, 1)


def tuples_of(
    runs: Iterable[RunSlice], columns: Sequence[str], extents: Iterable[Extent], share: Share = WHOLE
) -> Tuples:
    """The tuples of runs whose event times lie in some extents, as they lie in memory, whichever entry they came with.

    Args:
        runs: sorted by event time alone, each tuple in one of them; of a run that does not know its entries the entry
            is that until which it is meant.
        columns: those that are given.
        extents: of which instances.
        share: which part of them.

    Raises:
        ValueError: a run is sorted by a key, or lacks a column.
    """
    tables: list[pa.Table] = []
    times = [np.zeros(0, np.int64)]
    entries = [np.zeros(0, np.int64)]
    for piece in _pieces(runs, columns, _joined(extents), share):
        table, moments, own = pa.Table.from_batches([piece.tuples]), piece.times, piece.entries
        if piece.meant is not None:
            table, moments, own = table.filter(pa.array(piece.meant)), moments[piece.meant], own[piece.meant]
        tables.append(table)
        times.append(moments)
        entries.append(own)
    joined = pa.concat_tables(tables) if tables else pa.table({name: pa.nulls(0) for name in columns})
    return Tuples(joined, np.concatenate(times), np.concatenate(entries))


def sampled_tuples(
    runs: Iterable[RunSlice], columns: Sequence[str], extent: Extent, size: int
) -> tuple[Tuples, int]:
    """A sample without replacement of the tuples of an extent, the same one each time.

    Args:
        runs, columns: as of `tuples_of`.
        extent: of an instance.
        size: tuples that are drawn; all where there are no more.

    Returns:
        The sample, and how many tuples the extent holds.

    Raises:
        ValueError: as of `tuples_of`.
    """
    pieces = list(_pieces(runs, columns, [(extent.start, extent.end)]))
    held = [np.flatnonzero(piece.held(extent)) for piece in pieces]
    ends = np.cumsum([0, *map(len, held)])
    population = int(ends[-1])
    random = np.random.default_rng([abs(extent.start), abs(extent.end), extent.entries])
    drawn = np.sort(random.choice(population, min(size, population), replace=False, shuffle=False))
    bounds = np.searchsorted(drawn, ends)
    found = []
    for number, piece in enumerate(pieces):
        places = held[number][drawn[bounds[number] : bounds[number + 1]] - ends[number]]
        table = pa.Table.from_batches([piece.tuples.take(pa.array(places))])
        found.append(Tuples(table, piece.times[places], piece.entries[places]))
    nothing = pa.table({name: pa.nulls(0) for name in columns})
    return Tuples(
        pa.concat_tables([each.columns for each in found]) if found else nothing,
        np.concatenate([np.zeros(0, np.int64), *(each.times for each in found)]),
        np.concatenate([np.zeros(0, np.int64), *(each.entries for each in found)]),
    ), population


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """Tuples of a part of a run.

    Attributes:
        tuples: some of their columns, as they lie in memory.
        times: int64[n], microseconds.
        entries: int64[n].
        meant: bool[n], which of them the slice of the run is; None: all.
    """

    tuples: pa.RecordBatch
    times: Integers
    entries: Integers
    meant: Mask | None

    def held(self, extent: Extent) -> Mask:
        """Which of them are an extent's, whose times all have."""
        own = self.entries < extent.entries
        return own if self.meant is None else own & self.meant


def _pieces(
    runs: Iterable[RunSlice],
    columns: Sequence[str],
    spans: Sequence[tuple[int, int]],
    share: Share = WHOLE,
) -> Iterator[_Piece]:
    for each in runs:
        if each.run.plan.key:
            raise ValueError(
                f"a run is sorted by {', '.join(each.run.plan.key)}; deadlines read runs sorted by event time"
            )
        if absent := [name for name in columns if name not in each.run.schema.names]:
            raise ValueError(f"a run has no column {absent[0]}; it has {', '.join(each.run.schema.names)}")
        # its types are those of the columns, though it has no tuples
        schema = pa.schema([each.run.schema.field(name) for name in columns])
        none = np.zeros(0, np.int64)
        yield _Piece(pa.RecordBatch.from_pylist([], schema=schema), none, none, None)
        for start, end in () if each.is_empty else spans:
            for number, summary in each.run.parts.items():
                oldest, newest = summary.oldest, summary.newest
                if oldest is None or newest is None or oldest >= end or newest < start:
                    continue
                part = each.run.part(number)
                assert part is not None, "it is in the directory"
                first, last = share.within(*np.searchsorted(part.times, (start, end)).tolist())
                own = np.full(last - first, each.until, np.int64)
                if part.entries is not None:
                    own = part.entries[first:last].astype(np.int64) + part.first_entry
                meant = None if each.is_whole else (own > each.after) & (own <= each.until)
                found = part.tuples.select(list(columns)).slice(first, last - first)
                yield _Piece(found, part.times[first:last], own, meant)


def _joined(extents: Iterable[Extent]) -> list[tuple[int, int]]:
    """The stretches of time that are in one of them, [start, end), ascending and apart."""
    spans: list[tuple[int, int]] = []
    for extent in sorted(extents, key=lambda each: each.start):
        if spans and extent.start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], extent.end)
        else:
            spans.append((extent.start, extent.end))
    return spans
