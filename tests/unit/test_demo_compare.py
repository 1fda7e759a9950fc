"""The demo's comparison finds every row that differs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from penstock.cli.demo_compare import (
    Compared,
    compare_exactly,
    compare_matches,
    compare_windows,
    together,
)

NOON = datetime(2013, 7, 1, 12, tzinfo=UTC)
OURS = pa.table({"flight": [1, 1, 2], "queries": [["late", "far"], ["late"], ["far"]]})
PLAIN = pa.table({"flight": [2, 1, 1, 3], "rules": ["far", "late", "late,far", ""]})


def windows(*counts: int) -> pa.Table:
    return pa.table(
        {
            "origin": ["JFK"] * len(counts),
            "start": [NOON + timedelta(hours=hour) for hour in range(len(counts))],
            "departures": pa.array(counts, pa.int64()),
        }
    )


def test_the_same_pairs_in_another_order_are_the_same() -> None:
    assert compare_matches(OURS, PLAIN, ["flight"]) == Compared(4, 0)
    assert Compared(4, 0).text == "yes, all 4"


@pytest.mark.parametrize(
    ("flight", "rules", "different"),
    [
        ([2, 1, 1], ["far", "late", "late"], 1),  # a rule is missing
        ([2, 1], ["far", "late,far"], 1),  # one of two equal pairs is missing
        ([2, 1, 1, 1], ["far", "late", "late,far", "far"], 1),  # a pair too many
        ([2, 1, 1], ["late", "late", "late,far"], 2),  # another rule
        ([9, 1, 1], ["far", "late", "late,far"], 2),  # another flight
    ],
)
def test_a_pair_that_differs_is_found(flight: list[int], rules: list[str], different: int) -> None:
    compared = compare_matches(OURS, pa.table({"flight": flight, "rules": rules}), ["flight"])
    assert compared.different == different
    assert compared.text.startswith("NO: ")


def test_nothing_to_compare_is_not_the_same() -> None:
    assert together([Compared(0, 0)]).text == "NO: no rows to compare"
    assert together([Compared(3, 0), Compared(2, 1)]) == Compared(5, 1)


def test_windows_are_compared_up_to_the_newest_plain_one() -> None:
    assert compare_windows(windows(4, 5, 6), windows(4, 5)) == Compared(2, 0)
    assert compare_windows(windows(4, 5, 6), windows(4, 7)) == Compared(2, 2)


def test_windows_are_compared_with_what_duckdb_computes_of_the_flights() -> None:
    flights = pa.table(
        {
            "origin": ["JFK", "JFK", "JFK"],
            "sched_dep": [NOON, NOON + timedelta(minutes=59), NOON + timedelta(minutes=60)],
            "dep_time": pa.array([1200, 1259, None], pa.int32()),
        }
    )
    assert compare_exactly("departures_by_origin", windows(2), flights) == Compared(1, 0)
    assert compare_exactly("departures_by_origin", windows(3), flights) == Compared(1, 2)
