"""Which instances of a query are still to come."""

from __future__ import annotations

from penstock.control.policies.deadlines.disciplines import Instance
from penstock.control.policies.deadlines.forecast import InstanceForecast
from penstock.plan.deadlines import WindowSpan


def forecast(*created: tuple[float, int, int]) -> InstanceForecast:
    """After instances that were created so, and hold such tuples; due 3 s after."""
    made = InstanceForecast()
    for number, (at, first, last) in enumerate(created):
        made.created(Instance(number, at, at + 3.0, WindowSpan(first, last), number, at))
    return made


def test_it_goes_on_by_the_hop_and_the_rate() -> None:
    known = forecast((0.0, 0, 10), (0.5, 4, 18), (1.0, 12, 30))
    assert known.until(5.2, 1.2) == [
        Instance(3, 1.5, 4.5, WindowSpan(22, 40), 3, 1.5),
        Instance(4, 2.0, 5.0, WindowSpan(32, 50), 4, 2.0),
    ]
    assert known.until(4.4, 1.2) == []


def test_what_lies_far_back_counts_no_more() -> None:
    later = [(100.0 + number, 50 * number, 50 * number + 50) for number in range(6)]
    (following,) = forecast((0.0, 0, 0), (1.0, 0, 0), *later).until(109.0, 105.0)
    assert (following.created, following.span) == (106.0, WindowSpan(300, 350))


def test_overdue_ones_are_left_out() -> None:
    known = forecast((0.0, 0, 1), (1.0, 1, 2))
    assert [each.created for each in known.until(8.0, 3.5)] == [4.0, 5.0]


def test_nothing_is_known_of_one_instance_or_of_several_at_once() -> None:
    assert forecast((0.0, 0, 1)).until(100.0, 0.0) == []
    assert forecast((0.0, 0, 1), (0.0, 1, 2)).until(100.0, 0.0) == []


def test_beside_a_long_deadline_it_looks_ahead_no_further_than_it_says() -> None:
    found = forecast((0.0, 0, 10), (0.1, 10, 20)).until(3_600.0, 0.1)
    assert [each.number for each in found] == [*range(2, 18)]


def test_instances_created_in_pairs_count_as_evenly_spread() -> None:
    assert forecast((0.0, 0, 5), (0.0, 5, 10), (1.0, 10, 15), (1.0, 15, 20)).hop == 0.5
    assert forecast((0.0, 0, 5), (0.0, 5, 10)).hop == 0.0
