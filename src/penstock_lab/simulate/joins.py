"""Joins and streams for virtual time: a join of a stated shape, and phases of drawn arrivals, keys and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.optimizer.join_statistics import UnitCosts
from penstock.optimizer.operator_order import UnaryOperator
from penstock.plan.joins import (
    Comparison,
    JoinColumn,
    JoinInput,
    JoinKey,
    JoinOutput,
    JoinPlan,
    Operator,
    TimeBound,
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_SECOND = 1_000_000


def shaped_join(
    inputs: int,
    keys: Sequence[Sequence[int]],
    span: float = 5.0,
    static: Sequence[int] = (),
    compared: Sequence[tuple[int, int]] = (),
    spans: Mapping[tuple[int, int], tuple[float, float]] | None = None,
) -> JoinPlan:
    """A join of inputs a, b, ... with columns a_0 (key 0), ..., a_v (a value), a_t (event time).

    Args:
        inputs: how many.
        keys: of each the inputs that have a part in it.
        span: seconds that every two streams may be apart, either way.
        static: inputs that are static tables.
        compared: pairs of inputs whose values are compared by <.
        spans: bounds of single pairs, seconds.
    """
    names = "abcdefghijklmnop"[:inputs]
    made = []
    for number, name in enumerate(names):
        columns = [
            JoinColumn(f"{name}_{key}", f"k{key}", pa.int64())
            for key, parts in enumerate(keys)
            if number in parts
        ]
        columns.append(JoinColumn(f"{name}_v", "v", pa.int64()))
        time = None if number in static else f"{name}_t"
        if time is not None:
            columns.append(JoinColumn(time, "t", pa.timestamp("us")))
        made.append(JoinInput(name, f"table_{name}", number in static, None, tuple(columns), time))
    bounds = []
    for pair in combinations([number for number in range(inputs) if number not in static], 2):
        lower, upper = (spans or {}).get(pair, (-span, span))
        bounds.append(TimeBound(*pair, int(lower * _SECOND), int(upper * _SECOND)))
    return JoinPlan(
        "joined",
        tuple(made),
        tuple(
            JoinKey(
                tuple(f"{name}_{key}" if number in parts else None for number, name in enumerate(names)),
                pa.int64(),
            )
            for key, parts in enumerate(keys)
        ),
        tuple(bounds),
        tuple(Comparison(f"{names[i]}_v", Operator.LESS, f"{names[j]}_v") for i, j in compared),
        (),
        (JoinOutput("v", "a_v", pa.int64(), "a_v"),),
    )


@dataclass(frozen=True, slots=True)
class Phase:
    """A time in which nothing drifts.

    Attributes:
        seconds: how long it lasts.
        rates: by input, arrivals a second before any selection.
        domains: by key, how many values it has, all equally frequent.
        costs: of the executor's work.
        operators: by input, unary operators with their true time and selectivity, in the order the query has them.
    """

    seconds: float
    rates: tuple[float, ...]
    domains: tuple[int, ...]
    costs: UnitCosts
    operators: tuple[tuple[UnaryOperator, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """What arrives at an input.

    Attributes:
        times: float64, arrival and event time in seconds, ascending.
        keys: by key the input has a part in its values.
        verdicts: by operator which tuples pass.
    """

    times: Floats
    keys: dict[int, Ints]
    verdicts: dict[str, Bools]

    @property
    def passes(self) -> Bools:
        """Which tuples pass all operators."""
        passing = np.ones(len(self.times), np.bool_)
        for verdict in self.verdicts.values():
            passing &= verdict
        return passing


def drawn(plan: JoinPlan, phases: Sequence[Phase], seed: int) -> tuple[Trace, ...]:
    """Arrivals of Poisson processes with independent keys and verdicts, phase after phase.

    Args:
        plan: the join; its comparisons are left out, its inputs are streams.
        phases: all with the same operators.
        seed: of the random numbers.
    """
    rng = np.random.default_rng(seed)
    traces = []
    for number in range(len(plan.inputs)):
        own = [key for key, each in enumerate(plan.keys) if each.columns[number] is not None]
        begin = 0.0
        times: list[Floats] = []
        keys: dict[int, list[Ints]] = {key: [] for key in own}
        verdicts: dict[str, list[Bools]] = {each.name: [] for each in phases[0].operators[number]}
        for phase in phases:
            count = rng.poisson(phase.rates[number] * phase.seconds)
            times.append(np.sort(rng.uniform(begin, begin + phase.seconds, count)))
            begin += phase.seconds
            for key in own:
                keys[key].append(rng.integers(0, phase.domains[key], count))
            for operator in phase.operators[number]:
                verdicts[operator.name].append(rng.random(count) < operator.selectivity)
        traces.append(
            Trace(
                np.concatenate(times),
                {key: np.concatenate(each) for key, each in keys.items()},
                {name: np.concatenate(each) for name, each in verdicts.items()},
            )
        )
    return tuple(traces)
