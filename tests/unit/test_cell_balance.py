"""How the cells of a cut are divided among tasks."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.operators.joins.tuples import Stripe
from penstock.spark.lanes.joins.balance import CellBalance, Place

CELLS = 4


def _after(seconds: list[float], tuples: float = 1_000) -> CellBalance:
    """A balance after a cut with as many tuples in each cell."""
    balance = CellBalance(CELLS, CELLS)
    told = np.full(CELLS, tuples)
    balance.measured(told, balance.places(told), seconds, [0.0] * CELLS)
    return balance


def _stripes(places: list[Place]) -> list[int]:
    """Into how many stripes each cell is divided; makes sure that each of them is there once."""
    assert [each.number for each in places] == list(range(len(places)))
    assert [each.cell for each in places[:CELLS]] == list(range(CELLS))
    found = [max(each.stripe.of for each in places if each.cell == cell) for cell in range(CELLS)]
    every = {(cell, Stripe(number, of)) for cell, of in enumerate(found) for number in range(of)}
    assert {(each.cell, each.stripe) for each in places} == every
    assert len(places) == len(every)
    return found


@pytest.mark.parametrize(
    ("seconds", "stripes"),
    [
        ([1.0, 1.0, 1.0, 1.0], [1, 1, 1, 1]),
        ([1.4, 1.0, 1.0, 1.0], [1, 1, 1, 1]),
        ([10.0, 1.0, 1.0, 1.0], [7, 1, 1, 1]),
        ([5.0, 0.1, 5.0, 0.1], [4, 1, 4, 1]),
        # too little to pay for a task
        ([0.15, 0.01, 0.01, 0.01], [1, 1, 1, 1]),
        ([0.35, 0.01, 0.01, 0.01], [3, 1, 1, 1]),
    ],
)
def test_a_heavy_cell_is_divided(seconds: list[float], stripes: list[int]) -> None:
    assert _stripes(_after(seconds).places(np.full(CELLS, 1_000.0))) == stripes


def test_no_task_has_more_than_half_of_what_a_core_has_to_do_and_another_half() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        seconds = rng.pareto(0.7, CELLS) + 1
        places = _after(seconds.tolist()).places(np.full(CELLS, 1_000.0))
        longest = max(seconds[each.cell] / each.stripe.of for each in places)
        assert longest <= 1.5 * seconds.sum() / CELLS


def test_what_a_cell_takes_follows_its_tuples_and_what_they_cost_of_late() -> None:
    balance = _after([1.0] * CELLS)
    # a cell with a burst
    assert _stripes(balance.places(np.array([10_000.0, 1_000, 1_000, 1_000]))) == [7, 1, 1, 1]
    assert _stripes(balance.places(np.zeros(CELLS))) == [1] * CELLS
    # a key that has become hot
    told = np.full(CELLS, 1_000.0)
    for _ in range(3):
        places = balance.places(told)
        took = [9.0 / each.stripe.of if each.cell == 0 else 1.0 for each in places]
        balance.measured(told, places, took, [0.0] * len(places))
    assert _stripes(balance.places(told))[0] > 4


def test_nothing_is_divided_before_anything_was_measured_and_one_cell_among_all_cores() -> None:
    assert _stripes(CellBalance(CELLS, CELLS).places(np.full(CELLS, 1e6))) == [1] * CELLS
    alone = CellBalance(1, 2)
    told = np.array([1_000.0])
    (place,) = alone.places(told)
    alone.measured(told, [place], [4.0], [0.0])
    assert [each.stripe for each in alone.places(told)] == [Stripe(number, 4) for number in range(4)]


def test_cells_without_tuples_so_far_are_like_the_others() -> None:
    balance = CellBalance(2, 2)
    some = np.array([1_000.0, 0.0])
    balance.measured(some, balance.places(some), [1.0, 0.0], [0.0, 0.0])
    assert [each.cell for each in balance.places(np.array([1_000.0, 9_000.0]))].count(1) > 2


@pytest.mark.parametrize(("searching", "table", "tasks"), [(2.0, 8.0, 1), (20.0, 5.0, 4), (20.0, 1.0, 20)])
def test_a_cell_has_no_more_tasks_than_search_for_longer_than_a_table_takes(
    searching: float, table: float, tasks: int
) -> None:
    balance = CellBalance(1, 16)
    told = np.array([1_000.0])
    for _ in range(4):
        places = balance.places(told)
        seconds = [table + searching / len(places)] * len(places)
        balance.measured(told, places, seconds, [table] * len(places))
    assert len(balance.places(told)) == tasks
    assert not balance.is_light(np.zeros(1))
