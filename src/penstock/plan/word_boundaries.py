"""Where words begin and end for `\\b` of Java before 19: letters and digits of Unicode 13, and marks behind them.

Source: Java SE 17, `java.util.regex.Pattern.Bound`. The table below is what Unicode 14 to 17 made a letter, a digit
or a mark; found by comparing Python and ICU with Java 17 over all code points.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

_LATER = (
    (0x870, 0x89F), (0x8B5, 0x8B5), (0x8C8, 0x8D2), (0xC3C, 0xC3C), (0xC5C, 0xC5D), (0xCDC, 0xCDD), (0xECE, 0xECE), (0x170D, 0x170D),
    (0x171F, 0x171F), (0x180F, 0x180F), (0x1AC1, 0x1AEB), (0x1B4C, 0x1B4C), (0x1C89, 0x1C8A), (0x1DFA, 0x1DFA), (0x2C2F, 0x2C2F),
    (0x2C5F, 0x2C5F), (0x9FFD, 0x9FFF), (0xA7C0, 0xA7C1), (0xA7CB, 0xA7F4), (0x10570, 0x105F3), (0x10780, 0x107BA), (0x10940, 0x10959),
    (0x10D40, 0x10D85), (0x10EC2, 0x10EFF), (0x10F70, 0x10F85), (0x11070, 0x11075), (0x110C2, 0x110C2), (0x1123F, 0x11241),
    (0x11380, 0x113E2), (0x116D0, 0x116E3), (0x11740, 0x11746), (0x11AB0, 0x11ABF), (0x11B60, 0x11BF9), (0x11DB0, 0x11DE9),
    (0x11F00, 0x11F5A), (0x12F90, 0x12FF0), (0x1342F, 0x143FA), (0x16100, 0x16139), (0x16A70, 0x16AC9), (0x16D40, 0x16D79),
    (0x16EA0, 0x16ED3), (0x16FF2, 0x16FF3), (0x187F8, 0x187FF), (0x18CFF, 0x18CFF), (0x18D09, 0x1AFFE), (0x1B11F, 0x1B132),
    (0x1B155, 0x1B155), (0x1CCF0, 0x1CF46), (0x1DF00, 0x1DF2A), (0x1E030, 0x1E08F), (0x1E290, 0x1E2AE), (0x1E4D0, 0x1E7FE),
    (0x2A6DE, 0x2A6DF), (0x2B735, 0x2B73F), (0x2CEA2, 0x2CEAD), (0x2EBF0, 0x2EE5D), (0x31350, 0x33479),
)  # fmt: skip

#: a mark of Unicode 13 that is none since
_ONCE_MARK = "\u1734"


def word_boundaries(text: str) -> frozenset[int]:
    """The places of a text, from 0 to its length, that have a word on one side only.

    >>> sorted(word_boundaries("né, x"))
    [0, 2, 4, 5]
    """
    places = []
    for place in range(len(text) + 1):
        before = place > 0 and _is_of_word(text, place - 1, from_behind=True)
        behind = place < len(text) and _is_of_word(text, place, from_behind=False)
        if before is not behind:
            places.append(place)
    return frozenset(places)


def _is_of_word(text: str, place: int, *, from_behind: bool) -> bool:
    """Whether a character belongs to a word: it is `_`, a letter, a digit, or a mark on a letter or digit.

    Java looks for the letter in units of UTF-16. It takes the second half of a pair for no letter and no mark.
    """
    character = text[place]
    if character == "_" or _is_letter(character):
        return True
    if not _is_mark(character) or (from_behind and character > "\uffff"):
        return False
    for before in reversed(text[:place]):
        if before > "\uffff" or not _is_mark(before):
            return before <= "\uffff" and _is_letter(before)
    return False


@lru_cache(maxsize=4096)
def _is_letter(character: str) -> bool:
    category = unicodedata.category(character)
    return (category[0] == "L" or category == "Nd") and not _is_later(character)


@lru_cache(maxsize=4096)
def _is_mark(character: str) -> bool:
    return (unicodedata.category(character) == "Mn" and not _is_later(character)) or character == _ONCE_MARK


def _is_later(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in _LATER)
