"""Kernels of attribute selection constructs (ASCs): building and evaluating.

| kernel | what | time |
|---|---|---|
| `fill_blocks` | supersets and listed predicates of one ASC | ranges x blocks each spans |
| `restrict` | AND one region's qrb into a GRB | used words + predicates listed in the block |
| `narrow` | evaluate one ASC for the tuples that reach it | tuples x `restrict` |
| `follow` | which ASC each survivor is evaluated by next | survivors |
| `collect` | the queries of the tuples that are left | tuples + 1-bits |

Bits are *slots*: terms, reordered so that terms over the same attributes share words. A region's
query-result bitmap (qrb) is not stored region by region, which would grow with the square of the
number of terms, but as a block's superset (the OR over the block's regions) minus the predicates
*listed* for the block, those with a bound strictly inside it. An ASC with few regions has one a block
and lists nothing: there the superset is the qrb.

Source: Lee & Lee, definition 1 and sections 3.2, 4.1-4.3, 5.1; the blocks are ours.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled

Bits = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.uint32]


class AscTables(NamedTuple):
    """The ASCs of one selection set as flat arrays (a = p-attribute, slot = reordered term).

    Attributes:
        live: uint64[W], ones at the slots in use: a GRB's first value.
        slot_query: int32[slots], the query of each slot.
        qub: uint64[n, W], query-usage bitmaps.
        run_start: int64[n + 1], each ASC's first run; a run is a stretch of words its qub uses.
        run_word, run_length: int64[runs], first word and number of words.
        used: int64[n], words used: the sum of the ASC's run lengths.
        code_start: int64[n + 1], each ASC's first entry in `block_of_code` (one a region code).
        block_of_code: int32[codes of all ASCs], block within the ASC.
        block_start: int64[n + 1], each ASC's first block.
        superset_start: int64[n], each ASC's first word in `superset`, block-major, `used` a block.
        superset: uint64, OR of the qrbs of the block's regions, used words only.
        listed_start: int64[blocks + 1], each block's first listed predicate.
        listed_word: int32, listed_mask: uint64, the predicate's word and bit.
        listed_range: int64, listed_ranges: int32, its first code range in the block and how many.
        range_low, range_high: uint32, closed code ranges.
    """

    live: Bits
    slot_query: npt.NDArray[np.int32]
    qub: Bits
    run_start: npt.NDArray[np.int64]
    run_word: npt.NDArray[np.int64]
    run_length: npt.NDArray[np.int64]
    used: npt.NDArray[np.int64]
    code_start: npt.NDArray[np.int64]
    block_of_code: npt.NDArray[np.int32]
    block_start: npt.NDArray[np.int64]
    superset_start: npt.NDArray[np.int64]
    superset: Bits
    listed_start: npt.NDArray[np.int64]
    listed_word: npt.NDArray[np.int32]
    listed_mask: Bits
    listed_range: npt.NDArray[np.int64]
    listed_ranges: npt.NDArray[np.int32]
    range_low: Codes
    range_high: Codes


@compiled()
def copy_words(target: npt.NDArray[Any], source: npt.NDArray[Any]) -> None:
    """Copies all of `source` to the front of `target`; a slice assignment compiles far slower."""
    for position in range(len(source)):
        target[position] = source[position]


@compiled()
def fill_blocks(
    predicates: npt.NDArray[np.int64],
    slots: npt.NDArray[np.int64],
    predicate_start: npt.NDArray[np.int64],
    range_low: Codes,
    range_high: Codes,
    block_of_code: npt.NDArray[np.int32],
    block_first: npt.NDArray[np.int64],
    position_of_word: npt.NDArray[np.int64],
    superset: Any,
) -> Any:
    """Sets one ASC's superset bits and lists the predicates with a bound strictly inside a block.

    Args:
        predicates: int64[P], the ASC's predicates, by ascending slot.
        slots: int64[P], their slots.
        predicate_start: int64, each predicate's first code range.
        range_low, range_high: uint32, closed code ranges.
        block_of_code: int32[codes].
        block_first: int64[blocks + 1], each block's first code.
        position_of_word: int64[W], column of a word in `superset`, -1 where the ASC does not use it.
        superset: uint64[blocks, used words], changed in place; starts as the complement of the qub.

    Returns:
        start int64[blocks + 1], word int32, mask uint64, first range int64, ranges int32.
    """
    blocks = len(block_first) - 1
    start = np.zeros(blocks + 1, np.int64)
    word = np.empty(0, np.int32)
    mask = np.empty(0, np.uint64)
    first = np.empty(0, np.int64)
    ranges = np.empty(0, np.int32)
    cursor = np.zeros(blocks, np.int64)
    for filling in range(2):
        if filling:
            for block in range(blocks):
                cursor[block] = start[block]
                start[block + 1] += start[block]
            word = np.empty(start[blocks], np.int32)
            mask = np.empty(start[blocks], np.uint64)
            first = np.empty(start[blocks], np.int64)
            ranges = np.empty(start[blocks], np.int32)
        for i in range(len(predicates)):
            slot = slots[i]
            bit = np.uint64(1) << np.uint64(slot & 63)
            column = position_of_word[slot >> 6]
            last_listed = -1
            for r in range(predicate_start[predicates[i]], predicate_start[predicates[i] + 1]):
                low, high = np.int64(range_low[r]), np.int64(range_high[r])
                low_block, high_block = block_of_code[low], block_of_code[high]
                if filling == 0:
                    for block in range(low_block, high_block + 1):
                        superset[block, column] |= bit
                for edge in range(2):
                    block = high_block if edge else low_block
                    if edge and high_block == low_block:
                        continue
                    if low <= block_first[block] and high >= block_first[block + 1] - 1:
                        continue
                    if block == last_listed:
                        if filling:
                            ranges[cursor[block] - 1] += 1
                        continue
                    last_listed = block
                    if filling == 0:
                        start[block + 1] += 1
                    else:
                        at = cursor[block]
                        cursor[block] = at + 1
                        word[at] = slot >> 6
                        mask[at] = bit
                        first[at] = r
                        ranges[at] = 1
    return start, word, mask, first, ranges


@compiled()
def ones(bits: Any) -> Any:
    """Number of 1-bits of a word."""
    bits = bits - ((bits >> np.uint64(1)) & np.uint64(0x5555555555555555))
    bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled()
def restrict(t: AscTables, grb: Bits, attribute: int, code: int) -> Any:
    """ANDs the qrb of a region into a GRB and returns how many of its words became zero."""
    block = np.int64(t.block_of_code[t.code_start[attribute] + code])
    at = t.superset_start[attribute] + block * t.used[attribute]
    emptied: Any = 0
    for run in range(t.run_start[attribute], t.run_start[attribute + 1]):
        first = t.run_word[run]
        length = t.run_length[run]
        bits = grb[first : first + length]
        qrb = t.superset[at : at + length]
        for i in range(length):
            before = bits[i]
            after = before & qrb[i]
            bits[i] = after
            emptied += np.int64(before != 0) - np.int64(after != 0)
        at += length
    listing = t.block_start[attribute] + block
    for entry in range(t.listed_start[listing], t.listed_start[listing + 1]):
        word = t.listed_word[entry]
        mask = t.listed_mask[entry]
        if grb[word] & mask:
            inside = False
            first = t.listed_range[entry]
            for r in range(first, first + t.listed_ranges[entry]):
                if t.range_low[r] <= code and code <= t.range_high[r]:
                    inside = True
                    break
            if not inside:
                grb[word] &= ~mask
                if grb[word] == 0:
                    emptied += 1
    return emptied


@compiled()
def live_words(bits: Bits) -> int:
    """Number of words that are not zero."""
    words = 0
    for i in range(len(bits)):
        words += bits[i] != 0
    return words


@compiled()
def total_ones(bits: Bits) -> int:
    """Number of 1-bits of a bitmap."""
    total = 0
    for i in range(len(bits)):
        total += ones(bits[i])
    return total


@compiled(nogil=True)
def narrow(
    t: AscTables,
    attribute: int,
    codes: npt.NDArray[np.unsignedinteger],
    rows: npt.NDArray[np.int32],
    grbs: Bits,
    counts: npt.NDArray[np.int32],
) -> int:
    """Evaluates one ASC for the tuples that reach it, and moves those that are not dropped to the front.

    Args:
        t: the ASCs.
        attribute: the ASC.
        codes: unsigned[reached], the region of each of `rows`; changed.
        rows: int32[reached], the tuples that reach the ASC; changed.
        grbs: uint64[reached, W], their GRBs; changed.
        counts: int32[tuples], ASCs evaluated so far, changed; or empty.

    Returns:
        How many are left.
    """
    kept = 0
    words = grbs.shape[1]
    first = t.block_start[attribute]
    listed = t.listed_start[t.block_start[attribute + 1]] - t.listed_start[first]
    if len(counts):
        for i in range(len(rows)):
            counts[rows[i]] += 1
    start = t.superset_start[attribute]
    blocks = t.block_of_code[t.code_start[attribute] : t.code_start[attribute + 1]]
    if words == 1 and listed == 0:
        qrbs = t.superset[start:]
        for i in range(len(rows)):
            bits = grbs[i, 0] & qrbs[blocks[codes[i]]]
            grbs[kept, 0] = bits
            rows[kept] = rows[i]
            codes[kept] = codes[i]
            kept += bits != 0
        return kept
    if t.used[attribute] == words and listed == 0:
        for i in range(len(rows)):
            at = start + blocks[codes[i]] * words
            left = np.uint64(0)
            for w in range(words):
                bits = grbs[i, w] & t.superset[at + w]
                grbs[kept, w] = bits
                left |= bits
            rows[kept] = rows[i]
            codes[kept] = codes[i]
            kept += left != 0
        return kept
    for i in range(len(rows)):
        restrict(t, grbs[i], attribute, int(codes[i]))
        left = np.uint64(0)
        for w in range(words):
            left |= grbs[i, w]
        if left != 0:
            if kept != i:
                for w in range(words):
                    grbs[kept, w] = grbs[i, w]
            rows[kept] = rows[i]
            codes[kept] = codes[i]
            kept += 1
    return kept


@compiled(nogil=True)
def follow(
    t: AscTables,
    attribute: int,
    codes: npt.NDArray[np.unsignedinteger],
    rows: npt.NDArray[np.int32],
    grbs: Bits,
    order: npt.NDArray[np.int64],
    micro: npt.NDArray[np.int16],
    evaluated: npt.NDArray[np.bool_],
    position: npt.NDArray[np.int16],
) -> Any:
    """Says which ASC each tuple is evaluated by next: its region's micro-arrow's, else the macro-sequence's.

    Args:
        t: the ASCs.
        attribute: the ASC that has just been evaluated.
        codes: unsigned[left], the region of each of `rows`.
        rows: int32[left], tuples that it has left.
        grbs: uint64[left, W], their GRBs.
        order: int64[ASCs in use], the macro-sequence.
        micro: int16[codes of all ASCs] laid out as `t.block_of_code`, -1 none.
        evaluated: bool[tuples, n], the ASCs that a tuple has been evaluated by: its GEB; changed.
        position: int16[tuples], where in `order` the first one may be that has not been; changed.

    Returns:
        rows and their GRBs by their next ASC, start int64[n + 2] (the last group has none left), micro-arrows followed.
    """
    attributes = evaluated.shape[1]
    following = np.empty(len(rows), np.int16)
    start = np.zeros(attributes + 2, np.int64)
    arrows = 0
    for i in range(len(rows)):
        row = rows[i]
        evaluated[row, attribute] = True
        at = position[row]
        while at < len(order) and evaluated[row, order[at]]:
            at += 1
        position[row] = at
        if at == len(order):
            following[i] = attributes
        else:
            following[i] = order[at]
            arrow = micro[t.code_start[attribute] + codes[i]]
            if arrow >= 0 and not evaluated[row, arrow]:
                following[i] = arrow
                arrows += 1
        start[following[i] + 1] += 1
    for a in range(attributes + 1):
        start[a + 1] += start[a]
    grouped = np.empty(len(rows), np.int32)
    grouped_grbs = np.empty(grbs.shape, np.uint64)
    cursor = start[:-1].copy()
    for i in range(len(rows)):
        place = cursor[following[i]]
        grouped[place] = rows[i]
        for w in range(grbs.shape[1]):
            grouped_grbs[place, w] = grbs[i, w]
        cursor[following[i]] = place + 1
    return grouped, grouped_grbs, start, arrows


@compiled(nogil=True)
def collect(t: AscTables, rows: npt.NDArray[np.int32], grbs: Bits, tuples: int) -> Any:
    """The queries that the GRBs still have.

    Args:
        t: the ASCs.
        rows: int32[left], the tuples that are left, ascending.
        grbs: uint64[left, W], their GRBs.
        tuples: of the batch.

    Returns:
        offsets int64[tuples + 1] and queries int32 (ascending and distinct within a tuple).
    """
    satisfied = np.zeros((t.slot_query.max() >> 6) + 1 if len(t.slot_query) else 0, np.uint64)
    offsets = np.empty(tuples + 1, np.int64)
    queries = np.empty(max(1024, 2 * len(rows)), np.int32)
    size = 0
    begun = 0
    for i in range(len(rows)):
        offsets[begun : rows[i] + 1] = size
        begun = rows[i] + 1
        for w in range(grbs.shape[1]):
            rest = grbs[i, w]
            while rest:
                low = rest & (~rest + np.uint64(1))
                rest ^= low
                query = t.slot_query[64 * w + ones(low - np.uint64(1))]
                satisfied[query >> 6] |= np.uint64(1) << np.uint64(query & 63)
        for w in range(len(satisfied)):
            rest = satisfied[w]
            satisfied[w] = 0
            while rest:
                low = rest & (~rest + np.uint64(1))
                rest ^= low
                if size == len(queries):
                    grown = np.empty(2 * size, np.int32)
                    copy_words(grown, queries)
                    queries = grown
                queries[size] = 64 * w + ones(low - np.uint64(1))
                size += 1
    offsets[begun:] = size
    return offsets, queries[:size].copy()
