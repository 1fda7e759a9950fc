"""What the join lane tells the policy of output rates, and what comes of it; explain."""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from penstock.monitor.joins import standing_lines
from penstock.operators.joins.tuples import InputRuns, RunSlice
from penstock.operators.runs.run import Run, RunPlan, write_run
from penstock.optimizer.join_measures import StepCount
from penstock.plan.joins import (
    Argument,
    Comparison,
    JoinColumn,
    JoinInput,
    JoinKey,
    JoinOutput,
    JoinPlan,
    Operator,
    OptionalJoin,
    TimeBound,
    UserPredicate,
)
from penstock.plan.times import BEFORE_ALL
from penstock.settings import Settings
from penstock.spark.lanes.joins.explaining import explain_first, standing_document
from penstock.spark.lanes.joins.grid import KeptRuns, grid_of, kept_runs, key_columns, router_of_input
from penstock.spark.lanes.joins.planning import JoinPlanner

TS = pa.timestamp("us", "UTC")
SHARES = (2, 2)
ROWS = 5_000
#: different values of each key
VALUES = (5, 100_000)


def _input(number: int, keys: tuple[int, ...]) -> JoinInput:
    columns = (
        JoinColumn("ts", "ts", TS),
        *(JoinColumn(f"{key}_{number}", f"k{key}", pa.int64()) for key in keys),
    )
    return JoinInput(f"a{number}", f"r{number}", False, None, columns, "ts")


#: input 0 meets 1 by a key with few values and 2 by one with many
PLAN = JoinPlan(
    "star",
    (_input(0, (0, 1)), _input(1, (0,)), _input(2, (1,))),
    (JoinKey(("0_0", "0_1", None), pa.int64()), JoinKey(("1_0", None, "1_2"), pa.int64())),
    tuple(TimeBound(left, right, -5_000_000, 5_000_000) for left, right in ((0, 1), (0, 2), (1, 2))),
    (),
    (),
    (JoinOutput("k", "`0_0`", pa.int64(), "0_0"),),
)


def _runs(
    kept: KeptRuns, rng: np.random.Generator, begin: float, seconds: float, rows: int = ROWS
) -> InputRuns:
    asked = PLAN.inputs[kept.input]
    times = 1_700_000_000 + begin + seconds * rng.random(rows)
    columns = {"ts": pa.array((times * 1e6).astype(np.int64)).cast(TS)}
    for column in asked.columns[1:]:
        columns[column.name] = pa.array(rng.integers(0, VALUES[int(column.name[0])], rows))
    sink = io.BytesIO()
    router = router_of_input(PLAN, grid_of(PLAN, SHARES), kept.input)
    write_run(pa.table(columns), RunPlan(key_columns(PLAN, kept), "ts", router), sink)
    return InputRuns((RunSlice(Run(pa.py_buffer(sink.getvalue())), -1, 0),), ())


def new(cut: float, seconds: float = 1.0) -> dict[KeptRuns, InputRuns]:
    """The new tuples of a cut, in each of which streams go through so many seconds of event time."""
    rng = np.random.default_rng(int(cut) + 5)
    return {kept: _runs(kept, rng, cut * seconds, seconds) for kept in kept_runs(PLAN)}


def of_alone(number: int, runs: dict[KeptRuns, InputRuns]) -> dict[KeptRuns, InputRuns]:
    """The same, but that the other streams are silent."""
    return {kept: own if kept.input == number else InputRuns((), ()) for kept, own in runs.items()}


@pytest.fixture
def planner() -> JoinPlanner:
    moments = itertools.count()
    return JoinPlanner("star", PLAN, Settings(), lambda: float(next(moments)))


def test_the_order_follows_what_cuts_have_measured(planner: JoinPlanner) -> None:
    assert [step.input for step in planner.order.orders[0].steps] == [1, 2]
    assert planner.measured(0, new(0), (), ()) == []
    (switch,) = planner.measured(1, new(1), (), ())
    assert [step.input for step in planner.order.orders[0].steps] == [2, 1]
    assert switch.order == planner.order
    assert planner.measured(2, new(2), (), ()) == []

    standing = planner.standing
    assert standing is not None
    assert standing.statistics.equal[0, 0, 1] == pytest.approx(1 / VALUES[0], rel=0.1)
    assert standing.statistics.equal[1, 0, 2] < 20 / VALUES[1]
    rates = standing.statistics.rates
    assert rates[0] == rates[1] == rates[2] > 0
    document = standing_document(PLAN, standing)
    assert json.loads(json.dumps(document)) == document
    told = "\n".join(standing_lines(document))
    assert "measured: key 0 is equal in a share of 0.2" in told
    assert "second-best order: new tuples of" in told
    assert "not measured since the order changed" in told


