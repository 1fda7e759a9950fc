"""Attribute selection constructs: shared selections answered region by region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.kernels import asc as kernels
from penstock.kernels.asc import AscTables, Bits, Codes
from penstock.operators.coding.regions import CodedSelections
from penstock.plan.arrangement import NO_ARROW, Arrangement, ArrangementKind

Scalar = TypeVar("Scalar", bound=np.generic)

#: ASCs have a block a region while their supersets fit this many words altogether; ...
_SMALL_WORDS = 1 << 19
#: ... beyond that, an ASC's blocks take this many words a predicate, which keeps memory linear.
_WORDS_A_PREDICATE = 16


#: evaluations of single tuples are not counted
_UNCOUNTED = np.empty(0, np.int32)
#: the regions of the tuples at some places of a batch, None: of all of them, by the number of the p-attribute
CodesOf = Callable[[int, npt.NDArray[np.int32] | None], npt.NDArray[np.unsignedinteger[Any]]]


#: ASCs of so many words have all of them in each region: a loop over words is faster than one over runs
_WHOLE_WORDS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What a run of an arrangement over a batch found, and its cost.

    Attributes:
        offsets: int64[tuples + 1]; tuple i satisfies queries[offsets[i]:offsets[i + 1]].
        queries: int32, ascending and distinct within a tuple.
        counts: int32[tuples], ASC evaluations of each tuple; empty where they were not asked for.
        micro_arrows: micro-arrows followed.
        dropped: tuples that satisfy no query.
        reached: int64[n], tuples that each ASC was evaluated for.
        cost_ns: int64[n], what that took, finding their regions included.
    """

    offsets: npt.NDArray[np.int64]
    queries: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    micro_arrows: int
    dropped: int
    reached: npt.NDArray[np.int64]
    cost_ns: npt.NDArray[np.int64]

    @property
    def evaluations(self) -> int:
        """ASC evaluations of all tuples: the paper's cost."""
        return int(self.reached.sum())


class AscIndex:
    """The ASCs of a selection set, built once and shared by every arrangement.

    Memory grows with terms and predicates, not with their square: see `penstock.kernels.asc`.

    Args:
        coded: the selections over region codes.
    """

    def __init__(self, coded: CodedSelections) -> None:
        self.coded = coded
        self.tables = _build(coded)
        self._cabs: dict[int, npt.NDArray[np.bool_]] = {}

    @property
    def attributes(self) -> tuple[int, ...]:
        """The p-attributes that some term uses, ascending."""
        return tuple(int(a) for a in np.flatnonzero(self.tables.used))

    @property
    def terms(self) -> int:
        """Number of terms: the bits of a GRB."""
        return len(self.tables.slot_query)

    @property
    def memory_bytes(self) -> int:
        """Size of all tables."""
        return sum(int(table.nbytes) for table in self.tables)

    def cab(self, attribute: int) -> npt.NDArray[np.bool_]:
        """Candidate-arrow bitmaps of an ASC: bool[codes, n]."""
        if attribute not in self._cabs:
            codes = self.coded.codings[attribute].codes
            self._cabs[attribute] = kernels.candidate_arrows(self.tables, attribute, codes)
        return self._cabs[attribute]

    def given_order(self) -> Arrangement:
        """The ASCs in the order of the attributes: where measuring starts."""
        return Arrangement(ArrangementKind.FIXED, self.attributes)

    def flatten(self, arrangement: Arrangement) -> npt.NDArray[np.int16]:
        """An arrangement's micro-arrows laid out as the tables' codes; empty where it has none."""
        if not arrangement.micro_arrows:
            return np.empty(0, np.int16)
        return np.concatenate(arrangement.micro)

    def no_arrows(self) -> tuple[npt.NDArray[np.int16], ...]:
        """Micro-arrow targets of every region, none set."""
        return tuple(np.full(coding.codes, NO_ARROW, np.int16) for coding in self.coded.codings)

    def stack(self, codes: Sequence[npt.NDArray[np.unsignedinteger]]) -> Codes:
        """Code arrays of all p-attributes as one uint32[n, tuples]."""
        if isinstance(codes, np.ndarray):
            return np.ascontiguousarray(codes, np.uint32)
        if not codes:
            return np.empty((0, 0), np.uint32)
        return np.stack(codes).astype(np.uint32, copy=False)

    def evaluate(self, codes: Codes, arrangement: Arrangement) -> Evaluation:
        """Runs an arrangement over uint32[n, tuples] of region codes."""

        def codes_of(attribute: int, rows: npt.NDArray[np.int32] | None) -> Codes:
            found: Codes = codes[attribute].copy() if rows is None else codes[attribute].take(rows)
            return found

        counts = np.zeros(codes.shape[1], np.int32)
        return AscEvaluator(self, arrangement).evaluate(codes_of, codes.shape[1], counts)


