"""Texts against many patterns: an automaton over all of them, and LIKE.

`build` and `scan`: Aho and Corasick, "Efficient string matching", CACM 18(6), 1975, as a full table over classes of bytes
(upper and lower case of an ASCII letter are one), over the first bytes of each pattern; the rest is compared where these were
found. Build: linear in states x symbols. Scan: one look-up a byte, 1.5 to 6 ns by the size of the table, and some ns a hit.
`like` is the greedy match with one place to return to: linear mostly, bytes x pattern at worst, constant space.

Addresses are uint64; nothing is checked against the ends of buffers but what arguments say.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled
from penstock.kernels.memory import load

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
States = npt.NDArray[np.uint32]

#: flags of an item: where its text must lie, whether case matters
AT_START, AT_END, EXACT = 1, 2, 4
#: what an item's text tells: the pattern is satisfied; its LIKE decides; the caller decides
DECIDES, BY_LIKE, BY_CALLER = 0, 1, 2
#: what a value's bytes may need: it is not ASCII; its lower case has ASCII letters that it has not (U+0130, U+212A); it
#: begins or ends with a space
FOREIGN, FOLDS_TO_ASCII, SPACED = 1, 2, 4
#: wildcards of a LIKE program beside bytes
ANY, ONE = 256, 257

_BYTE = np.uint8(0)
_SPACE = np.uint8(32)
_HIT = np.uint32(1 << 31)
_STATE = np.uint32((1 << 31) - 1)


# ------------------------------------------------------------------------------------------------ the automaton


@compiled(nogil=True)
def build(
    symbols: Bytes, starts: Longs, width: int, trie: Ints, node_of: Ints
) -> tuple[States, Ints, Ints, Ints]:
    """The automaton over some symbol strings.

    Args:
        symbols: uint8[sum of lengths], each from 1 to width - 1.
        starts: int64[strings + 1], where each begins.
        width: columns of the table; column 0 is free for the number of the state.
        trie: int32[(sum of lengths + 1) * width], zeros, overwritten.
        node_of: int32[strings], written: the state in which each string ends.

    Returns:
        Table uint32[states * width]: column 0 the state's number, others the next state's row, with the highest bit
        set where strings end; first string that ends in a state, -1: none; the next string that ends in the same state;
        the next state, by suffix, in which strings end, 0: none.
    """
    count = 1
    strings = len(starts) - 1
    for string in range(strings):
        node = 0
        for place in range(starts[string], starts[string + 1]):
            edge = node * width + symbols[place]
            if trie[edge] == 0:
                trie[edge] = count
                count += 1
            node = trie[edge]
        node_of[string] = node
    order = np.empty(count, np.int32)
    fail = np.zeros(count, np.int32)
    rank = np.zeros(count, np.int32)
    order[0] = 0
    known = 1
    for place in range(count):
        node = order[place]
        rank[node] = place
        for symbol in range(1, width):
            below = trie[node * width + symbol]
            by_suffix = trie[fail[node] * width + symbol] if node else 0
            if below:
                fail[below] = by_suffix
                order[known] = below
                known += 1
            else:
                trie[node * width + symbol] = by_suffix
    first = np.full(count, -1, np.int32)
    after = np.full(strings, -1, np.int32)
    for string in range(strings - 1, -1, -1):
        state = rank[node_of[string]]
        node_of[string] = state
        after[string] = first[state]
        first[state] = string
    link = np.zeros(count, np.int32)
    for state in range(1, count):
        suffix = rank[fail[order[state]]]
        link[state] = suffix if first[suffix] >= 0 else link[suffix]
    table = np.zeros(count * width, np.uint32)
    for state in range(count):
        table[state * width] = state
        for symbol in range(1, width):
            target = rank[trie[order[state] * width + symbol]]
            row = np.uint32(target * width)
            table[state * width + symbol] = row | _HIT if first[target] >= 0 or link[target] else row
    return table, first, after, link


@compiled(nogil=True)
def scan(
    data: np.uint64,
    begins: Longs,
    ends: Longs,
    from_value: int,
    wanted: int,
    classes: Bytes,
    table: States,
    start: int,
    first: Ints,
    after: Ints,
    link: Ints,
    depth: Ints,
    flags: Bytes,
    forms: Ints,
    deciding: Bytes,
    text_starts: Longs,
    texts: Bytes,
    like_starts: Longs,
    likes: npt.NDArray[np.int16],
    unfiltered: Ints,
    folds: Bytes,
    seen: Longs,
    hit_values: Ints,
    hit_items: Ints,
    strange: Bytes,
) -> tuple[int, int]:
    """Finds which items' texts lie in values as their flags ask, and which of the LIKE items are satisfied.

    Args:
        data: the address of the values' bytes.
        begins: int64[values], where each begins; `ends`: where it ends.
        from_value: the first value to look at.
        wanted: the form of the items that are looked for; -1: all.
        classes: uint8[256], symbols of bytes; `table`, `first`, `after`, `link`: see `build`; strings are items.
        start: the row of the state in which a value begins.
        depth: int32[items], bytes of an item's text that are in the automaton.
        flags: uint8[items]; `forms`: int32[items]; `deciding`: uint8[items].
        text_starts: int64[items + 1] into `texts`, what is compared: in lower case unless EXACT.
        like_starts: int64[items + 1] into `likes`, programs of bytes, ANY and ONE.
        unfiltered: int32[], LIKE items that no text announces.
        folds: uint8[512], bytes in lower case, then as they are.
        seen: int64[items], -1 at first, kept from call to call over the same values.
        hit_values: int32[room], written; `hit_items` likewise; room for all items beyond what is written.
        strange: uint8[values], written: FOREIGN, FOLDS_TO_ASCII and SPACED.

    Returns:
        Number of hits; the value to go on from, which is the number of values where all are done. Hits of a value are
        together, an item once.
    """
    count = 0
    room = len(hit_values) - len(flags)
    for value in range(from_value, len(begins)):
        if count > room:
            return count, value
        begin, end = begins[value], ends[value]
        row = np.uint32(start)
        high = np.uint8(0)
        for at in range(begin, end):
            byte = load(data + np.uint64(at), _BYTE)
            high |= byte
            word = table[row + classes[byte]]
            row = word & _STATE
            if word != row:
                state = np.int64(table[row])
                while state:
                    item = np.int64(first[state])
                    state = np.int64(link[state])
                    while item >= 0:
                        this = item
                        item = np.int64(after[item])
                        if seen[this] == value:
                            continue
                        flag = flags[this]
                        if wanted >= 0 and forms[this] != wanted:
                            continue
                        exact = flag & EXACT != 0
                        low = text_starts[this]
                        size = text_starts[this + 1] - low
                        place = at + 1 - depth[this]
                        if place + size > end or (flag & AT_END and place + size != end):
                            continue
                        fold = 256 if exact else 0
                        same = True
                        for step in range(0 if exact else depth[this], size):
                            if folds[fold + load(data + np.uint64(place + step), _BYTE)] != texts[low + step]:
                                same = False
                                break
                        if not same:
                            continue
                        seen[this] = value
                        if deciding[this] == BY_LIKE and not like(
                            data, begin, end, likes, like_starts[this], like_starts[this + 1], folds, fold
                        ):
                            continue
                        hit_values[count] = value
                        hit_items[count] = this
                        count += 1
        for this in unfiltered:
            if wanted >= 0 and forms[this] != wanted:
                continue
            fold = 256 if flags[this] & EXACT else 0
            if like(data, begin, end, likes, like_starts[this], like_starts[this + 1], folds, fold):
                hit_values[count] = value
                hit_items[count] = this
                count += 1
        strange[value] = _strangeness(data, begin, end) if high > 127 else 0
        if begin < end and (
            load(data + np.uint64(begin), _BYTE) == _SPACE or load(data + np.uint64(end - 1), _BYTE) == _SPACE
        ):
            strange[value] |= SPACED
    return count, len(begins)


@compiled(nogil=True)
def _strangeness(data: np.uint64, begin: int, end: int) -> int:
    found = FOREIGN
    for at in range(begin, end - 1):
        byte = load(data + np.uint64(at), _BYTE)
        behind = load(data + np.uint64(at + 1), _BYTE)
        if (byte == 0xC4 and behind == 0xB0) or (
            byte == 0xE2 and behind == 0x84 and at + 2 < end and load(data + np.uint64(at + 2), _BYTE) == 0xAA
        ):
            found |= FOLDS_TO_ASCII
    return found


@compiled(nogil=True)
def like(
    data: np.uint64,
    begin: int,
    end: int,
    program: npt.NDArray[np.int16],
    place: int,
    last: int,
    folds: Bytes,
    fold: int,
) -> bool:
    """Whether the value data[begin:end] satisfies program[place:last], by code points; bytes pass folds[fold:] first.

    A byte that continues no code point belongs to the one before it.
    """
    at = begin
    behind_any = mark = -1
    while at < end:
        sign = program[place] if place < last else -1
        if sign == ANY:
            place += 1
            if place == last:
                return True
            behind_any, mark = place, at
        elif sign == ONE:
            at = _next_point(data, at, end)
            place += 1
        elif sign >= 0 and folds[fold + load(data + np.uint64(at), _BYTE)] == sign:
            at += 1
            place += 1
        elif behind_any >= 0:
            mark = _next_point(data, mark, end)
            at, place = mark, behind_any
        else:
            return False
    return place == last or (place + 1 == last and program[place] == ANY)


@compiled(nogil=True)
def _next_point(data: np.uint64, at: int, end: int) -> int:
    at += 1
    while at < end and load(data + np.uint64(at), _BYTE) & 0xC0 == 0x80:
        at += 1
    return at


@compiled(nogil=True)
def count_points(data: np.uint64, begins: Longs, ends: Longs) -> Longs:
    """int64[values]: how many code points each value data[begin:end] has."""
    counts = np.empty(len(begins), np.int64)
    for value in range(len(begins)):
        count = 0
        for at in range(begins[value], ends[value]):
            count += load(data + np.uint64(at), _BYTE) & 0xC0 != 0x80
        counts[value] = count
    return counts
