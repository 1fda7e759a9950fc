"""Fields, units and texts of dates (days since 1970-01-01) and of timestamps in UTC (microseconds since then)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.scalars.values import Argument, Found, array_of, numbers
from penstock.plan.date_patterns import DatePattern, date_pattern

Longs = npt.NDArray[np.int64]

_MICROSECONDS = {"second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
#: of `hour`, `minute` and `second` how many there are in the next larger unit
_PARTS = {"second": 60, "minute": 60, "hour": 24}


def date(moment: Argument, kind: pa.DataType) -> Found:
    """The day of a timestamp."""
    return array_of((numbers(moment) // _MICROSECONDS["day"]).astype(np.int32), kind, moment), None


def unix_seconds(moment: Argument, kind: pa.DataType) -> Found:
    """Whole seconds since the epoch."""
    return array_of(numbers(moment) // _MICROSECONDS["second"], kind, moment), None


def date_format(moment: Argument, pattern: Argument, kind: pa.DataType) -> Found:
    """A timestamp by a pattern that `plan.date_patterns` knows: each distinct text is made once."""
    form = date_pattern(pattern.as_py())
    assert form is not None, "another pattern is left to Spark"
    step = form.microseconds
    steps = array_of(numbers(moment) // step, pa.int64(), moment).dictionary_encode()
    texts = _written(steps.dictionary.to_numpy() * step, form)
    return pa.array(texts, kind).take(steps.indices), None


def _field_of_time(unit: str, moment: Argument, kind: pa.DataType) -> Found:
    found = numbers(moment) // _MICROSECONDS[unit] % _PARTS[unit]
    return array_of(found.astype(np.int32), kind, moment), None


def _field_of_date(unit: str, day: Argument, kind: pa.DataType) -> Found:
    found = _dates(numbers(day).astype(np.int64))[unit]
    return array_of(found.astype(np.int32), kind, day), None


def _truncated(unit: str, moment: Argument, kind: pa.DataType) -> Found:
    values = numbers(moment)
    if unit in _MICROSECONDS:
        step = _MICROSECONDS[unit]
        begins = values // step * step
    else:
        begins = values.astype("M8[us]").astype(f"M8[{unit[0].upper()}]").astype("M8[us]").astype(np.int64)
    return array_of(begins, kind, moment), None


def _dates(days: Longs) -> dict[str, Longs]:
    """The fields of days since 1970-01-01."""
    dates = days.astype("M8[D]")
    months = dates.astype("M8[M]")
    of_year = months.astype(np.int64) % 12
    return {
        "year": months.astype(np.int64) // 12 + 1970,
        "quarter": of_year // 3 + 1,
        "month": of_year + 1,
        "day": (dates - months.astype("M8[D]")).astype(np.int64) + 1,
    }


def _written(moments: Longs, pattern: DatePattern) -> list[str]:
    fields = _dates(moments // _MICROSECONDS["day"])
    of_day = {unit: moments // _MICROSECONDS[unit] % parts for unit, parts in _PARTS.items()}
    columns = {
        "yyyy": [_year(each) for each in fields["year"].tolist()],
        **{
            name: [f"{each:02}" for each in values.tolist()]
            for name, values in (
                ("MM", fields["month"]),
                ("dd", fields["day"]),
                ("HH", of_day["hour"]),
                ("mm", of_day["minute"]),
                ("ss", of_day["second"]),
            )
        },
    }
    parts = [columns.get(part, [part] * len(moments)) for part in pattern.parts]
    return ["".join(each) for each in zip(*parts, strict=True)] if parts else [""] * len(moments)


def _year(year: int) -> str:
    """A year in four digits, with a sign where it has more or is before year 0."""
    if year > 9999:
        return f"+{year}"
    return f"{year:04}" if year >= 0 else f"-{-year:04}"


MOMENTS: Mapping[str, Callable[..., Found]] = {
    "date": date,
    "unix_seconds": unix_seconds,
    "date_format": date_format,
    **{unit: partial(_field_of_time, unit) for unit in _PARTS},
    **{unit: partial(_field_of_date, unit) for unit in ("year", "quarter", "month", "day")},
    **{f"truncate_{unit}": partial(_truncated, unit) for unit in (*_MICROSECONDS, "month", "year")},
}
