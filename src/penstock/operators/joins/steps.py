"""One step of a probe order: joined rows meet the tuples of one more input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.gather import Ids, pick
from penstock.kernels.partners import (
    Ranges,
    Table,
    bucket_ranges,
    bucketed,
    list_places,
    list_rows,
    narrow,
    search,
)
from penstock.kernels.radix import radix_order
from penstock.operators.joins.columns import Bools
from penstock.operators.joins.conditions import (
    ALL_TIMES,
    bounds_of,
    compare,
    comparisons_of,
    equal,
    equalities_of,
    kept,
    source_of,
)
from penstock.operators.joins.measures import StepMeasure, building, timing
from penstock.operators.joins.tuples import WHOLE, CellTuples, Slot, Stripe
from penstock.operators.runs.run import hash_numbers, is_ordinal
from penstock.plan.joins import JoinPlan, Method, ProbeStep

Ints = npt.NDArray[np.int64]
#: joined rows of a piece, unless told otherwise
PIECE_ROWS = 1 << 16
#: nested loops look at no more tuples than this for a piece of joined rows: past it, a step that has a key searches by hash
NESTED_TUPLES = 1 << 22
#: joined rows: of each input joined so far the ids of its tuples
Rows = dict[int, Ids]


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """What joined rows search an input for.

    Attributes:
        rows: the joined rows, ascending by `numbers`.
        numbers: int64[rows], their keys' numbers; zeros where they search without a key.
        low, high: int64[rows], event times of partners, microseconds, both inclusive.
    """

    rows: Rows
    numbers: Ints
    low: Ints
    high: Ints


class Step:
    """A step of a probe order in a cell.

    Nested loops are chosen for few tuples, by rates of before; a burst is searched by hash (see `NESTED_TUPLES`).

    Args:
        plan: the join.
        step: the step.
        tuples: by input those of the cell, in the sort order this probe order reads.
        joined: the inputs joined before.
        slots: those of the input's slots that take part.
        span: event times that partners of the new tuples may have, microseconds, both inclusive.
        piece_rows: joined rows are made in pieces of about so many.
        measure: what is done is added to it.
        any_partner: not all partners are asked for, but at least one of each row that has some.

    Raises:
        ValueError: the plan does not allow the step, or runs are not sorted for it.
    """

    def __init__(
        self,
        plan: JoinPlan,
        step: ProbeStep,
        tuples: Mapping[int, CellTuples],
        joined: tuple[int, ...],
        slots: Sequence[Slot],
        span: tuple[int, int],
        piece_rows: int,
        measure: StepMeasure,
        *,
        any_partner: bool = False,
    ) -> None:
        self._plan, self._step, self._tuples, self._measure = plan, step, tuples, measure
        self._target = tuples[step.input]
        self._piece_rows = piece_rows
        self._slots = [slot for slot in slots if _meets(slot, *span)]
        self._span = span
        self._bounds = bounds_of(plan, step.input, joined)
        self._source = None if step.key is None else source_of(plan, step.key, joined)
        #: sorted parts are searched as they lie, else a table is made
        self._as_it_lies = step.method is Method.MERGE or (
            step.method is Method.NESTED and self._target.key is None
        )
        #: the key that is searched by, in the order that is searched
        self._searched = self._target.key if self._as_it_lies else step.key
        settled = self._searched
        if settled is not None and not is_ordinal(pa.schema([("key", plan.keys[settled].type)]), ("key",)):
            settled = None
        self._equalities = equalities_of(plan, step.input, joined, settled)
        self._comparisons = comparisons_of(plan, step.input, joined)
        #: whether the first pair of a range tells as much as all of them
        self._one_is_enough = any_partner and not self._equalities and not self._comparisons
        self._tables: dict[Method, Table] = {}

    def partners(self, pieces: Iterator[Rows]) -> Iterator[Rows]:
        """The joined rows with their partners in the input, in pieces of at most `piece_rows`."""
        for rows in pieces:
            with timing(self._measure):
                self._measure.tuples += len(next(iter(rows.values())))
                probe = self._probe(rows)
            if not len(probe.numbers):
                continue
            found = self._in_parts(probe) if self._as_it_lies else self._in_table(probe, *self._table(probe))
            while True:
                with timing(self._measure):
                    piece = next(found, None)
                    if piece is not None:
                        piece = self._judged(piece)
                        self._measure.pairs += len(piece[self._step.input])
                if piece is None:
                    break
                yield piece

    def _probe(self, rows: Rows) -> Probe:
        count = len(next(iter(rows.values())))
        numbers, valid = np.zeros(count, np.int64), None
        if self._searched is not None:
            assert self._source is not None, "a step that searches by a key has one"
            numbers, valid = key_numbers(self._plan, self._tuples, self._source, self._searched, rows)
        if valid is not None:
            rows, numbers = kept(rows, valid), numbers[valid]
        low, high = (np.full(len(numbers), limit) for limit in ALL_TIMES)
        for bound in self._bounds:
            times = self._tuples[bound.source].times.words(rows[bound.source])
            assert times is not None, "event times are whole numbers"
            narrow(times, bound.lower, bound.upper, low, high)
        if self._step.method is Method.HASH or not (numbers[1:] < numbers[:-1]).any():
            return Probe(rows, numbers, low, high)
        order = _ascending(numbers)
        return Probe(
            {number: ids[order] for number, ids in rows.items()}, numbers[order], low[order], high[order]
        )

    def _in_parts(self, probe: Probe) -> Iterator[Rows]:
        ranges, used = self._ranges(probe)
        entries, after, until = self._target.entries
        if self._one_is_enough and not entries.any():
            np.minimum(ranges.counts[:used], 1, out=ranges.counts[:used])
        cursor = np.zeros(3, np.int64)
        while cursor[0] < used:
            before = int(cursor[2])
            tuples, ids = np.empty(self._piece_rows, np.int32), np.empty(self._piece_rows, np.int64)
            filled = list_rows(ranges, used, cursor, entries, after, until, tuples, ids)
            self._measure.looked += int(cursor[2]) - before
            yield self._joined(probe, tuples[:filled], ids[:filled])

    def _ranges(self, probe: Probe) -> tuple[Ranges, int]:
        """Possible partners in sorted parts, and how many ranges there are."""
        oldest, newest = int(probe.low.min()), int(probe.high.max())
        slots = [slot for slot in self._slots if _meets(slot, oldest, newest)]
        ranges = _no_ranges(len(probe.numbers) * len(slots))
        used, count = 0, len(probe.numbers)
        for slot in slots:
            keys, times = _fixed(slot.part.keys), _fixed(slot.part.times)
            self._measure.probes += count * (1 + log2(1 + len(keys) / count))
            used = search(probe.numbers, probe.low, probe.high, keys, times, slot.number << 32, ranges, used)
        return ranges, used

    def _in_table(self, probe: Probe, method: Method, table: Table) -> Iterator[Rows]:
        ranges = _no_ranges(len(probe.numbers))
        if method is Method.HASH:
            used = bucket_ranges(table, probe.numbers, ranges)
        else:
            zeros = np.zeros(len(table.ids), np.int8)
            searched = np.zeros(len(probe.numbers), np.int64)
            used = search(searched, probe.low, probe.high, _fixed(zeros), _fixed(table.times), 0, ranges, 0)
        cursor = np.zeros(3, np.int64)
        while cursor[0] < used:
            before = int(cursor[2])
            tuples, ids = np.empty(self._piece_rows, np.int32), np.empty(self._piece_rows, np.int64)
            filled = list_places(
                ranges, used, cursor, table, probe.numbers, probe.low, probe.high, tuples, ids
            )
            self._measure.looked += int(cursor[2]) - before
            yield self._joined(probe, tuples[:filled], ids[:filled])

    def _table(self, probe: Probe) -> tuple[Method, Table]:
        """How joined rows are searched for, and in which table."""
        method, table = self._step.method, self._kept_table(self._step.method)
        is_burst = len(probe.numbers) * len(table.ids) > NESTED_TUPLES
        if method is Method.NESTED and is_burst and self._step.key is not None:
            method, table = Method.HASH, self._kept_table(Method.HASH)
        return method, table

    def _kept_table(self, method: Method) -> Table:
        if method not in self._tables:
            with building(self._measure):
                self._tables[method] = self._made(method)
        return self._tables[method]

    def _made(self, method: Method) -> Table:
        """Those of the input's tuples that may be partners, by hash of the key or by event time."""
        low, high = self._span
        every: list[tuple[Ids, Ints, Ints]] = []
        for slot in self._slots:
            times = slot.part.times
            if self._bounds:
                rows = slot.rows()
                rows = rows[(times[rows] >= low) & (times[rows] <= high)]
                own = times[rows]
            else:
                rows = slot.rows()
                own = np.zeros(len(rows), np.int64)
            ids = rows + (slot.number << 32)
            numbers = np.zeros(len(ids), np.int64)
            if self._step.key is not None:
                target = self._step.input
                numbers, valid = key_numbers(self._plan, self._tuples, target, self._step.key, {target: ids})
                if valid is not None:
                    ids, numbers, own = ids[valid], numbers[valid], own[valid]
            every.append((ids, numbers, own))
        ids, numbers, times = (
            np.concatenate([np.zeros(0, np.int64), *(each[place] for each in every)]) for place in range(3)
        )
        self._measure.built += len(ids)
        if method is Method.HASH:
            return bucketed(ids, numbers, times, max(1, int(len(ids) - 1).bit_length()))
        order = _ascending(times)
        return Table(ids[order], numbers[order], times[order], np.zeros(0, np.int64))

    def _joined(self, probe: Probe, tuples: npt.NDArray[np.int32], ids: Ids) -> Rows:
        rows = {number: pick(own, tuples) for number, own in probe.rows.items()}
        rows[self._step.input] = ids
        return rows

    def _judged(self, rows: Rows) -> Rows:
        """Those of the joined rows that satisfy what can be judged now."""
        for each in self._equalities:
            left = self._tuples[each.left].column(each.left_column)
            right = self._tuples[each.right].column(each.right_column)
            rows = _where(rows, equal(left, rows[each.left], right, rows[each.right]))
        for one, other, comparison in self._comparisons:
            left = self._tuples[one].column(comparison.left)
            right = self._tuples[other].column(comparison.right)
            rows = _where(rows, compare(comparison.operator, left, rows[one], right, rows[other]))
        return rows


