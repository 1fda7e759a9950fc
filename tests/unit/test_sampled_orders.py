"""Windows worked out from samples: what is drawn, what rows say, and when the policy lets them."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from penstock.control.actions import Action, GiveUpInstance, StartOrder
from penstock.control.events import (
    DeadlineBound,
    Event,
    InstanceCreated,
    LateAnswered,
    OrderAbandoned,
    OrderEnded,
    ProcessorsIdle,
)
from penstock.control.policies.deadlines.choices import chosen_policy
from penstock.control.policies.deadlines.prediction import UnitCosts
from penstock.control.policies.deadlines.sample_costs import LEAST_SAMPLE, MOST_SAMPLE, sample_size
from penstock.operators.deadlines.instances import Extent, Tuples
from penstock.operators.deadlines.order import OrderPlan, work_out_sampled
from penstock.operators.deadlines.run_tuples import sampled_tuples, tuples_of
from penstock.operators.deadlines.sampled_order import _typed
from penstock.operators.joins.tuples import RunSlice
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import Run, RunPlan, write_run
from penstock.plan.deadlines import DeadlineQuery, LossConstraint, WindowSpan, WindowWork
from penstock.plan.windows import ERROR_BOUND, Aggregate, ErrorBound, WindowPlan, Windows

BY_TIME = RunPlan((), "t", HashRouter((), 1))
EXACT = (
    Aggregate("count", None, pa.int64()),
    Aggregate("sum", "x", pa.decimal128(20, 2)),
    Aggregate("avg", "y", pa.float64()),
    Aggregate("percentile", "y", pa.float64(), 0.5),
)
BOUNDS = (Aggregate(ERROR_BOUND, None, pa.float64()),) * len(EXACT)


def _run(first: int, count: int) -> Run:
    times = np.arange(first, first + count)
    table = pa.table(
        {
            "t": pa.array(times, pa.timestamp("us")),
            "k": pa.array(times % 2),
            "x": pa.array([Decimal(int(time)) for time in times], pa.decimal128(12, 2)),
            "y": pa.array(times * 1.0, mask=times % 10 == 0),
        }
    )
    sink = pa.BufferOutputStream()
    write_run(table, BY_TIME, sink)
    return Run(sink.getvalue())


RUNS = [RunSlice(_run(0, 6_000), 2, 3), RunSlice(_run(6_000, 6_000), 3, 4)]


def _plan(keys: tuple[tuple[str, pa.DataType], ...]) -> OrderPlan:
    bound = ErrorBound(0.05, 0.05)
    return OrderPlan(WindowPlan("v", "t", Windows(10_000, 1_000), keys, EXACT + BOUNDS, bound))


def test_a_sample_is_drawn_from_the_window_alone_and_is_the_same_each_time() -> None:
    extent = Extent(1_000, 11_000, 100)
    sample, population = sampled_tuples(RUNS, ["k"], extent, 2_000)
    assert population == 10_000
    assert len(np.unique(sample.times)) == 2_000
    assert sample.times.min() >= 1_000
    assert sample.times.max() < 11_000
    assert set(sample.entries[sample.times < 6_000]) == {3}
    assert sampled_tuples(RUNS, ["k"], extent, 2_000)[0].times.tolist() == sample.times.tolist()
    halves = np.bincount(sample.times > 6_000)
    assert abs(halves[0] - halves[1]) < 200


def test_a_sample_has_no_tuples_of_later_entries_and_all_of_a_small_window() -> None:
    extent = Extent(5_000, 7_000, 4)
    sample, population = sampled_tuples(RUNS, ["x"], extent, 50_000)
    assert (population, sorted(sample.times)) == (1_000, list(range(5_000, 6_000)))
    exact = tuples_of(RUNS, ["x"], [extent])
    assert sample.columns.equals(exact.columns.filter(pa.array(extent.holds(exact))))
    nothing, none = sampled_tuples(RUNS, ["x"], Extent(50_000, 60_000, 100), 10)
    assert (len(nothing.times), none) == (0, 0)


@pytest.mark.parametrize("keys", [(), (("k", pa.int64()),)])
def test_rows_of_a_sample_have_the_columns_of_exact_ones_and_their_bounds(keys) -> None:  # type: ignore[no-untyped-def]
    plan, extent = _plan(keys), Extent(1_000, 11_000, 100)
    sample, population = sampled_tuples(RUNS, list(plan.columns), extent, 3_000)
    rows = work_out_sampled(plan, sample, population).rows
    types = [*(kind for _, kind in keys), *(each.type for each in plan.window.aggregates), pa.bool_()]
    assert rows.schema.types == types
    assert rows.num_rows == (2 if keys else 1)
    truth = tuples_of(RUNS, ["k", "x", "y"], [extent])
    for row in rows.to_pylist():
        own = truth.columns.filter(pa.array(extent.holds(truth)))
        own = own.filter(pa.compute.equal(own.column("k"), row["k"])) if keys else own
        known = own.column("y").drop_null().to_numpy()
        exact = own.num_rows, float(sum(own.column("x").to_pylist())), known.mean(), np.median(known)
        for number, value in enumerate(exact):
            # of one draw: twice the bound
            assert abs(float(row[f"_a{number}"]) - value) <= 2 * row[f"_a{number + 4}"]
        assert (row["_a4"] == 0) == (not keys), "all tuples are counted without being read"
        assert 0 < row["_a5"] < 0.1 * exact[1]


def test_a_sample_of_all_tuples_is_exact_and_an_empty_one_has_no_rows() -> None:
    plan, extent = _plan((("k", pa.int64()),)), Extent(0, 100, 100)
    sample, population = sampled_tuples(RUNS, list(plan.columns), extent, 1_000)
    even, odd = sorted(work_out_sampled(plan, sample, population).rows.to_pylist(), key=lambda row: row["k"])
    assert (even["_a0"], even["_a1"], odd["_a1"]) == (50, Decimal(2450), Decimal(2500))
    assert [odd[f"_a{number}"] for number in range(4, 8)] == [0, 0, 0, 0]
    empty, none = sampled_tuples(RUNS, list(plan.columns), Extent(50_000, 60_000, 100), 10)
    found = work_out_sampled(plan, empty, none)
    assert found.rows.num_rows == 0
    assert found.rows.schema.names == ["k", *(f"_a{number}" for number in range(8)), "_overflowed"]


def test_what_does_not_fit_is_null_and_told() -> None:
    window = WindowPlan(
        "v",
        "t",
        Windows(10, 10),
        (),
        (Aggregate("sum", "x", pa.int64()), Aggregate("avg", "x", pa.float64()), *BOUNDS[:2]),
        ErrorBound(0.05, 0.05),
    )
    large = pa.table({"x": pa.array([2**62] * 40, pa.int64())})
    rows = work_out_sampled(
        OrderPlan(window), Tuples(large, np.arange(40), np.zeros(40, np.int64)), 4_000
    ).rows
    assert rows.column("_a0").to_pylist() == [None]
    assert rows.column("_overflowed").to_pylist() == [True]
    nothing = pa.table({"x": pa.array([None] * 40, pa.int64())})
    rows = work_out_sampled(
        OrderPlan(window), Tuples(nothing, np.arange(40), np.zeros(40, np.int64)), 4_000
    ).rows
    assert rows.to_pylist() == [{"_a0": None, "_a1": None, "_a2": None, "_a3": None, "_overflowed": False}]


def test_the_size_of_a_sample_follows_from_its_cost() -> None:
    costs = UnitCosts(new=1e-5, maintenance=0.1)
    assert sample_size(costs, 1_000_000, 1.0, 10.0) == 40_000
    assert sample_size(costs, 1_000_000, 9.0, 10.0) == MOST_SAMPLE
    assert sample_size(costs, 10_000, 1.0, 10.0) == 5_000
    assert sample_size(costs, 1_000_000, 10.0, 0.4) == pytest.approx(10_000, abs=1)
    assert sample_size(costs, 1_000_000, 0.2, 10.0) == 0, "the job alone takes half of the time left"
    assert sample_size(costs, 2 * LEAST_SAMPLE - 2, 1.0, 10.0) == 0


class Shell:
    """Drives the policy with one processor by a clock of its own."""

    def __init__(self, *, approximate: bool = True, policy: str = "planned") -> None:
        self.now = 0.0
        self.policy = chosen_policy(policy, lambda: self.now)
        query = DeadlineQuery("v", 1.0, LossConstraint(1, 4), approximate=approximate, incremental=False)
        self.tell(DeadlineBound("v", 0, query))
        self.windows = 0

    def tell(self, event: Event) -> list[Action]:
        return self.policy.handle(event)

    def window(self, at: float, tuples: int = 1_000_000) -> None:
        self.now = at
        span = WindowSpan(self.windows * tuples, (self.windows + 1) * tuples)
        self.tell(InstanceCreated("v", 0, self.windows, at, span))
        self.windows += 1

    def decide(self) -> list[Action]:
        return self.tell(ProcessorsIdle(1, 0.25))

    def ended(self, action: StartOrder, at: float, seconds: float) -> list[Action]:
        self.now = at
        return self.tell(OrderEnded("v", 0, action.number, seconds, seconds * 0.9, 0.0))

    def measured(self, seconds: float, adding: float = 0.9) -> None:
        """The first window is worked out, with all its tuples, of which adding takes so much of the time."""
        self.window(0.0)
        (first,) = self.decide()
        assert isinstance(first, StartOrder)
        assert not first.sample, "nothing is known of its cost"
        self.now = seconds
        self.tell(OrderEnded("v", 0, first.number, seconds, seconds * adding, 0.0))

    def worked_off(self, exact: float, sampled: float) -> list[bool]:
        """Begins orders until nothing waits, each of which takes so long; which of them were of samples."""
        begun = []
        while started := [each for each in self.decide() if isinstance(each, StartOrder)]:
            for each in started:
                seconds = sampled if each.sample else exact
                self.ended(each, self.now + seconds, seconds)
                begun.append(each.sample > 0)
        return begun


@pytest.mark.parametrize("policy", ["planned", "paper"])
def test_a_window_that_would_be_shed_is_sampled_and_counts_by_itself(policy: str) -> None:
    shell = Shell(policy=policy)
    shell.measured(3.0)
    shell.window(3.1)
    (action,) = shell.decide()
    assert isinstance(action, StartOrder)
    assert action.sample == action.work.new == action.figures["sample"]
    assert 1_000 <= action.sample <= MOST_SAMPLE
    assert action.figures["predicted_seconds"] == 3.0
    assert shell.ended(action, 3.4, 0.3) == []
    outcomes = shell.policy.standing("v").outcomes
    assert (outcomes.created, outcomes.approximated, outcomes.released, outcomes.shed) == (2, 1, 0, 0)
    assert shell.policy.standing("v").constraint.k == 0, "the first one was lost, this one was not"
    assert shell.policy.standing("v").costs.new == pytest.approx(2.7e-6), "exact costs are as they were"


def test_under_overload_windows_are_sampled_before_they_are_lost() -> None:
    now, views, seconds = 0.0, ("a", "b", "c", "d"), 30
    policy = chosen_policy("planned", lambda: now)
    for view in views:
        query = DeadlineQuery(view, 1.0, LossConstraint(1, 4), incremental=False, approximate=True)
        policy.handle(DeadlineBound(view, 0, query))
    created = [
        (1 + number + 0.25 * place, view, number)
        for number in range(seconds)
        for place, view in enumerate(views)
    ]
    running: list[StartOrder] = []
    while created or running:
        if running:
            order, *running = running
            took = 0.1 if order.sample else 0.45
            now += took
            policy.handle(OrderEnded(order.stream, 0, order.number, took, took * 0.9, 0.0))
        elif created:
            now = max(now, created[0][0])
        while created and created[0][0] <= now:
            at, view, number = created.pop(0)
            span = WindowSpan(number * 1_000_000, (number + 1) * 1_000_000)
            policy.handle(InstanceCreated(view, 0, number, at, span))
        if not running:
            running = [
                each for each in policy.handle(ProcessorsIdle(1, 0.25)) if isinstance(each, StartOrder)
            ]
    outcomes = [policy.standing(view).outcomes for view in views]
    answered = sum(each.released + each.approximated for each in outcomes)
    assert answered >= 0.95 * len(views) * seconds, outcomes
    assert sum(each.released for each in outcomes) >= seconds, "one in four fits exactly beside three samples"


def test_a_sample_is_tried_where_the_result_takes_the_time_and_not_its_tuples() -> None:
    shell = Shell()
    shell.measured(3.0, adding=0.0)
    shell.window(3.1)
    (action,) = shell.decide()
    assert isinstance(action, StartOrder)
    assert action.sample


def test_what_late_answers_take_brings_exact_ones_back() -> None:
    shell = Shell()
    shell.measured(3.0)
    shell.window(4.0)
    assert shell.worked_off(0.4, 0.1) == [True], "its exact answer took longer than it has"
    work = WindowWork(1_000_000, 0, carried=False)
    for _ in range(5):
        shell.tell(LateAnswered("v", 0, 0.4, 0.3, work, 0.05))
    shell.window(6.0)
    assert shell.worked_off(0.4, 0.1) == [False], "it takes less by now"


def test_without_the_hint_or_for_a_small_window_it_is_shed() -> None:
    for approximate, tuples in ((False, 1_000_000), (True, 1_500)):
        shell = Shell(approximate=approximate)
        shell.measured(3.0)
        shell.window(3.1)
        shell.windows -= 1
        shell.decide()
        shell.window(3.2, tuples)
        assert not any(isinstance(each, StartOrder) and each.sample for each in shell.decide())


def test_a_window_that_is_in_time_is_exact() -> None:
    shell = Shell()
    shell.measured(0.4)
    shell.window(1.0)
    (action,) = shell.decide()
    assert isinstance(action, StartOrder)
    assert not action.sample


def test_a_sample_that_takes_too_long_is_a_miss_and_the_next_one_is_smaller() -> None:
    shell = Shell()
    shell.measured(3.0)
    shell.window(3.1)
    (action,) = shell.decide()
    assert isinstance(action, StartOrder)
    shell.now = 4.1
    shell.tell(OrderAbandoned("v", 0, action.number, 0.9))
    assert shell.policy.standing("v").outcomes.missed == 2
    shell.window(4.2)
    again = [each for each in shell.decide() if isinstance(each, StartOrder) and each.sample]
    assert [LEAST_SAMPLE <= each.sample < action.sample for each in again] == [True]


def test_a_sample_keeps_no_exact_window_of_another_view_from_its_deadline() -> None:
    shell = Shell()
    other = DeadlineQuery("w", 0.5, LossConstraint(0, 1), incremental=False)
    shell.tell(DeadlineBound("w", 0, other))
    shell.measured(3.0)
    shell.tell(InstanceCreated("w", 0, 0, 3.0, WindowSpan(0, 10)))
    (first,) = shell.decide()
    assert isinstance(first, StartOrder)
    shell.now = 3.4
    shell.tell(OrderEnded("w", 0, 0, 0.4, 0.0, 0.0))
    shell.window(4.0)
    shell.tell(InstanceCreated("w", 0, 1, 4.0, WindowSpan(10, 20)))
    actions = shell.decide()
    started = [each for each in actions if isinstance(each, StartOrder)]
    assert [each.stream for each in started] == ["w"], "behind a sample it would be late"
    assert all(isinstance(each, GiveUpInstance) for each in actions if each.stream == "v")


def test_decimals_of_all_digits_fit() -> None:
    kind = pa.decimal128(38, 18)
    found = _typed(np.array([1e10, -2.5, 0.0]), np.array([False, False, True]), SimpleNamespace(type=kind))  # type: ignore[arg-type]
    assert found.to_pylist() == [Decimal("1E10"), Decimal("-2.5"), None]
