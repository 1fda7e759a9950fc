"""What patterns ask of a value's bytes, as items of one automaton."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.text import (
    ANY,
    AT_END,
    AT_START,
    BY_CALLER,
    BY_LIKE,
    DECIDES,
    EXACT,
    ONE,
    build,
    scan,
)
from penstock.operators.text.columns import Texts
from penstock.plan.patterns import Form, TextPattern, Wildcard, like_parts
from penstock.plan.required_literals import required_literals

#: bytes of a text that are in the automaton; what follows is compared where they are found
DEPTH = 16
#: hits that have room in one step, beside one of each item
_ROOM = 1 << 16

#: ASCII letters that no value has that passed through a function
_OTHER_LETTERS = {"lower": re.compile("[A-Z]"), "upper": re.compile("[a-z]")}
_LOWER = bytes(byte + 32 if 65 <= byte <= 90 else byte for byte in range(256))


@dataclass(frozen=True, slots=True)
class Item:
    """A text whose occurrence in a value decides a pattern or announces it.

    Attributes:
        pattern: the pattern's number.
        text: UTF-8, in lower case unless `flags` has EXACT; empty: every value is asked.
        flags: of AT_START, AT_END, EXACT.
        deciding: DECIDES, BY_LIKE or BY_CALLER.
        program: the LIKE pattern as bytes, ANY and ONE, in lower case as the text.
        form: the functions that a value passes through first.
    """

    pattern: int
    text: bytes
    flags: int
    deciding: int = DECIDES
    program: tuple[int, ...] = ()
    form: Form = ()


def items_of(number: int, pattern: TextPattern) -> list[Item]:
    """The items of a LIKE pattern or a regular expression; none where no value satisfies it."""
    cases = [function for function in pattern.form if function in ("lower", "upper")]
    if pattern.kind == "regex":
        announcing = required_literals(pattern.text) or ("",)
        return [
            Item(number, text.encode().translate(_LOWER), 0, BY_CALLER, (), pattern.form)
            for text in announcing
        ]
    parts = like_parts(pattern.text)
    texts = [part for part in parts if isinstance(part, str)]
    if cases and any(_has_letters_of_other_case(text, cases[-1]) for text in texts):
        return []
    flags = 0 if cases else EXACT
    encoded = [part.encode().translate(_LOWER if cases else None) for part in texts]
    shape = tuple(part if isinstance(part, Wildcard) else None for part in parts)
    anchors = {
        (None,): AT_START | AT_END,
        (None, Wildcard.ANY): AT_START,
        (Wildcard.ANY, None): AT_END,
        (Wildcard.ANY, None, Wildcard.ANY): 0,
    }.get(shape)
    if anchors is not None:
        return [Item(number, encoded[0], flags | anchors, DECIDES, (), pattern.form)]
    program: list[int] = []
    following = iter(encoded)
    for part in parts:
        program += next(following) if isinstance(part, str) else [ANY if part is Wildcard.ANY else ONE]
    longest = max(encoded, key=len, default=b"")
    return [Item(number, longest, flags, BY_LIKE, tuple(program), pattern.form)]


def _has_letters_of_other_case(text: str, case: str) -> bool:
    """Whether a text has ASCII letters that a value in lower or upper case has not."""
    return _OTHER_LETTERS[case].search(text) is not None


@dataclass(frozen=True, slots=True)
class Hits:
    """Items found in values: those of a value are together, an item once.

    Attributes:
        values: int32[hits], numbers of values; `items`: int32[hits].
        strange: uint8[values], what their bytes may need (`kernels.text`): of values up to `done`.
        begin: the first value looked at; `done`: the one to go on from.
    """

    values: npt.NDArray[np.int32]
    items: npt.NDArray[np.int32]
    strange: npt.NDArray[np.uint8]
    begin: int
    done: int


class Automaton:
    """Finds items in values, each value in one pass.

    Args:
        items: what to find; those without a text must be BY_LIKE.
        forms: all forms that items have; a form's number is its place.
    """

    def __init__(self, items: Sequence[Item], forms: Sequence[Form]) -> None:
        strings = [item.text[:DEPTH].translate(_LOWER) for item in items]
        used = sorted({byte for string in strings for byte in string})
        self._classes = np.zeros(256, np.uint8)
        self._classes[used] = np.arange(3, 3 + len(used), dtype=np.uint8)
        self._classes[65:91] = self._classes[97:123]
        # column 0 of the table is no symbol, 1 any other byte, 2 the place before the first byte
        self._classes[self._classes == 0] = 1
        found = [number for number, string in enumerate(strings) if string]
        spelled = [
            b"\x02" * bool(items[number].flags & AT_START)
            + strings[number].translate(self._classes.tobytes())
            for number in found
        ]
        starts = np.zeros(len(found) + 1, np.int64)
        np.cumsum([len(each) for each in spelled], out=starts[1:])
        symbols = np.frombuffer(b"".join(spelled), np.uint8)
        width = len(used) + 3
        trie = np.zeros((len(symbols) + 1) * width, np.int32)
        self._table, self._first, after, self._link = build(
            symbols, starts, width, trie, np.empty(len(found), np.int32)
        )
        # strings are numbered without those that have no text
        number_of = np.array([*found, -1], np.int32)
        self._first = number_of[self._first]
        self._after = np.full(len(items), -1, np.int32)
        self._after[found] = number_of[after]
        self._start = int(self._table[2]) & 0x7FFFFFFF
        self._depth = np.array([len(string) for string in strings], np.int32)
        self._flags = np.array([item.flags for item in items], np.uint8)
        numbers = {form: number for number, form in enumerate(forms)}
        self._forms = np.array([numbers[item.form] for item in items], np.int32)
        self._deciding = np.array([item.deciding for item in items], np.uint8)
        self._text_starts, self._texts = _joined([list(item.text) for item in items], np.uint8)
        self._like_starts, self._likes = _joined([list(item.program) for item in items], np.int16)
        self._unfiltered = np.array([number for number, string in enumerate(strings) if not string], np.int32)
        self._folds = np.frombuffer(_LOWER + bytes(range(256)), np.uint8)

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return sum(each.nbytes for each in vars(self).values() if isinstance(each, np.ndarray))

    def steps(self, texts: Texts, wanted: int = -1) -> Iterator[Hits]:
        """Looks at values in steps of bounded size.

        Args:
            texts: the values.
            wanted: the number of the form whose items are looked for; -1: all.
        """
        seen = np.full(len(self._flags), -1, np.int64)
        strange = np.zeros(len(texts), np.uint8)
        values = np.empty(min(_ROOM, 64 * len(texts)) + len(self._flags), np.int32)
        items = np.empty_like(values)
        done = 0
        while done < len(texts):
            begin = done
            count, done = scan(
                np.uint64(texts.address), texts.begins, texts.ends, begin, wanted, self._classes, self._table, self._start,
                self._first, self._after, self._link, self._depth, self._flags, self._forms, self._deciding, self._text_starts, self._texts,
                self._like_starts, self._likes, self._unfiltered, self._folds, seen, values, items, strange,
            )  # fmt: skip
            yield Hits(values[:count], items[:count], strange, begin, done)


def _joined(parts: Sequence[Sequence[int]], kind: type) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Lists behind each other, and where each begins."""
    starts = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=starts[1:])
    return starts, np.array([each for part in parts for each in part] or [0], kind)
