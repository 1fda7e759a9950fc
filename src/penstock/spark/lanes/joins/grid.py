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
        own = [key for key in searched if plan.keys[key].columns[number] is not None]
        whole = [key for key in own if not _leaves_out(plan, number, plan.keys[key])]
        found += [KeptRuns(number, key) for key in whole] or [KeptRuns(number, None)]
        # new tuples of an optional stream search by keys that it alone shares
        found += [KeptRuns(number, key) for key in own if plan.has_optional_stream and key not in whole]
    return tuple(found)


def lookup_runs(plan: JoinPlan) -> tuple[KeptRuns, ...]:
    """The runs that are kept of the tables that joined rows are looked up in, one each, by the first key of each."""
    return tuple(
        KeptRuns(number, 0 if each.keys else None)
        for number, each in enumerate(plan.lookups, len(plan.inputs))
    )


def _leaves_out(plan: JoinPlan, number: int, key: JoinKey) -> bool:
    """Whether tuples of an input without a key may be in rows: it shares that with an optional input alone.

    Left tuples of two streams are in rows of their own without it.
    """
    if not plan.optional or number in plan.optional or (plan.has_optional_stream and len(plan.inputs) == 2):
        return False
    others = set(range(len(plan.inputs))).difference((number, *plan.optional))
    return all(key.columns[other] is None for other in others)


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
        or_null=asked.or_null,
        is_untimed=asked.is_untimed,
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