def key_numbers(
    plan: JoinPlan, tuples: Mapping[int, CellTuples], source: int, key: int, rows: Rows
) -> tuple[Ints, Bools | None]:
    """What tuples are searched for by a key, int64[rows], and which have it (None: all).

    Args:
        plan: the join.
        tuples: by input those of the cell.
        source: the input of the tuples.
        key: number of the key.
        rows: joined rows.
    """
    ids = rows[source]
    if tuples[source].key == key:
        numbers = tuples[source].numbers.words(ids)
        assert numbers is not None, "they are whole numbers"
        return numbers, None
    name = plan.keys[key].columns[source]
    assert name is not None, "the input has a part in the key"
    column = tuples[source].column(name)
    valid = column.valid(ids)
    if is_ordinal(pa.schema([(name, column.type)]), (name,)):
        numbers = column.words(ids)
        assert numbers is not None, "ordinal types have words"
        return numbers, valid
    return hash_numbers(pa.table({name: column.take(ids)}), (name,)).astype(np.int64), valid


def rows_of(number: int, slots: Iterable[Slot], piece_rows: int, stripe: Stripe = WHOLE) -> Iterator[Rows]:
    """The tuples of an input's slots that are meant, not loose and of a stripe, in pieces of at most so many."""
    for slot in slots:
        ids = stripe.of_slot(slot)
        for begin in range(0, len(ids), piece_rows):
            yield {number: ids[begin : begin + piece_rows]}