class AscEvaluator:
    """Answers batches by one arrangement of a selection set's ASCs, column by column.

    An ASC is evaluated for all tuples that reach it at once, and the regions of a column are worked out for them alone.
    Holds scratch space: one a thread.

    Args:
        index: the ASCs.
        arrangement: the sequence to follow; the given order where None.

    Raises:
        ValueError: the arrangement is of other p-attributes.
    """

    def __init__(self, index: AscIndex, arrangement: Arrangement | None = None) -> None:
        self.index = index
        self.arrangement = arrangement or index.given_order()
        if set(self.arrangement.order) != set(index.attributes):
            raise ValueError(
                f"the arrangement orders ASCs {sorted(self.arrangement.order)}, "
                f"the selections use {list(index.attributes)}"
            )
        self._numbers = np.empty(0, np.int32)
        self._rows = np.empty(0, np.int32)
        self._grbs = np.empty((0, len(index.tables.live)), np.uint64)

    def evaluate(
        self, codes_of: CodesOf, tuples: int, counts: npt.NDArray[np.int32] = _UNCOUNTED
    ) -> Evaluation:
        """Evaluates a batch.

        Args:
            codes_of: gives region codes as they are asked for; the arrays are overwritten.
            tuples: number of tuples.
            counts: int32[tuples], the ASC evaluations of each tuple are added; empty: they are not counted.
        """
        tables = self.index.tables
        if len(self._rows) < tuples:
            self._numbers = np.arange(tuples, dtype=np.int32)
            self._rows = np.empty(tuples, np.int32)
            self._grbs = np.empty((tuples, len(tables.live)), np.uint64)
        rows, grbs = self._rows[:tuples], self._grbs[:tuples]
        rows[:] = self._numbers[:tuples]
        grbs[:] = tables.live
        way = _Way(tables, codes_of, tuples, len(self.index.coded.codings), counts)
        micro_arrows = 0
        if not len(tables.live):
            rows, grbs = rows[:0], grbs[:0]
        elif self.arrangement.micro_arrows:
            micro = self.index.flatten(self.arrangement)
            rows, grbs, micro_arrows = way.follow_arrows(rows, grbs, self.arrangement.order, micro)
        else:
            rows, grbs = way.follow_order(rows, grbs, self.arrangement.order)
        offsets, queries = kernels.collect(tables, rows, grbs, tuples)
        return Evaluation(
            offsets, queries, counts, micro_arrows, tuples - len(rows), way.reached, way.cost_ns
        )


_Left = tuple[npt.NDArray[np.int32], Bits, npt.NDArray[np.unsignedinteger[Any]]]


