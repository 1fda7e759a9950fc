"""The required slack of medians, percentiles and distinct counts: worked out row by row, equal to its definition."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.windows.required_slack import ARRIVAL, END, WindowHistory
from penstock.plan.windows import Aggregate, ErrorBound

FUNCTIONS = [
    *((f"{name}_distinct", None) for name in ("count", "sum", "avg")),
    *((name, None) for name in ("mode", "collect_set", "collect_list")),
    *(("percentile", fraction) for fraction in (0.0, 0.25, 0.5, 0.9, 1.0)),
]


def expected(aggregate: Aggregate, bound: ErrorBound, rows: pa.Table, end: int) -> int:
    """The definition: each answer of a group evaluated by itself."""
    arrivals, numbers, counts = (rows.column(name).to_numpy() for name in (ARRIVAL, "value", "rows"))

    def answer(known: np.ndarray) -> float:
        if aggregate.function == "count_distinct":
            return float(len(np.unique(numbers[known])))
        values = np.repeat(numbers[known], counts[known])
        different, often = np.unique(values, return_counts=True)
        match aggregate.function:
            # an array is right or wrong, and grows with what it holds
            case "collect_set" | "collect_list":
                return float(len(different if aggregate.function == "collect_set" else values))
            case "mode":
                return float(different[np.argmax(often)]) if len(values) else -np.inf
            case "sum_distinct" | "avg_distinct":
                total = float(np.sum(different))
                return (
                    (total if aggregate.function[0] == "s" else total / len(different))
                    if len(values)
                    else np.nan
                )
        return float(np.quantile(values, aggregate.parameter)) if len(values) else np.nan

    final = answer(np.ones(len(numbers), np.bool_))
    needed = 0
    for arrival in np.unique(arrivals).tolist():
        early = answer(arrivals < arrival)
        if early == final or (np.isnan(early) and np.isnan(final)):
            continue
        with np.errstate(invalid="ignore", divide="ignore"):
            error = abs(early - final) if bound.absolute else np.float64(abs(early - final)) / abs(final)
        if aggregate.function.startswith("collect") or not error < bound.epsilon:
            needed = max(needed, arrival - end + 1)
    return needed


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(FUNCTIONS),
    st.sampled_from([(0.05, False), (0.3, False), (2.0, True)]),
    st.sampled_from(["few", "real", "with NaN", "whole"]),
)
def test_it_is_that_of_each_answer_by_itself(
    seed: int, function: tuple[str, float | None], epsilon: tuple[float, bool], kind: str
) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60))
    bound = ErrorBound(epsilon[0], 0.05, epsilon[1])
    aggregate = Aggregate(function[0], "v", pa.float64(), function[1])
    numbers = rng.integers(-4, 6, count).astype(np.float64) if kind != "real" else rng.normal(10, 5, count)
    if kind == "with NaN":
        numbers[rng.random(count) < 0.2] = np.nan
    values = pa.table(
        {
            END: rng.choice([20, 40], count),
            "k": rng.integers(0, 3, count),
            ARRIVAL: rng.integers(0, 70, count),
            "value": pa.array(numbers.astype(np.int64)) if kind == "whole" else pa.array(numbers),
            "rows": rng.integers(1, 5, count),
        }
    ).sort_by([(END, "ascending")])
    # the last group has partials and no value
    partials = values.drop_columns(["value"])
    alone = {END: [40], "k": [9], ARRIVAL: [3], "rows": [1]}
    partials = pa.concat_tables([partials, pa.table(alone, partials.schema)])
    history = WindowHistory(partials, {"v": values.take(pa.array(rng.permutation(count)))}, [END, "k"])
    groups = partials.select([END, "k"]).group_by([END, "k"], use_threads=False).aggregate([])
    (found,) = history.required_slack([aggregate], bound)
    for group, slack in zip(groups.to_pylist(), found.tolist(), strict=True):
        mask = (values.column(END).to_numpy() == group[END]) & (values.column("k").to_numpy() == group["k"])
        own = values.filter(pa.array(mask))
        assert slack == (expected(aggregate, bound, own, group[END]) if own.num_rows else 0)