def coalesced(pieces: Iterator[Rows], rows: int) -> Iterator[Rows]:
    """Pieces put together until they have at least so many rows; the last may have fewer, empty ones go."""
    held: list[Rows] = []
    count = 0
    for piece in pieces:
        own = len(next(iter(piece.values())))
        if not own:
            continue
        held.append(piece)
        count += own
        if count >= rows:
            yield _together(held)
            held, count = [], 0
    if held:
        yield _together(held)


def _together(pieces: Sequence[Rows]) -> Rows:
    if len(pieces) == 1:
        return pieces[0]
    return {number: np.concatenate([piece[number] for piece in pieces]) for number in pieces[0]}


def _where(rows: Rows, which: Bools) -> Rows:
    return rows if which.all() else kept(rows, which)


def _meets(slot: Slot, low: int, high: int) -> bool:
    """Whether rows of a slot may have an event time in a span."""
    summary = slot.part.summary
    if summary.oldest is None or summary.newest is None:
        return False
    return summary.oldest <= high and summary.newest >= low


def _ascending(numbers: Ints) -> npt.NDArray[np.uint32]:
    """The order of whole numbers."""
    order = np.arange(len(numbers), dtype=np.uint32)
    if not len(numbers):
        return order
    low, high = int(numbers.min()), int(numbers.max())
    words = numbers.astype(np.uint64) - np.uint64(low & (2**64 - 1))
    return radix_order(words, (high - low).bit_length(), order)


def _no_ranges(room: int) -> Ranges:
    return Ranges(np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room, np.int32))


def _fixed(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numbers as kernels are compiled for them: read-only, whether they lie in a mapped file or were made."""
    view = numbers.view()
    view.flags.writeable = False
    return view
