"""What conditions on event times say of streams, two by two."""

from __future__ import annotations

import calendar
import random
from datetime import date

import pytest

from penstock.plan.joins import TimeBound
from penstock.sql.joins.bounds import DifferenceBounds
from penstock.sql.joins.conjuncts import conjuncts
from penstock.sql.joins.scope import Column, Scope
from penstock.sql.joins.times import Difference, EventTimes, Length, length_of, offsets
from penstock.sql.text.clauses import Clause

SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
COLUMNS = [[Column(number, name, f"`{name}`") for name in ("t", "x")] for number in range(3)]


def differences(condition: str, zone: str = "UTC", local: frozenset[int] = frozenset()) -> list[Difference]:
    scope = Scope(["a", "b", "c"], COLUMNS, [])
    times = EventTimes(
        {columns[0]: number in local for number, columns in enumerate(COLUMNS)},
        zone,
        {"INTERVAL 1 MONTH": Length.of_months(1)}.get,
    )
    (conjunct,) = conjuncts(Clause.alone(condition), scope)
    return times.differences(conjunct)


def exact(earlier: int, later: int, most: int) -> list[Difference]:
    return [Difference(earlier, later, most, True)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("b.t <= a.t", exact(0, 1, 0)),
        ("b.t < a.t", exact(0, 1, -1)),
        ("a.t > b.t", exact(0, 1, -1)),
        ("NOT (b.t > a.t + INTERVAL 1 HOUR)", exact(0, 1, HOUR)),
        ("(b.t) - INTERVAL '90' MINUTE <= (a.t + interval 1 second)", exact(0, 1, 90 * MINUTE + SECOND)),
        ("a.t + INTERVAL '2 hours 30 minutes' >= b.t - INTERVAL -1 HOUR", exact(0, 1, 90 * MINUTE)),
        ("INTERVAL 5 MINUTES + a.t >= b.t", exact(0, 1, 5 * MINUTE)),
        ("b.t - a.t < INTERVAL 1 DAY", exact(0, 1, DAY - 1)),
        ("INTERVAL 1 HOUR >= b.t - a.t - INTERVAL 1 MINUTE", exact(0, 1, HOUR + MINUTE)),
        ("b.t - (c.t - INTERVAL 1 HOUR) <= INTERVAL 2 HOURS", exact(2, 1, HOUR)),
        ("b.t + INTERVAL 1 DAY <= a.t", exact(0, 1, -DAY)),
        (
            "b.t = a.t - INTERVAL 1 SECOND",
            [Difference(0, 1, -SECOND, True), Difference(1, 0, SECOND, True)],
        ),
        ("b.t <> a.t", []),
        ("b.t < a.x", []),
        ("b.t < timestampadd(HOUR, 1, a.t)", []),
        ("b.t - a.t <= b.t - c.t", exact(0, 2, 0)),
        ("b.t < a.t + INTERVAL 1 YEAR", []),
        ("b.t <= TIMESTAMP '2024-01-01'", []),
        ("b.t <= b.t + INTERVAL 1 HOUR", []),
    ],
)
def test_comparisons_become_differences(condition: str, expected: list[Difference]) -> None:
    assert differences(condition) == expected


@pytest.mark.parametrize(
    ("condition", "zone", "local", "widened"),
    [
        ("b.t <= a.t + INTERVAL 1 DAY", "Europe/Berlin", (), DAY),
        ("b.t <= a.t + INTERVAL 24 HOURS", "America/New_York", (), DAY),
        ("b.t - a.t <= INTERVAL 1 HOUR", "Europe/Berlin", (), HOUR),
        ("b.t - a.t <= INTERVAL 1 HOUR", "Europe/Berlin", (0, 1), None),
        ("b.t <= a.t + INTERVAL 3 DAYS", "Europe/Berlin", (0, 1, 2), None),
        ("b.t <= a.t + INTERVAL 3 DAYS", "+02:00", (), None),
        ("b.t <= a.t + INTERVAL 1439 MINUTES + INTERVAL 1 MINUTE", "Europe/Berlin", (), None),
        ("b.t <= a.t", "Europe/Berlin", (1,), 0),
        ("b.t <= a.t", "+02:00", (1,), 0),
        ("b.t <= a.t", "UTC", (1,), None),
    ],
)
def test_what_the_clock_shifts_widens_bounds(
    condition: str, zone: str, local: tuple[int, ...], widened: int | None
) -> None:
    (found,) = differences(condition, zone, frozenset(local))
    (plain,) = differences(condition, "UTC")
    assert found.is_exact == (widened is None)
    assert found.most == plain.most if widened is None else found.most > plain.most


