"""Patterns by which `date_format` writes a moment, as far as all of their fields are numbers of a fixed width.

Source: Java SE 17, `java.time.format.DateTimeFormatterBuilder.appendPattern`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_DAY = 86_400_000_000
#: fields, with the microseconds of a stretch in which all moments have the same
_FIELDS = {"yyyy": _DAY, "MM": _DAY, "dd": _DAY, "HH": 3_600_000_000, "mm": 60_000_000, "ss": 1_000_000}
#: a run of one letter, or another character
_PART = re.compile(r"([A-Za-z])\1*|[^A-Za-z]", re.DOTALL)
#: characters that are no text
_SPECIAL = frozenset("'[]{}#")


@dataclass(frozen=True, slots=True)
class DatePattern:
    """A pattern.

    Attributes:
        parts: fields such as `yyyy`, and characters that stand for themselves.
    """

    parts: tuple[str, ...]

    @property
    def microseconds(self) -> int:
        """Moments of one stretch of so many microseconds since the epoch are written alike."""
        return min((_FIELDS[part] for part in self.parts if part in _FIELDS), default=_DAY)


@lru_cache(maxsize=256)
def date_pattern(text: str) -> DatePattern | None:
    """The pattern of a text; None where it has another field, a quote or an optional part."""
    parts = [found.group() for found in _PART.finditer(text)]
    known = all(
        part in _FIELDS if part[0].isascii() and part[0].isalpha() else part not in _SPECIAL for part in parts
    )
    return DatePattern(tuple(parts)) if known else None
