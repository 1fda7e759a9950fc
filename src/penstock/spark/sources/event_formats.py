"""Whether the option `event_time_format` is a format, and whether it fits stored values; without Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.operators.ingest.event_times import UNITS

#: whether a datetime pattern reads one of some texts at least, as Spark says
Reads = Callable[[str, Sequence[str]], bool]

#: the years of events that are plausible, and those of which another unit is suggested
_FIRST_YEAR, _LAST_YEAR = 1970, 2200
_LIKELY = range(2000, 2101)
_SECONDS_A_YEAR = 31_556_952
_A_SECOND = {"seconds": 1, "millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
#: letters by which Spark reads moments
_LETTERS = "GyMLdDahHkKmsSVzOXxZ"
#: text in quotes, or a letter
_QUOTED_OR_LETTER = re.compile(r"'[^']*'|([A-Za-z])")


def wrong_letter(pattern: str) -> str | None:
    """Return what is wrong with the first letter of a datetime pattern by which Spark reads no moment; None without one."""
    for found in _QUOTED_OR_LETTER.finditer(pattern):
        if found[1] is not None and found[1] not in _LETTERS:
            return (
                f"has the letter {found[1]} at position {found.start() + 1}; allowed letters: {' '.join(_LETTERS)}; "
                "text needs quotes, in SQL doubled: ''T''"
            )
    return None


def time_warnings(
    file: Path, stored: Sequence[Any], options: Mapping[str, str], reads: Reads | None
) -> list[str]:
    """Warn of event times that the option event_time_format does not fit, or moves to an implausible year.

    Args:
        file: where the values are from.
        stored: event times as they are stored: numbers or texts; others are passed over.
        options: plain names to values.
        reads: asks Spark; None: patterns are not checked.
    """
    written = options.get("eventtimeformat", "")
    texts = [text for each in stored if isinstance(each, str | int | float) and (text := str(each).strip())]
    numbers = [number for text in texts if (number := _number(text)) is not None]
    if not written or not texts:
        return []
    is_unit = written.lower() in UNITS
    if (is_unit and not numbers) or (not is_unit and reads is not None and not reads(written, texts)):
        values = f"first {len(texts)} values" if len(texts) > 1 else "first value"
        return [
            f"event_time_format '{written}' fits none of the {values} of {options.get('eventtime')} in {file}, for example "
            f"'{texts[0]}'. Windows and joins leave out tuples without an event time. Set the format of these values"
        ]
    return _unit_warnings(file, max(numbers), written.lower(), options) if is_unit else []


def _unit_warnings(file: Path, newest: int, unit: str, options: Mapping[str, str]) -> list[str]:
    """Warn of numbers that a unit moves to an implausible year."""
    year = _year(newest, unit)
    fitting = next((each for each in UNITS if _year(newest, each) in _LIKELY), None)
    is_plausible = _FIRST_YEAR <= year <= _LAST_YEAR and (year > _FIRST_YEAR or fitting is None)
    if is_plausible:
        return []
    remedy = f"Set event_time_format '{fitting}'" if fitting else "Check event_time_format and the values"
    return [
        f"event_time_format '{unit}' puts the events of {file} in the year {year}: {options.get('eventtime')} has "
        f"numbers such as {newest}. {remedy}"
    ]


def _number(text: str) -> int | None:
    """The whole part of a number; None of other texts."""
    try:
        return int(float(text)) if not text.lstrip("-").isdecimal() else int(text)
    except (ValueError, OverflowError):
        return None


def _year(number: int, unit: str) -> int:
    return 1970 + number // _A_SECOND[unit] // _SECONDS_A_YEAR
