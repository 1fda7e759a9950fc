"""Kernels of the baselines evaluation sequences are compared with.

| kernel | what | time |
|---|---|---|
| `alive_after_subsets` | tuples alive after every set of ASCs | tuples / 64 x n 2^n + tuples x terms |
| `extreme_costs` | cheapest and dearest fixed order | n 2^n |
| `route_by_lottery` | Eddies' ticket routing | as `evaluate` |
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from penstock.kernels.asc import AscTables, Codes, live_words, ones, restrict


@numba.njit(boundscheck=False)
def alive_after_subsets(t: AscTables, codes: Codes, attributes: npt.NDArray[np.int64]) -> Any:
    """Counts the tuples whose GRB is not zero after each set of ASCs.

    Which tuples are alive after a set does not depend on the order, so 64 tuples at a time: a term
    keeps its tuple alive after exactly the subsets of the ASCs that do not fail it.

    Args:
        t: the ASCs.
        codes: uint32[n, tuples].
        attributes: int64[m], m at most 24; bit i of a set stands for attributes[i].

    Returns:
        int64[2^m], tuples alive.
    """
    sets = np.int64(1) << len(attributes)
    alive = np.zeros(sets, np.int64)
    tuples = codes.shape[1]
    words = len(t.live)
    failing = np.zeros(64 * words, np.int64)
    grb = np.empty(words, np.uint64)
    keeps = np.empty(sets, np.uint64)
    for base in range(0, tuples, 64):
        keeps[:] = 0
        for row in range(base, min(base + 64, tuples)):
            failing[:] = 0
            for i in range(len(attributes)):
                grb[:] = t.live
                restrict(t, grb, attributes[i], codes[attributes[i], row])
                for w in range(words):
                    rest = t.live[w] & ~grb[w]
                    while rest:
                        low = rest & (~rest + np.uint64(1))
                        rest ^= low
                        failing[64 * w + ones(low - np.uint64(1))] |= np.int64(1) << i
            bit = np.uint64(1) << np.uint64(row - base)
            for slot in range(len(t.slot_query)):
                keeps[sets - 1 - failing[slot]] |= bit
        half = 1
        while half < sets:
            for begin in range(0, sets, 2 * half):
                without = keeps[begin : begin + half]
                within = keeps[begin + half : begin + 2 * half]
                for i in range(half):
                    without[i] |= within[i]
            half *= 2
        for s in range(sets):
            alive[s] += ones(keeps[s])
    return alive


@numba.njit(boundscheck=False)
def extreme_costs(alive: npt.NDArray[np.int64], worst: bool) -> Any:
    """The cheapest or dearest order of ASCs, by dynamic programming over sets.

    Args:
        alive: int64[2^m], tuples alive after each set.
        worst: look for the dearest.

    Returns:
        int64[2^m] cost of reaching each set, int64[2^m] the ASC (bit number) last in that order.
    """
    cost = np.zeros(len(alive), np.int64)
    last = np.full(len(alive), -1, np.int64)
    for s in range(1, len(alive)):
        bit = 0
        while np.int64(1) << bit <= s:
            without = s & ~(np.int64(1) << bit)
            if without != s:
                reached = cost[without] + alive[without]
                if last[s] < 0 or (reached > cost[s] if worst else reached < cost[s]):
                    cost[s] = reached
                    last[s] = bit
            bit += 1
    return cost, last


@numba.njit(boundscheck=False)
def route_by_lottery(
    t: AscTables, codes: Codes, attributes: npt.NDArray[np.int64], window: int, seed: int
) -> Any:
    """Routes every tuple by tickets and counts the selection modules it visits.

    A module wins a ticket with each tuple routed to it and returns it with each tuple it does not
    drop. Lotteries are drawn with the tickets of the window before, one more for every module.

    Args:
        t: the ASCs, one selection module each.
        codes: uint32[n, tuples].
        attributes: int64, the modules.
        window: tuples a window.
        seed: of the lottery.

    Returns:
        int32[tuples], modules visited.
    """
    np.random.seed(seed)
    modules = len(attributes)
    banked = np.zeros(modules, np.int64)
    escrow = np.zeros(modules, np.int64)
    waiting = np.empty(modules, np.int64)
    counts = np.zeros(codes.shape[1], np.int32)
    grb = np.empty(len(t.live), np.uint64)
    words = live_words(t.live)
    for row in range(codes.shape[1]):
        if row % window == 0:
            banked[:] = escrow
            escrow[:] = 0
        grb[:] = t.live
        live = words
        left = modules
        for i in range(modules):
            waiting[i] = i
        while live > 0 and left > 0:
            tickets = 0
            for i in range(left):
                tickets += banked[waiting[i]] + 1
            drawn = np.random.randint(0, tickets)
            i = 0
            while drawn >= banked[waiting[i]] + 1:
                drawn -= banked[waiting[i]] + 1
                i += 1
            module = waiting[i]
            left -= 1
            waiting[i] = waiting[left]
            live -= restrict(t, grb, attributes[module], codes[attributes[module], row])
            if live == 0:
                escrow[module] += 1
            counts[row] += 1
    return counts
