"""Spark's lower() and upper(): ICU 78 with the letters of Unicode 17, whatever Unicode this Python knows.

Spark 4.3 computes them by `com.ibm.icu.lang.UCharacter.toLowerCase` and `toUpperCase` (`spark.sql.icu.caseMappings.enabled`, on by default). Python
3.11 knows Unicode 14: 55 letters have a lower case since, and what stands beside a final sigma is looked up in other versions
of two properties. The tables below are what differs, found by comparing both over all code points.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache


class _Kind(Enum):
    """What a character is to a sigma beside it."""

    CASED = "C"
    IGNORED = "I"
    OTHER = "N"


#: first and last letter, and how far from it its lower case is
_LOWER = (
    (0x1C89, 0x1C89, 1), (0xA7CB, 0xA7CB, -42343), (0xA7CC, 0xA7CC, 1), (0xA7CE, 0xA7CE, 1), (0xA7D2, 0xA7D2, 1), (0xA7D4, 0xA7D4, 1),
    (0xA7DA, 0xA7DA, 1), (0xA7DC, 0xA7DC, -42561), (0x10D50, 0x10D65, 32), (0x16EA0, 0x16EB8, 27),
)  # fmt: skip
#: first and last character, which are cased, ignored, or neither
_CASED = (
    (0x1C89, 0x1C8A), (0xA7CB, 0xA7CF), (0xA7D2, 0xA7D2), (0xA7D4, 0xA7D4), (0xA7DA, 0xA7DC), (0x10D50, 0x10D65), (0x10D70, 0x10D85),
    (0x16EA0, 0x16EB8), (0x16EBB, 0x16ED3), (0x1DF25, 0x1DF2A),
)  # fmt: skip
_IGNORED = (
    (0x897, 0x897), (0xECE, 0xECE), (0x1ACF, 0x1ADD), (0x1AE0, 0x1AEB), (0xA7F1, 0xA7F1), (0x10D4E, 0x10D4E), (0x10D69, 0x10D6D),
    (0x10D6F, 0x10D6F), (0x10EC5, 0x10EC5), (0x10EFA, 0x10EFF), (0x11241, 0x11241), (0x113BB, 0x113C0), (0x113CE, 0x113CE),
    (0x113D0, 0x113D0), (0x113D2, 0x113D2), (0x113E1, 0x113E2), (0x11B60, 0x11B60), (0x11B62, 0x11B64), (0x11B66, 0x11B66),
    (0x11DD9, 0x11DD9), (0x11F00, 0x11F01), (0x11F36, 0x11F3A), (0x11F40, 0x11F40), (0x11F42, 0x11F42), (0x11F5A, 0x11F5A),
    (0x13439, 0x13440), (0x13447, 0x13455), (0x1611E, 0x16129), (0x1612D, 0x1612F), (0x16D40, 0x16D42), (0x16D6B, 0x16D6C),
    (0x16FF2, 0x16FF3), (0x1E030, 0x1E06D), (0x1E08F, 0x1E08F), (0x1E4EB, 0x1E4EF), (0x1E5EE, 0x1E5EF), (0x1E6E3, 0x1E6E3),
    (0x1E6E6, 0x1E6E6), (0x1E6EE, 0x1E6EF), (0x1E6F5, 0x1E6F5), (0x1E6FF, 0x1E6FF),
)  # fmt: skip
_OTHER = ((0x295, 0x295), (0x1171E, 0x1171E))

_LATER_LETTERS = {
    code: code + distance for first, last, distance in _LOWER for code in range(first, last + 1)
}
_EARLIER_LETTERS = {lower: upper for upper, lower in _LATER_LETTERS.items()}
_LATER_KINDS = {
    chr(code): kind
    for kind, ranges in ((_Kind.CASED, _CASED), (_Kind.IGNORED, _IGNORED), (_Kind.OTHER, _OTHER))
    for first, last in ranges
    for code in range(first, last + 1)
}


def spark_lower(text: str) -> str:
    """A text in lower case as Spark's lower() writes it.

    >>> spark_lower("ΟΔΟΣ K")
    'οδος k'
    """
    if text.isascii():
        return text.lower()
    parts = [part.translate(_LATER_LETTERS).lower() for part in text.split("Σ")]
    lowered = parts[0]
    place = -1
    for part in parts[1:]:
        place = text.index("Σ", place + 1)
        lowered += ("ς" if _is_final(text, place) else "σ") + part
    return lowered


def spark_upper(text: str) -> str:
    """A text in upper case as Spark's upper() writes it.

    >>> spark_upper("straße ﬁ")
    'STRASSE FI'
    """
    return text.upper() if text.isascii() else text.translate(_EARLIER_LETTERS).upper()


def _is_final(text: str, place: int) -> bool:
    """Whether a cased character precedes a place and none follows it, beyond those that are ignored."""
    before, behind = place - 1, place + 1
    while before >= 0 and _kind(text[before]) is _Kind.IGNORED:
        before -= 1
    while behind < len(text) and _kind(text[behind]) is _Kind.IGNORED:
        behind += 1
    is_cased_before = before >= 0 and _kind(text[before]) is _Kind.CASED
    return is_cased_before and not (behind < len(text) and _kind(text[behind]) is _Kind.CASED)


@lru_cache(maxsize=4096)
def _kind(character: str) -> _Kind:
    """What a character is, by what Python's lower() makes of a sigma behind it, and the tables."""
    if character in _LATER_KINDS:
        return _LATER_KINDS[character]
    if not f"A{character}Σ".lower().endswith("ς"):
        return _Kind.OTHER
    return _Kind.CASED if f"{character}Σ".lower().endswith("ς") else _Kind.IGNORED
