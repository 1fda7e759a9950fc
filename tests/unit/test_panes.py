"""Panes hold one row a group for what arrived before anything asks when, in memory and in the state."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.windows import pane, panes
from penstock.operators.windows.aggregates import Parts, lift_values
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.content import Content
from penstock.operators.windows.operator import PaneBatch, WindowOperator
from penstock.operators.windows.panes import PANE, Panes
from penstock.operators.windows.slack import RequiredSlack
from penstock.operators.windows.slack_policies import FixedSlack
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows

BOUND = ErrorBound(0.05, 0.05)
SUM = Aggregate("sum", "value", pa.float64())
MEDIAN = Aggregate("percentile", "value", pa.float64(), 0.5)


def operator_of(size: int, slide: int, *aggregates: Aggregate) -> WindowOperator:
    plan = WindowPlan("v", "t", Windows(size, slide), (("k", pa.int64()),), aggregates, BOUND)
    return WindowOperator([(plan, RequiredSlack(BOUND))], gamma=0, least_horizon=1_000)


def feed(operator: WindowOperator, times: np.ndarray, keys: np.ndarray, values: np.ndarray) -> list[Answer]:
    tuples = pa.table({PANE: times // operator.pane * operator.pane, "k": keys, "value": values})
    groups = [PANE, "k"]
    kept = {name: lift_values(tuples, groups, name) for name in operator.parts.values}
    partials = operator.parts.lift(tuples, groups)
    return operator.process(PaneBatch(partials, kept, int(times.max()), np.zeros(1, np.int64)))


def arrivals_of(operator: WindowOperator, start: int) -> dict[int, int]:
    return operator.panes._panes[start].content.arrivals


@pytest.mark.parametrize("touched", [10_000, 500])
def test_a_pane_of_many_keys_holds_few_rows_of_many_batches(touched: int) -> None:
    """A batch a second for a minute, 10,000 keys: 600,000 rows, or 30,000, without merging."""
    rng = np.random.default_rng(1)
    operator = operator_of(3_600, 3_600, SUM)
    stored: list[bytes] = []
    written = brought = 0
    for second in range(60):
        keys = rng.permutation(10_000)[:touched]
        feed(operator, np.full(touched, second), keys, rng.random(touched))
        change = operator.panes.take_changes()[0]
        pieces = [piece.stored() for piece in change.pieces]
        stored = stored[: change.kept] + pieces
        written += sum(map(len, pieces))
        brought += touched * len(stored[0]) // 10_000
        rows = sum(arrivals_of(operator, 0).values())
        assert rows < 20_000
        assert sum(Content.loaded(each).partials.num_rows for each in stored) == rows
        assert len(stored) <= 20
    # each row is written once when it comes, and when levels are merged
    assert written < 8 * 60 * touched * 40


def test_what_arrives_once_a_window_has_ended_is_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pane, "_LEAST_ROWS", 1)
    operator = operator_of(20, 10, SUM)
    for time in (0, 4, 7, 9, 10, 3, 25, 5):
        feed(operator, np.array([time]), np.zeros(1, np.int64), np.ones(1))
    # t_max before each batch was -1, 0, 4, 7 and, once [-10, 10) had ended, 10 and 25
    assert arrivals_of(operator, 0) == {7: 1, 10: 1, 25: 1}


def test_what_was_said_beforehand_is_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pane, "_LEAST_ROWS", 1)
    plan = WindowPlan("v", "t", Windows(100, 100), (("k", pa.int64()),), (SUM, MEDIAN), BOUND)
    operator = WindowOperator([(plan, FixedSlack(0))], gamma=0, least_horizon=1_000)
    one = np.zeros(1, np.int64)
    for time in (0, 1, 2):
        feed(operator, np.array([time]), one, np.ones(1))
    silence = PaneBatch(None, {}, 2, np.zeros(0, np.int64), answer_all=True)
    (said,) = operator.process(silence)
    for time in (3, 4, 5):
        feed(operator, np.array([time]), one, np.ones(1))
    assert len(arrivals_of(operator, 0)) == 2
    (again,) = operator.process(silence)
    assert (again.revision, again.rows.column("_a0").to_pylist()) == (1, [6.0])
    assert again.replaced.to_pylist() == said.rows.to_pylist()
    feed(operator, np.array([6]), one, np.ones(1))
    assert len(arrivals_of(operator, 0)) == 2, "nothing was said between the first six"


def test_a_pane_of_many_arrivals_in_a_state_is_read_as_it_is_and_merged_when_it_grows() -> None:
    parts = Parts.of((SUM,))
    pieces = [
        Content(
            pa.table(
                {"k": [0, 1], "arrival": [second] * 2, "rows": [1, 1], "count:value": [1, 1]}
            ).append_column("sum:value", pa.array([1.0, 2.0])),
            {},
        )
        for second in range(40)
    ]
    held = Panes(parts, ["k"])
    held.put(0, pieces)
    content = held._panes[0].content
    assert content.partials.num_rows == 80
    tuples = pa.table({PANE: [0], "k": [1], "value": [5.0]})
    assert held.append(parts.lift(tuples, [PANE, "k"]), {}, 40) == [0]
    held.merge_arrivals(0, [9])
    content = held._panes[0].content
    rows = {(row["k"], row["arrival"]): row["sum:value"] for row in content.partials.to_pylist()}
    assert {key: value for key, value in rows.items() if key[1] > 9} == {(0, 40): 30.0, (1, 40): 65.0}
    assert sum(value for (key, _), value in rows.items() if key == 0) == 40.0
    change = held.take_changes()[0]
    assert change.kept == 10, "the first ten are apart from what came later, and too few to be merged"


def test_rows_of_groups_are_known_as_they_were() -> None:
    parts, rng, known = Parts.of((SUM, MEDIAN)), np.random.default_rng(3), 0
    for _ in range(30):
        own = pane.Pane()
        for arrival in range(12):
            for _ in range(rng.integers(0, 3)):
                tuples = pa.table({"k": rng.integers(0, 5, 4), "value": rng.random(4)})
                values = lift_values(tuples, ["k"], "value")
                content = Content(parts.lift(tuples, ["k"]), {"value": values})
                own.append(content.arrived(arrival, ["k"]), arrival)
            if own.rows and rng.random() < 0.5:
                assert rows_of(own.grouped(parts, ["k"])) == rows_of(own.content.merged(parts, ["k"]))
            if own.rows and rng.random() < 0.2:
                own.change(parts, ["k"])
            if own.rows and rng.random() < 0.05:
                own.merge_arrivals(parts, ["k"], range(arrival + 1))
            for asked in range(arrival + 1):
                found = own.grouped_by(asked)
                if found is not None:
                    known += 1
                    assert rows_of(found) == rows_of(own.content.until(asked).merged(parts, ["k"]))
    assert known > 300


def test_deviations_do_not_depend_on_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merged step by step they have other last bits than merged at once, as after a restart."""
    monkeypatch.setattr(panes, "_FEW_ROWS", 0)
    rng = np.random.default_rng(2)
    parts = Parts.of((Aggregate("var_pop", "value", pa.float64()),))
    every, read = Panes(parts, ["k"]), Panes(parts, ["k"])
    for arrival in range(12):
        tuples = pa.table({PANE: [0] * 9, "k": rng.integers(0, 3, 9), "value": rng.random(9)})
        every.append(parts.lift(tuples, [PANE, "k"]), {}, arrival)
        every._grouped(0)
    read.put(0, every.take_changes()[0].pieces)
    assert rows_of(every._grouped(0)) == rows_of(read._grouped(0))


def rows_of(content: Content) -> list[list[str]]:
    return [sorted(map(str, each.to_pylist())) for each in (content.partials, *content.values.values())]
