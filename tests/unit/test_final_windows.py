"""Final windows answered from the history in one pass are what each of them holds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.windows.aggregates import SELECTION, lift_values
from penstock.operators.windows.history import Beyond, FinalWindows
from penstock.operators.windows.operator import PaneBatch, WindowOperator
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.slack_policies import policy_of
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows

BOUND = ErrorBound(0.05, 0.05)
AGGREGATES = (Aggregate("sum", "x", pa.int64()), Aggregate("count", None, pa.int64()))
MEDIAN = Aggregate("percentile", "x", pa.float64(), 0.5)
KEYS = (("k", pa.int64()),)
PANE_LENGTH, ENTRIES, ROWS = 10, 120, 20


def plan(name: str, size: int, slide: int, selection: int | None) -> WindowPlan:
    return WindowPlan(name, "t", Windows(size, slide), KEYS, (*AGGREGATES, MEDIAN), BOUND, selection)


def batches(rng: np.random.Generator, has_selections: bool) -> list[pa.Table]:
    found = []
    for _ in range(ENTRIES):
        columns = {
            "t": rng.integers(0, 400, ROWS),
            "k": rng.integers(0, 3, ROWS),
            "x": rng.integers(-9, 9, ROWS),
        }
        if has_selections:
            columns[SELECTION] = rng.integers(0, 2, ROWS)
        found.append(
            pa.table(columns).append_column(PANE, pa.array(columns["t"] // PANE_LENGTH * PANE_LENGTH))
        )
    return found


@pytest.mark.parametrize("has_selections", [False, True])
def test_each_window_has_what_it_held_and_what_it_got(has_selections: bool) -> None:
    rng = np.random.default_rng(8)
    plans = [
        plan("a", 50, 20, 0 if has_selections else None),
        plan("b", 20, 10, 1 if has_selections else None),
    ]
    operator = WindowOperator([(each, policy_of(each)) for each in plans], gamma=0, pane=PANE_LENGTH)
    windows = [
        Beyond(0, each.name, int(start), int(rng.integers(40, ENTRIES)))
        for each in plans
        for start in range(0, 300, each.windows.slide)
        if rng.random() < 0.7
    ]
    gone = Beyond(0, "dropped", 0, 0)
    final = FinalWindows(operator, [*windows, gone])
    keys = [PANE, *operator.panes.keys]
    tuples = batches(rng, has_selections)
    for number, table in enumerate(tuples):
        values = {name: lift_values(table, keys, name) for name in operator.parts.values}
        final.add(number, PaneBatch(operator.parts.lift(table, keys), values, None, np.zeros(0, np.int64)))
    final.add(ENTRIES, PaneBatch(None, {}, None, np.zeros(0, np.int64)))
    found = dict(final.answers(7))
    for window in windows:
        own = next(each for each in plans if each.name == window.view)
        before, now = (answer_of(tuples[:until], own, window.start) for until in (window.entry, len(tuples)))
        changed = {key: row for key, row in now.items() if before.get(key) != row}
        if not changed:
            assert window not in found
            continue
        answer = found.pop(window)
        assert (answer.start, answer.end) == (window.start, window.start + own.windows.size)
        assert (answer.revision, answer.final) == (7, True)
        assert rows_of(answer.rows) == changed
        assert rows_of(answer.replaced) == {key: before[key] for key in changed if key in before}
    assert not found


def answer_of(tuples: list[pa.Table], own: WindowPlan, start: int) -> dict[int, tuple[int, int, float]]:
    rows = pa.concat_tables(tuples).to_pylist()
    held: dict[int, list[int]] = {}
    for row in rows:
        if start <= row["t"] < start + own.windows.size and row.get(SELECTION) == own.selection:
            held.setdefault(row["k"], []).append(row["x"])
    return {key: (sum(each), len(each), float(np.median(each))) for key, each in held.items()}


def rows_of(rows: pa.Table) -> dict[int, tuple[int, int, float]]:
    return {row["k"]: (row["_a0"], row["_a1"], row["_a2"]) for row in rows.to_pylist()}