def test_nothing_is_predicted_before_it_is_known_how_fast_event_time_passes(planner: JoinPlanner) -> None:
    planner.measured(0, new(0), (), ())
    standing = planner.standing
    assert standing is not None
    document = standing_document(PLAN, standing)
    assert document["predicted_rate"] is document["runner_up"] is None
    told = "\n".join(standing_lines(document))
    assert "no prediction yet, Penstock still measures how fast event time passes" in told
    assert ": not measured yet" in told
    assert "predicted " not in told


def test_what_was_predicted_of_each_step_is_told_beside_what_it_did(planner: JoinPlanner) -> None:
    planner.measured(0, new(0), (), ())
    planner.measured(1, new(1), (), ())
    did = tuple(
        StepCount(order.first, step.input, 5_000, 800 * (place + 1), 700, 0.01)
        for order in planner.order.orders
        for place, step in enumerate(order.steps)
    )
    planner.measured(2, new(2), did, ())
    standing = planner.standing
    assert standing is not None
    assert standing.measured_rate == pytest.approx(1_050), (
        "the rows of each input's last step, of two seconds"
    )
    document = standing_document(PLAN, standing)
    step = document["steps"][0]
    assert (step["first"], step["step"]) == ("a0", "a2 (merge by key 1)")
    assert step["measured"] == {"rows": 2_500, "pairs": 400, "output": 350, "seconds": 0.005}
    rates = standing.statistics.rates
    assert step["predicted"]["rows"] == pytest.approx(rates[0])
    told = list(standing_lines(document))
    (line,) = (each for each in told if each.startswith("  new tuples of a0 meet a2"))
    assert line.endswith("; measured 2,500 tuples in, 400 pairs compared, 350 out a second, 2e-06 s a tuple")
    assert ", measured 1,050; " in "\n".join(told)


def test_nothing_is_planned_before_every_stream_has_brought_tuples(planner: JoinPlanner) -> None:
    first = planner.order
    assert planner.measured(0, of_alone(0, new(0)), (), ()) == []
    assert planner.measured(1, of_alone(0, new(1)), (), ()) == []
    assert planner.order == first
    assert planner.measured(2, new(2), (), ()) == []
    assert planner.measured(3, new(3), (), ())


def test_a_replay_has_no_more_partners_than_the_stream_had(planner: JoinPlanner) -> None:
    for cut in range(3):
        planner.measured(cut, new(cut, 1_000), (), ())
    standing = planner.standing
    assert standing is not None
    statistics = standing.statistics
    assert statistics.density(0) == pytest.approx(ROWS / 1_000, rel=0.05)
    # within 5 s either way of a tuple lie 10 s of tuples of each of the others
    partners = 10 * ROWS / 1_000 * statistics.equal_share(0, 0, 1)
    partners *= 10 * ROWS / 1_000 * statistics.equal_share(1, 0, 2) * 0.75
    assert standing.pairs == pytest.approx(statistics.rates[0] * partners, rel=0.05)


def test_a_tuple_ahead_of_its_time_changes_nothing(planner: JoinPlanner) -> None:
    for cut in range(4):
        planner.measured(cut, new(cut), (), ())
    calm = planner.standing
    ahead = {kept: _runs(kept, np.random.default_rng(1), 600, 1, rows=1) for kept in kept_runs(PLAN)}
    mixed = {kept: InputRuns((*own.new, *ahead[kept].new), ()) for kept, own in new(4).items()}
    planner.measured(4, mixed, (), ())
    standing = planner.standing
    assert calm is not None
    assert standing is not None
    assert standing.statistics.density(0) == pytest.approx(calm.statistics.density(0), rel=0.1)


def test_late_tuples_move_event_time_back_and_count_all_the_same(planner: JoinPlanner) -> None:
    for cut, reached in enumerate((0, 1, 2, 0.5, 3, 4)):
        planner.measured(cut, new(reached), (), ())
    standing = planner.standing
    assert standing is not None
    assert standing.statistics.density(1) == pytest.approx(5 * ROWS / 4, rel=0.3)


