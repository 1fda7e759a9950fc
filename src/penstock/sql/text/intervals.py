"""Lengths of time as Spark's `window` function takes them."""

from __future__ import annotations

import re

from penstock.errors import meant
from penstock.sql.text.literals import string

#: microseconds of the units that a length of time may have
UNIT_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
#: what may stand where the gap of sessions is expected
ALLOWED_GAPS = (
    "a string of weeks, days, hours, minutes, seconds, milliseconds and microseconds such as '1 hour' or "
    "'1 minute 30 seconds'"
)
#: what may stand where a length of time is expected
ALLOWED_LENGTHS = f"{ALLOWED_GAPS}, or a whole number of microseconds"

_PART = re.compile(
    rf"\s*(?P<sign>[+-])?\s*(?P<whole>\d+)(?P<fraction>\.\d{{1,9}})?\s+(?P<unit>{'|'.join(UNIT_MICROSECONDS)})s?"
    r"(?=\s|$)",
    re.IGNORECASE | re.ASCII,
)
_NUMBER = re.compile(r"(-?)\s*(\d+)L?", re.IGNORECASE | re.ASCII)
_LONG_MAX = 2**63 - 1
_MOST_GAP_DAYS = 36_500
_WITHOUT_UNIT = re.compile(r"\s*[+-]?\s*\d+(\.\d+)?\s*", re.ASCII)
_WORD = re.compile(r"[^\W\d_]+")
#: lengths that differ
OF_THE_CALENDAR = re.compile(r"\d\s*(months?|quarters?|years?)(?![a-z])", re.IGNORECASE | re.ASCII)


def microseconds_of(literal: str) -> int | None:
    """The length of time that a SQL literal spells, in microseconds.

    Args:
        literal: the text of a string literal, `'1 hour'` or `'interval 90 seconds'`, or of an integer.

    Returns:
        Negative lengths too; None for anything else, months and years included.
    """
    if match := _NUMBER.fullmatch(literal):
        return _bounded(int(match[1] + match[2]))
    length = _spelled(literal)
    return None if length is None else _bounded(length)


def length_text(microseconds: int) -> str:
    """Format a length of time as scripts write it.

    Example:
        >>> length_text(600_000_000), length_text(5_400_000_000), length_text(1_500_000)
        ('10 minutes', '1 hour 30 minutes', '1.5 seconds')
    """
    parts, rest = [], abs(microseconds)
    for unit in ("day", "hour", "minute"):
        count, rest = divmod(rest, UNIT_MICROSECONDS[unit])
        if count:
            parts.append(f"{count} {unit}{'' if count == 1 else 's'}")
    if rest or not parts:
        seconds = f"{rest / 1e6:.9g}"
        parts.append(f"{seconds} second{'' if seconds == '1' else 's'}")
    return f"{'-' if microseconds < 0 else ''}{' '.join(parts)}"


def length_of(literal: str) -> int:
    """The length of time that a SQL literal spells, in microseconds.

    Args:
        literal: as of `microseconds_of`.

    Raises:
        ValueError: it spells none; why, as the end of a sentence about what it is the length of.
    """
    length = microseconds_of(literal)
    if length is None:
        raise ValueError(_fault(literal, ALLOWED_LENGTHS))
    return length


def gap_of(literal: str) -> int:
    """The gap of sessions that a SQL string spells, in microseconds.

    Args:
        literal: the text of a string literal.

    Raises:
        ValueError: it spells none; why, as the end of a sentence about the gap.
    """
    length = _spelled(literal)
    if length is None:
        raise ValueError(_fault(literal, ALLOWED_GAPS))
    if length <= 0:
        raise ValueError("must be above 0")
    if length > _MOST_GAP_DAYS * UNIT_MICROSECONDS["day"]:
        raise ValueError(f"must be at most {_MOST_GAP_DAYS} days")
    return length


def _fault(literal: str, allowed: str) -> str:
    """Why a literal spells no length of time."""
    if literal[-1:] not in ("'", '"'):
        return f"must be {allowed}"
    text = string(literal)
    if _WITHOUT_UNIT.fullmatch(text):
        return f"needs a unit, such as '{text.strip()} seconds'"
    if OF_THE_CALENDAR.search(text):
        return "cannot have months or years, whose lengths differ; write days, such as '30 days'"
    units = [f"{unit}{plural}" for unit in UNIT_MICROSECONDS for plural in ("s", "")]
    words = (word for word in _WORD.findall(text) if word.lower() not in (*units, "interval"))
    if (unknown := next(words, None)) is None:
        return f"must be {allowed}"
    return f"has an unknown unit, {unknown}{meant(unknown, units)} Allowed: {allowed}"


def _spelled(literal: str) -> int | None:
    """The length of time that a string literal spells; None: it spells none, or the literal is no string."""
    if literal[-1:] not in ("'", '"'):
        return None
    rest = re.sub(r"^\s*interval(?=\s)", "", string(literal), flags=re.IGNORECASE)
    total, position = 0, 0
    while match := _PART.match(rest, position):
        unit = match["unit"].lower()
        if match["fraction"] and unit != "second":
            return None
        length = int(match["whole"]) * UNIT_MICROSECONDS[unit]
        length += int((match["fraction"] or ".")[1:].ljust(6, "0")[:6])
        total += -length if match["sign"] == "-" else length
        position = match.end()
    return total if position and not rest[position:].strip() else None


def _bounded(length: int) -> int | None:
    return length if abs(length) <= _LONG_MAX else None
