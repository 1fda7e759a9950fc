"""Whether the unit of a stored event time fits its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.operators.ingest.event_times import UNITS

#: the years of events that are plausible, and those of which another unit is suggested
_FIRST_YEAR, _LAST_YEAR = 1970, 2200
_LIKELY = range(2000, 2101)
_SECONDS_A_YEAR = 31_556_952
_A_SECOND = {"seconds": 1, "millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}


def unit_warnings(file: Path, numbers: Sequence[int], options: Mapping[str, str]) -> list[str]:
    """Warn of event times that the option event_time_format moves to an implausible year.

    Args:
        file: where the numbers are from.
        numbers: event times as they are stored.
        options: plain names to values.
    """
    written = options.get("eventtimeformat", "").lower()
    if written not in UNITS or not numbers:
        return []
    newest = max(numbers)
    year = _year(newest, written)
    fitting = next((unit for unit in UNITS if _year(newest, unit) in _LIKELY), None)
    is_plausible = _FIRST_YEAR <= year <= _LAST_YEAR and (year > _FIRST_YEAR or fitting is None)
    if is_plausible:
        return []
    remedy = f"Set event_time_format '{fitting}'" if fitting else "Check event_time_format and the values"
    return [
        f"event_time_format '{written}' puts the events of {file} in the year {year}: {options.get('eventtime')} has "
        f"numbers such as {newest}. {remedy}"
    ]


def _year(number: int, unit: str) -> int:
    return 1970 + number // _A_SECOND[unit] // _SECONDS_A_YEAR