class _Way:
    """The way of a batch's tuples through the ASCs.

    Attributes:
        reached: int64[n], tuples that each ASC was evaluated for.
        cost_ns: int64[n], what that took.
    """

    def __init__(
        self,
        tables: AscTables,
        codes_of: CodesOf,
        tuples: int,
        attributes: int,
        counts: npt.NDArray[np.int32],
    ) -> None:
        self._tables = tables
        self._codes_of = codes_of
        self._tuples = tuples
        self._counts = counts
        self.reached = np.zeros(attributes, np.int64)
        self.cost_ns = np.zeros(attributes, np.int64)

    def follow_order(
        self, rows: npt.NDArray[np.int32], grbs: Bits, order: Sequence[int]
    ) -> tuple[npt.NDArray[np.int32], Bits]:
        """Sends all tuples through one order; those that are left, and their GRBs."""
        for attribute in order:
            if not len(rows):
                break
            rows, grbs, _ = self._narrow(attribute, rows, grbs, is_in_order=True)
        return rows, grbs

    def follow_arrows(
        self,
        rows: npt.NDArray[np.int32],
        grbs: Bits,
        order: Sequence[int],
        micro: npt.NDArray[np.int16],
    ) -> tuple[npt.NDArray[np.int32], Bits, int]:
        """Sends each tuple where its regions' micro-arrows point to; likewise, and how many were followed."""
        attributes = len(self.reached)
        evaluated = np.zeros((self._tuples, attributes), np.bool_)
        position = np.zeros(self._tuples, np.int16)
        waiting: dict[int, list[tuple[npt.NDArray[np.int32], Bits]]] = {order[0]: [(rows, grbs)]}
        macro = np.asarray(order, np.int64)
        arrows = 0
        while any(attribute < attributes for attribute in waiting):
            # where most tuples wait, so that others may join those that wait elsewhere
            attribute = max(
                (each for each in waiting if each < attributes),
                key=lambda each: sum(len(part) for part, _ in waiting[each]),
            )
            left, left_grbs, codes = self._narrow(
                attribute, *_joined_parts(waiting.pop(attribute)), is_in_order=False
            )
            grouped, grouped_grbs, start, followed = kernels.follow(
                self._tables, attribute, codes, left, left_grbs, macro, micro, evaluated, position
            )
            arrows += int(followed)
            for following in np.flatnonzero(np.diff(start)).tolist():
                group = slice(start[following], start[following + 1])
                waiting.setdefault(following, []).append((grouped[group], grouped_grbs[group]))
        rows, grbs = _joined_parts(waiting.get(attributes, [(rows[:0], grbs[:0])]))
        ascending = np.argsort(rows)
        return rows[ascending], grbs[ascending], arrows

    def _narrow(self, attribute: int, rows: npt.NDArray[np.int32], grbs: Bits, *, is_in_order: bool) -> _Left:
        """Evaluates an ASC for some tuples; those that are left, their GRBs and their regions."""
        begun = perf_counter_ns()
        every = is_in_order and len(rows) == self._tuples
        codes = self._codes_of(attribute, None if every else rows)
        kept = kernels.narrow(self._tables, attribute, codes, rows, grbs, self._counts)
        self.reached[attribute] += len(rows)
        self.cost_ns[attribute] += perf_counter_ns() - begun
        return rows[:kept], grbs[:kept], codes[:kept]


def _joined_parts(
    parts: Sequence[tuple[npt.NDArray[np.int32], Bits]],
) -> tuple[npt.NDArray[np.int32], Bits]:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([rows for rows, _ in parts]), np.concatenate([grbs for _, grbs in parts])