def test_months_are_as_long_as_any_may_be() -> None:
    (found,) = differences("b.t <= a.t + INTERVAL 1 MONTH")
    assert not found.is_exact
    assert found.most >= 31 * DAY
    (back,) = differences("b.t >= a.t + INTERVAL 1 MONTH")
    assert back.most >= -28 * DAY


@pytest.mark.parametrize("months", [1, 2, 6, 11, 12, 30, 48, 100, 1200, -1, -2, -14, -100])
def test_no_month_is_longer_or_shorter_than_thought(months: int) -> None:
    length = Length.of_months(months)
    for year in (1896, 1899, 1903, 1999, 2000, 2023, 2024, 2099, 2103):
        for month in range(1, 13):
            for day in (1, 15, 28, calendar.monthrange(year, month)[1]):
                years, after = divmod(month - 1 + months, 12)
                last = calendar.monthrange(year + years, after + 1)[1]
                apart = date(year + years, after + 1, min(day, last)) - date(year, month, day)
                assert length.low <= apart.days * DAY <= length.high
    assert length.high - length.low <= 12 * DAY


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("INTERVAL 1 HOUR", HOUR),
        ("interval '90' minutes", 90 * MINUTE),
        ("INTERVAL '1 day 2 hours'", DAY + 2 * HOUR),
        ("INTERVAL 1 DAY 2 HOURS", DAY + 2 * HOUR),
        ("INTERVAL '-1' HOUR", -HOUR),
        ("INTERVAL '1:30' HOUR TO MINUTE", None),
        ("INTERVAL 1 MONTH", None),
        ("INTERVAL 1 HOUR + INTERVAL 1 HOUR", None),
        ("TIMESTAMP '2024-01-01'", None),
    ],
)
def test_lengths_are_read_without_spark_where_they_are_plain(text: str, length: int | None) -> None:
    assert length_of(text) == (None if length is None else Length(length, length))


def test_offsets_of_zones() -> None:
    assert offsets("UTC") == (0, 0)
    assert offsets("+02:00") == (2 * HOUR, 2 * HOUR)
    low, high = offsets("Europe/Berlin")
    assert 0 < low < HOUR
    assert high == 3 * HOUR, "double summer time of 1945"


def test_bounds_are_closed_over_all_streams() -> None:
    bounds = DifferenceBounds([0, 2, 3])
    bounds.add(0, 2, HOUR)
    bounds.add(2, 0, 0)
    bounds.add(2, 3, MINUTE)
    assert bounds.most(0, 3) == HOUR + MINUTE
    assert bounds.most(3, 0) is None
    assert bounds.bounds() == (TimeBound(0, 2, 0, HOUR),)
    bounds.add(3, 0, 5)
    assert bounds.bounds() == (
        TimeBound(0, 2, 0, HOUR),
        TimeBound(0, 3, -5, HOUR + MINUTE),
        TimeBound(2, 3, -HOUR - 5, MINUTE),
    )
    assert not bounds.is_contradictory
    bounds.add(3, 2, -MINUTE - 1)
    assert bounds.is_contradictory


@pytest.mark.parametrize("seed", range(20))
def test_bounds_are_the_tightest(seed: int) -> None:
    chance = random.Random(seed)
    streams = range(4)
    bounds = DifferenceBounds(streams)
    most = {(a, b): 0 if a == b else 10**9 for a in streams for b in streams}
    for _ in range(10):
        earlier, later = chance.sample(streams, 2)
        limit = chance.randrange(1, 100)
        bounds.add(earlier, later, limit)
        most[earlier, later] = min(limit, most[earlier, later])
    for middle in streams:
        for a in streams:
            for b in streams:
                most[a, b] = min(most[a, b], most[a, middle] + most[middle, b])
    for a in streams:
        for b in streams:
            if a != b:
                assert bounds.most(a, b) == (None if most[a, b] >= 10**8 else most[a, b])
