"""The tables of attribute selection constructs, laid out from selections over region codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.kernels import asc as kernels
from penstock.kernels.asc import AscTables, Bits
from penstock.operators.coding.regions import CodedSelections

Scalar = TypeVar("Scalar", bound=np.generic)

#: ASCs have a block a region while their supersets fit this many words altogether; ...
_SMALL_WORDS = 1 << 19
#: ... beyond that, an ASC's blocks take this many words a predicate, which keeps memory linear.
_WORDS_A_PREDICATE = 16


#: ASCs of so many words have all of them in each region: a loop over words is faster than one over runs
_WHOLE_WORDS = 16


def build_tables(coded: CodedSelections) -> AscTables:
    """The ASCs of some selections, one a p-attribute."""
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