def _build(coded: CodedSelections) -> AscTables:
    n = len(coded.codings)
    terms = len(coded.term_query)
    words = -(-terms // 64)
    term_of_predicate = np.repeat(np.arange(terms), np.diff(coded.term_start))
    slot_of_term = _slots(coded, n, terms, term_of_predicate)
    slot_of_predicate = slot_of_term[term_of_predicate]

    live = np.zeros(words, np.uint64)
    _set_bits(live, np.arange(terms))
    slot_query = np.empty(terms, np.int32)
    slot_query[slot_of_term] = coded.term_query
    qub = np.zeros((n, words), np.uint64)
    by_attribute = np.lexsort((slot_of_predicate, coded.predicate_attribute))
    edges = np.searchsorted(coded.predicate_attribute[by_attribute], np.arange(n + 1))

    run_word: list[npt.NDArray[np.int64]] = []
    run_length: list[npt.NDArray[np.int64]] = []
    blocks_of: list[npt.NDArray[np.int32]] = []
    supersets: list[Bits] = []
    listed: list[tuple[npt.NDArray[Any], ...]] = []
    for a in range(n):
        predicates = by_attribute[edges[a] : edges[a + 1]]
        slots = slot_of_predicate[predicates]
        _set_bits(qub[a], slots)
        in_use = np.flatnonzero(qub[a])
        if len(in_use) and words <= _WHOLE_WORDS:
            in_use = np.arange(words)
        starts = np.flatnonzero(np.diff(in_use, prepend=-2) != 1)
        run_word.append(in_use[starts])
        run_length.append(np.diff(starts, append=len(in_use)))
        blocks = _blocks(coded, predicates, coded.codings[a].codes, len(in_use))
        first = np.flatnonzero(np.diff(blocks, prepend=-1, append=blocks[-1] + 1)).astype(np.int64)
        position = np.full(words, -1, np.int64)
        position[in_use] = np.arange(len(in_use))
        superset = np.repeat(~qub[a][in_use][None, :], len(first) - 1, axis=0)
        listed.append(
            kernels.fill_blocks(
                predicates,
                slots,
                coded.predicate_start,
                coded.range_low,
                coded.range_high,
                blocks,
                first,
                position,
                superset,
            )
        )
        blocks_of.append(blocks)
        supersets.append(superset.reshape(-1))

    listed_start = [0]
    for start, *_ in listed:
        listed_start.extend((listed_start[-1] + start[1:]).tolist())
    used = np.array([int(lengths.sum()) for lengths in run_length], np.int64)
    return AscTables(
        live=live,
        slot_query=slot_query,
        qub=qub,
        run_start=_starts([len(lengths) for lengths in run_length]),
        run_word=_joined(run_word, np.int64),
        run_length=_joined(run_length, np.int64),
        used=used,
        code_start=_starts([coding.codes for coding in coded.codings]),
        block_of_code=_joined(blocks_of, np.int32),
        block_start=_starts([len(entry[0]) - 1 for entry in listed]),
        superset_start=_starts([len(superset) for superset in supersets])[:-1],
        superset=_joined(supersets, np.uint64),
        listed_start=np.asarray(listed_start, np.int64),
        listed_word=_joined([entry[1] for entry in listed], np.int32),
        listed_mask=_joined([entry[2] for entry in listed], np.uint64),
        listed_range=_joined([entry[3] for entry in listed], np.int64),
        listed_ranges=_joined([entry[4] for entry in listed], np.int32),
        range_low=coded.range_low,
        range_high=coded.range_high,
    )


def _slots(
    coded: CodedSelections, n: int, terms: int, term_of_predicate: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Slot of every term: terms over the same attributes side by side, popular attributes first."""
    popularity = np.bincount(coded.predicate_attribute, minlength=n)
    rank = np.empty(n, np.int64)
    rank[np.argsort(-popularity, kind="stable")] = np.arange(n)
    attribute_sets = np.zeros((max(1, -(-n // 64)), terms), np.uint64)
    ranks = rank[coded.predicate_attribute]
    np.bitwise_or.at(
        attribute_sets,
        (ranks >> 6, term_of_predicate),
        np.uint64(1) << (63 - (ranks & 63)).astype(np.uint64),
    )
    slot = np.empty(terms, np.int64)
    slot[np.lexsort(attribute_sets[::-1])] = np.arange(terms)
    return slot


def _blocks(
    coded: CodedSelections, predicates: npt.NDArray[np.int64], codes: int, used: int
) -> npt.NDArray[np.int32]:
    """Block of every region code, ascending; cut so that blocks hold equally many bounds."""
    share = _SMALL_WORDS // len(coded.codings)
    limit = max(share, _WORDS_A_PREDICATE * len(predicates)) // max(1, used)
    if codes <= limit or not used:
        return np.arange(codes, dtype=np.int32)
    ranges = np.concatenate(
        [np.arange(coded.predicate_start[p], coded.predicate_start[p + 1]) for p in predicates]
    )
    bounds = np.bincount(coded.range_low[ranges], minlength=codes + 1)
    bounds += np.bincount(coded.range_high[ranges].astype(np.int64) + 1, minlength=codes + 1)
    before = np.cumsum(bounds[:codes])
    block = before * max(1, limit) // max(1, before[-1] + 1)
    return np.cumsum(np.diff(block, prepend=block[0]) > 0).astype(np.int32)


def _set_bits(bits: Bits, slots: npt.NDArray[np.int64]) -> None:
    np.bitwise_or.at(bits, slots >> 6, np.uint64(1) << (slots & 63).astype(np.uint64))


def _starts(lengths: Sequence[int]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))]).astype(np.int64)


def _joined(arrays: Sequence[npt.NDArray[Any]], dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    return np.concatenate([np.empty(0, dtype), *arrays]).astype(dtype, copy=False)
