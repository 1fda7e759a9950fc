"""Which lost windows are owed an answer, and in which order they are worked out."""

from __future__ import annotations

from penstock.control.policies.deadlines.debts import Debts, OwedWindow


def _window(end: int) -> OwedWindow:
    return OwedWindow(end - 5, end, float(end))


def _debts(most: int, **owed: tuple[int, ...]) -> Debts:
    return Debts(most, {int(view[1:]): [_window(end) for end in ends] for view, ends in owed.items()})


def _taken(debts: Debts, times: int) -> list[tuple[int, int] | None]:
    found = [debts.take() for _ in range(times)]
    return [each and (each[0], each[1].end) for each in found]


def test_views_take_turns_and_the_newest_window_is_first() -> None:
    debts = _debts(10, _1=(10, 30, 20), _2=(5,))
    assert _taken(debts, 5) == [(1, 30), (2, 5), (1, 20), (1, 10), None]
    assert len(debts) == 4, "what is being worked out is owed still"
    for view, end in ((1, 30), (2, 5), (1, 20), (1, 10)):
        debts.settle(view, _window(end))
    assert len(debts) == 0
    assert debts.of(1) == ()


def test_a_view_that_had_its_turn_waits_for_the_others() -> None:
    debts = _debts(10, _1=(10,), _2=(5,))
    assert _taken(debts, 1) == [(1, 10)]
    debts.put_back(1, _window(10))
    assert debts.owe(1, _window(20)) == []
    assert _taken(debts, 3) == [(2, 5), (1, 20), (1, 10)]


def test_what_gave_way_is_worked_out_again() -> None:
    debts = _debts(10, _1=(10,))
    assert _taken(debts, 2) == [(1, 10), None]
    debts.put_back(1, _window(10))
    assert _taken(debts, 1) == [(1, 10)]


def test_the_oldest_windows_beyond_the_bound_are_given_up_but_those_that_are_worked_out() -> None:
    debts = _debts(2, _1=(10, 20))
    assert debts.owe(1, _window(30)) == [_window(10)]
    assert debts.owe(2, _window(1)) == []
    assert _taken(debts, 3) == [(1, 30), (2, 1), (1, 20)]
    assert debts.owe(1, _window(40)) == [_window(40)], "the oldest that is not being worked out"
    assert debts.of(1) == (_window(20), _window(30))


def test_where_fewer_may_be_owed_than_before_the_next_loss_ends_that() -> None:
    debts = _debts(2, _1=(10, 20, 30, 40))
    assert _taken(debts, 1) == [(1, 40)]
    assert debts.owe(1, _window(50)) == [_window(10), _window(20), _window(30)]
    assert debts.of(1) == (_window(40), _window(50))