def test_keys_are_compared_though_cuts_bring_tuples_of_one_stream_each(planner: JoinPlanner) -> None:
    for cut in range(6):
        planner.measured(cut, of_alone(cut % 3, new(cut)), (), ())
    standing = planner.standing
    assert standing is not None
    assert standing.statistics.equal[0, 0, 1] == pytest.approx(1 / VALUES[0], rel=0.1)


def test_nothing_is_planned_while_a_stream_is_silent(planner: JoinPlanner) -> None:
    planner.measured(0, new(0), (), ())
    assert planner.measured(1, new(1), (), ())
    followed = planner.order
    silent = [of_alone(0, new(cut)) for cut in range(2, 41)]
    assert [planner.measured(cut, each, (), ()) for cut, each in enumerate(silent, 2)] == [[]] * 39
    assert planner.order == followed


def test_explain_names_inputs_keys_bounds_and_the_first_order() -> None:
    assert explain_first(PLAN, 4, by_spark=False) == [
        "join view star: a0 (stream r0), a1 (stream r1), a2 (stream r2)",
        "  key 0: a0: k0 = a1: k0, split in 2 parts",
        "  key 1: a0: k1 = a2: k1, split in 2 parts",
        "  a1 is -5 seconds to 5 seconds later than a0",
        "  a2 is -5 seconds to 5 seconds later than a0",
        "  a2 is -5 seconds to 5 seconds later than a1",
        "  new tuples of a0 meet a1 (merge by key 0), a2 (merge by key 1)",
        "  new tuples of a1 meet a0 (merge by key 0), a2 (merge by key 1)",
        "  new tuples of a2 meet a0 (merge by key 1), a1 (merge by key 0)",
    ]


def test_explain_names_what_users_functions_judge() -> None:
    given = (Argument("0_0", None), Argument(None, "3"))
    judged = (
        UserPredicate("costly(a0.k0, 3) > 5", "costly", given, pa.int64(), "`_value` > 5"),
        UserPredicate("NOT odd(a2.k1)", "odd", (Argument("1_2", None),), pa.bool_(), "NOT `_value`"),
    )
    told = explain_first(replace(PLAN, predicates=judged), 4, by_spark=False)
    assert told[6] == "  checked last, by your functions: costly(a0.k0, 3) > 5, NOT odd(a2.k1)"


def test_explain_names_what_remains_of_old_versions() -> None:
    bounds, keys = (TimeBound(0, 1, BEFORE_ALL, -2_000_000),), (JoinKey(("0_0", "0_1"), pa.int64()),)
    plan = replace(
        PLAN, inputs=PLAN.inputs[:2], keys=keys, bounds=bounds, optional=(1,), kind=OptionalJoin.AS_OF
    )
    assert explain_first(plan, 2, by_spark=False)[2:4] == [
        "  the newest row of a1 by its key, 2 seconds or more before a0",
        "  of rows of a1 beyond the history, the newest row of each key remains",
    ]
    compared = replace(plan, comparisons=(Comparison("0_0", Operator.LESS, "0_1"),))
    assert (
        explain_first(compared, 2, by_spark=False)[3] == "  of rows of a1 beyond the history, all rows remain"
    )


def test_a_stream_that_lags_by_a_cut_is_not_taken_to_have_no_partners(planner: JoinPlanner) -> None:
    for cut in range(4):
        late = {kept: own for kept, own in new(cut - 1, 20).items() if kept.input == 2}
        planner.measured(cut, new(cut, 20) | late, (), ())
    standing = planner.standing
    assert standing is not None
    for order in standing.running:
        assert order.steps[0].pairs > 0
        assert order.steps[0].step.key is not None


def test_a_planner_goes_on_where_an_earlier_one_ended(planner: JoinPlanner) -> None:
    planner.measured(0, new(0), (), ())
    planner.measured(1, new(1), (), ())
    kept = json.loads(json.dumps(planner.document()))
    moments = itertools.count(100)
    again = JoinPlanner("star", PLAN, Settings(), lambda: float(next(moments)))
    assert again.order != planner.order
    again.restore(kept)
    assert again.order == planner.order
    assert again.measured(2, new(2), (), ()) == []
    assert again.standing is not None
    assert again.standing.is_known, "how fast event time passes is known"
    fixed = JoinPlanner("star", PLAN, Settings(join_policy="fixed"), lambda: float(next(moments)))
    first = fixed.order
    fixed.restore(kept)
    assert fixed.order == first
