"""Attribute selection constructs: shared selections answered region by region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What a run of an arrangement over a batch found, and its cost.

    Attributes:
        offsets: int64[tuples + 1]; tuple i satisfies queries[offsets[i]:offsets[i + 1]].
        queries: int32, ascending and distinct within a tuple.
        counts: int32[tuples], ASC evaluations of each tuple.
        micro_arrows: micro-arrows followed.
        dropped: tuples that satisfy no query.
    """

    offsets: npt.NDArray[np.int64]
    queries: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    micro_arrows: int
    dropped: int

    @property
    def evaluations(self) -> int:
        """ASC evaluations of all tuples: the paper's cost."""
        return int(self.counts.sum())

    @property
    def micro_ratio(self) -> float:
        """Micro-arrows followed over arrows followed (xi); 0 where there were none."""
        arrows = self.evaluations - int(np.count_nonzero(self.counts))
        return self.micro_arrows / arrows if arrows else 0.0


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
        offsets, queries, counts, micro_arrows, dropped = kernels.evaluate(
            self.tables, codes, np.asarray(arrangement.order, np.int64), self.flatten(arrangement)
        )
        return Evaluation(offsets, queries, counts, int(micro_arrows), int(dropped))


class AscEvaluator:
    """Answers batches by one arrangement of a selection set's ASCs.

    Args:
        selections: the selections over region codes, or the index built from them.
        arrangement: the sequence to follow; the given order where None.
    """

    def __init__(
        self, selections: CodedSelections | AscIndex, arrangement: Arrangement | None = None
    ) -> None:
        self.index = selections if isinstance(selections, AscIndex) else AscIndex(selections)
        self.arrangement = arrangement or self.index.given_order()
        if set(self.arrangement.order) != set(self.index.attributes):
            raise ValueError(
                f"the arrangement orders ASCs {sorted(self.arrangement.order)}, "
                f"the selections use {list(self.index.attributes)}"
            )

    def evaluate(self, codes: Sequence[npt.NDArray[np.unsignedinteger]], rows: int) -> Evaluation:
        """Evaluates a batch.

        Args:
            codes: region codes, one array a p-attribute, `rows` long each.
            rows: number of tuples (a selection set may have no p-attribute).
        """
        stacked = self.index.stack(codes) if len(codes) else np.empty((0, rows), np.uint32)
        return self.index.evaluate(stacked, self.arrangement)


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
