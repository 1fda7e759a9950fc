"""Kernels that measure what attribute selection constructs (ASCs) would do in a sequence, on sampled tuples.

| kernel | what | time |
|---|---|---|
| `passed_bits` | evaluation instances passed, every candidate | distinct regions x `restrict` |
| `drop_counts` | tuples dropped, every candidate | tuples x candidates x `restrict` |
| `failures_after` | what each next ASC fails, tuple by tuple | tuples x candidates x `restrict` |
| `candidate_arrows` | cab of every region of one ASC | regions x (words + p-attributes) |

Source: Lee & Lee, sections 4.1 to 4.3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.asc import AscTables, Bits, Codes, copy_words, live_words, restrict, total_ones
from penstock.kernels.compiled import compiled


@compiled()
def _first_unevaluated(
    geb: npt.NDArray[np.int64], row: int, order: npt.NDArray[np.int64], position: int
) -> int:
    while geb[order[position]] == row:
        position += 1
    return position


@compiled()
def passed_bits(t: AscTables, codes: Codes, uncovered: Bits, candidates: npt.NDArray[np.int64]) -> Any:
    """Counts the evaluation instances each candidate passes: EI of definition 3.

    The sequence so far has no predicate of an uncovered term, so its GRB is all ones there.

    Args:
        t: the ASCs.
        codes: uint32[n, tuples], the tuples of one period.
        uncovered: uint64[W], the terms no ASC of the sequence covers.
        candidates: int64, the ASCs to measure.

    Returns:
        int64[candidates], ones left at the uncovered terms, summed over the tuples.
    """
    passed = np.zeros(len(candidates), np.int64)
    grb = np.empty(len(uncovered), np.uint64)
    for c in range(len(candidates)):
        attribute = candidates[c]
        known = np.full(t.code_start[attribute + 1] - t.code_start[attribute], -1, np.int64)
        for row in range(codes.shape[1]):
            code = codes[attribute, row]
            if known[code] < 0:
                copy_words(grb, uncovered)
                restrict(t, grb, attribute, code)
                known[code] = total_ones(grb)
            passed[c] += known[code]
    return passed


@compiled()
def drop_counts(
    t: AscTables, codes: Codes, sequence: npt.NDArray[np.int64], candidates: npt.NDArray[np.int64]
) -> Any:
    """Counts the tuples dropped by a sequence extended by each candidate: definition 4.

    Args:
        t: the ASCs.
        codes: uint32[n, tuples], the tuples of one period.
        sequence: int64, the ASCs before the candidate.
        candidates: int64, the ASCs to measure.

    Returns:
        int64[candidates], tuples whose GRB is zero after sequence and candidate.
    """
    dropped = np.zeros(len(candidates), np.int64)
    words = live_words(t.live)
    before = np.empty(len(t.live), np.uint64)
    after = np.empty(len(t.live), np.uint64)
    for row in range(codes.shape[1]):
        copy_words(before, t.live)
        live = words
        for attribute in sequence:
            live -= restrict(t, before, attribute, codes[attribute, row])
        for c in range(len(candidates)):
            left = live
            if left > 0:
                copy_words(after, before)
                left -= restrict(t, after, candidates[c], codes[candidates[c], row])
            dropped[c] += left == 0
    return dropped


@compiled()
def failures_after(
    t: AscTables,
    codes: Codes,
    order: npt.NDArray[np.int64],
    micro: npt.NDArray[np.int16],
    depth: int,
) -> Any:
    """Lets tuples visit `depth` ASCs and measures what each ASC would fail as the next one.

    Args:
        t: the ASCs.
        codes: uint32[n, tuples], the tuples of one period.
        order: int64[ASCs in use], the macro-sequence.
        micro: int16[codes of all ASCs], the micro-arrows known so far, -1 none.
        depth: ASCs visited before, at least 1 and less than the ASCs in use.

    Returns:
        at int32[tuples], the ASC visited last, -1 where the tuple was dropped before;
        macro int32[tuples], the target of the tuple's macro-arrow;
        covering bool[tuples], whether the ASCs visited are a cover set;
        failed int64[tuples, n], live bits the ASC would clear, -1 where it is evaluated already;
        emptied bool[tuples, n], whether none would be left.
    """
    n, tuples = codes.shape
    words = len(t.live)
    all_live = live_words(t.live)
    at = np.full(tuples, -1, np.int32)
    macro = np.full(tuples, -1, np.int32)
    covering = np.zeros(tuples, np.bool_)
    failed = np.full((tuples, n), -1, np.int64)
    emptied = np.zeros((tuples, n), np.bool_)
    every = np.zeros(words, np.uint64)
    for attribute in order:
        every |= t.qub[attribute]
    grb = np.empty(words, np.uint64)
    after = np.empty(words, np.uint64)
    geb = np.full(n, -1, np.int64)
    for row in range(tuples):
        copy_words(grb, t.live)
        live = all_live
        covered = np.zeros(words, np.uint64)
        position = 0
        target = -1
        attribute = -1
        for _ in range(depth):
            position = _first_unevaluated(geb, row, order, position)
            attribute = order[position]
            if target >= 0 and geb[target] != row:
                attribute = np.int64(target)
            geb[attribute] = row
            covered |= t.qub[attribute]
            code = codes[attribute, row]
            live -= restrict(t, grb, attribute, code)
            if live == 0:
                break
            target = micro[t.code_start[attribute] + code]
        if live == 0:
            continue
        at[row] = attribute
        macro[row] = order[_first_unevaluated(geb, row, order, position)]
        covering[row] = np.array_equal(covered, every)
        live_bits = total_ones(grb)
        for candidate in order:
            if geb[candidate] != row:
                copy_words(after, grb)
                left = live - restrict(t, after, candidate, codes[candidate, row])
                failed[row, candidate] = live_bits - total_ones(after)
                emptied[row, candidate] = left == 0
    return at, macro, covering, failed, emptied


@compiled()
def candidate_arrows(t: AscTables, attribute: int, codes: int) -> Any:
    """The candidate-arrow bitmaps of one ASC: which other ASCs can still fail a term after a region.

    Args:
        t: the ASCs.
        attribute: the ASC.
        codes: its number of region codes.

    Returns:
        bool[codes, n], true where region.qrb AND qub of the other ASC is not zero (section 4.1).
    """
    n, words = t.qub.shape
    cab = np.zeros((codes, n), np.bool_)
    qrb = np.empty(words, np.uint64)
    for code in range(codes):
        copy_words(qrb, t.live)
        restrict(t, qrb, attribute, code)
        for other in range(n):
            if other != attribute:
                for w in range(words):
                    if qrb[w] & t.qub[other, w]:
                        cab[code, other] = True
                        break
    return cab
