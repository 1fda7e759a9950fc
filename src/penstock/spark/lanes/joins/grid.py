"""The grid of a join view, and which runs of its inputs are kept: one a key that an input can be probed by.

Shares are those of HyperCube (Afrati and Ullman, "Optimizing joins in a map-reduce environment") for inputs of one
size: of all grids with a cell a core the one that copies the tuples of streams the least.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from penstock.operators.routing.routers import Dimension, Grid, GridRouter
from penstock.plan.joins import JoinKey, JoinPlan
from penstock.spark.storage.demands import TupleDemand


@dataclass(frozen=True, slots=True)
class KeptRuns:
    """Runs of an input of a join.

    Attributes:
        input: its number.
        key: number of the key they are sorted by; None: by event time alone.
    """

    input: int
    key: int | None


def shares_of(plan: JoinPlan, cells: int) -> tuple[int, ...]:
    """Into how many slices each key of a join is dealt.

    Args:
        plan: the join.
        cells: how many cells there are to be; a join without keys has one.
    """
    if not plan.keys:
        return ()

    def copies(shares: tuple[int, ...]) -> int:
        lacking = (
            prod(share for share, key in zip(shares, plan.keys, strict=True) if key.columns[number] is None)
            for number, each in enumerate(plan.inputs)
            if not each.is_static
        )
        return sum(lacking)

    return min(_factored(cells, len(plan.keys)), key=copies)


def grid_of(plan: JoinPlan, shares: tuple[int, ...]) -> Grid:
    """The grid of a join."""
    dimensions = (
        Dimension(_key_name(plan, number), (str(key.type),), share)
        for number, (key, share) in enumerate(zip(plan.keys, shares, strict=True))
    )
    return Grid(tuple(dimensions))


def router_of_input(plan: JoinPlan, grid: Grid, number: int) -> GridRouter:
    """Deals an input of a join out."""
    columns = (key.columns[number] for key in plan.keys)
    return GridRouter(grid, tuple(() if column is None else (column,) for column in columns))


def searched_keys(plan: JoinPlan) -> tuple[int, ...]:
    """For each key the one that is searched by in its place: of keys that the same inputs have the first; the others are
    compared."""
    first: dict[tuple[bool, ...], int] = {}
    return tuple(
        first.setdefault(tuple(column is None for column in key.columns), number)
        for number, key in enumerate(plan.keys)
    )


def kept_runs(plan: JoinPlan) -> tuple[KeptRuns, ...]:
    """The runs that are kept of the inputs of a join, those of an input together."""
    found: list[KeptRuns] = []
    searched = dict.fromkeys(searched_keys(plan))
    for number in range(len(plan.inputs)):
        own: list[int | None] = [key for key in searched if _is_searched_by(plan, number, plan.keys[key])]
        found += [KeptRuns(number, key) for key in own or [None]]
    return tuple(found)


def _is_searched_by(plan: JoinPlan, number: int, key: JoinKey) -> bool:
    """Whether an input is searched by a key: for one that only an optional table shares it is not, and has rows without it."""
    if key.columns[number] is None:
        return False
    if not plan.looks_up or number in plan.optional:
        return True
    others = set(range(len(plan.inputs))).difference((number, *plan.optional))
    return any(key.columns[other] is not None for other in others)


def demand_of(plan: JoinPlan, grid: Grid, runs: KeptRuns) -> TupleDemand:
    """What is asked of the stream of an input for its runs."""
    asked = plan.inputs[runs.input]
    assert asked.time is not None, "it is a stream"
    return TupleDemand(
        condition=asked.condition,
        columns=tuple((column.text, column.name) for column in asked.columns),
        key=key_columns(plan, runs),
        time=asked.time,
        router=router_of_input(plan, grid, runs.input).document(),
    )


def key_columns(plan: JoinPlan, runs: KeptRuns) -> tuple[str, ...]:
    """The columns that runs are sorted by before event time."""
    column = None if runs.key is None else plan.keys[runs.key].columns[runs.input]
    return () if column is None else (column,)


def _key_name(plan: JoinPlan, number: int) -> str:
    return " = ".join(column for column in plan.keys[number].columns if column is not None)


def _factored(product: int, factors: int) -> Iterator[tuple[int, ...]]:
    """The ways to write a number as so many factors, larger first ones first."""
    if factors == 1:
        yield (product,)
        return
    for first in range(product, 0, -1):
        if product % first == 0:
            for rest in _factored(product // first, factors - 1):
                yield (first, *rest)
