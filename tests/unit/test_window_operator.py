"""The window operator and its slack, on streams small enough to follow by hand."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import CheckpointError
from penstock.operators.windows import merged_windows, pane
from penstock.operators.windows.aggregates import Parts, lift_values, lower, overflowed
from penstock.operators.windows.answers import Answer, Progress, Standing
from penstock.operators.windows.clocks import Lateness
from penstock.operators.windows.content import Content
from penstock.operators.windows.coverage import coverage_threshold
from penstock.operators.windows.merged_windows import MergedWindows, Span
from penstock.operators.windows.operator import PaneBatch, WindowOperator
from penstock.operators.windows.panes import PANE, Panes
from penstock.operators.windows.required_slack import ARRIVAL, END, WindowHistory
from penstock.operators.windows.shard import PARTIALS, Envelope, LogRecord, OperatorPlan, Shard, WindowProgram
from penstock.operators.windows.slack import (
    RequiredSlack,
    WindowOutcome,
)
from penstock.operators.windows.slack_policies import FixedSlack, ProportionalDerivativeSlack
from penstock.operators.windows.stored import STATE_VERSION
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from window_cases import StoredPanes, store, stream_of

BOUND = ErrorBound(0.05, 0.05)
COUNT = Aggregate("count", None, pa.int64())
SUM = Aggregate("sum", "v", pa.float64())
MAX = Aggregate("max", "v", pa.float64())


def plan(size: int, slide: int, *aggregates: Aggregate, start: int = 0) -> WindowPlan:
    return WindowPlan("v", "t", Windows(size, slide, start), (), aggregates or (COUNT,), BOUND)


def feed(operator: WindowOperator, times: list[int], values: list[float] | None = None) -> list[Answer]:
    """One batch of tuples."""
    before = operator.newest
    time = np.array(times)
    panes = (time - operator.offset) // operator.pane * operator.pane + operator.offset
    tuples = pa.table({PANE: panes, "v": pa.array(values or [1.0] * len(times), pa.float64())})
    delays = np.maximum((before if before is not None else time.min()) - time, 0)
    return operator.process(PaneBatch(operator.parts.lift(tuples, [PANE]), {}, int(time.max()), delays))


def idle(operator: WindowOperator, reached: int | None = None, answer_all: bool = False) -> list[Answer]:
    """An entry without tuples."""
    nothing = np.zeros(0, np.int64)
    return operator.process(
        PaneBatch(None, {}, operator.newest, nothing, reached=reached, answer_all=answer_all)
    )


def told(answers: list[Answer]) -> list[tuple[int, int, int, bool]]:
    """End, revision, count and finality of each answer."""
    return [(a.end, a.revision, a.rows.column("_a0")[0].as_py(), a.final) for a in answers]


def test_a_late_tuple_is_added_to_open_windows_and_registered_for_each_closed_one() -> None:
    operator = WindowOperator([(plan(5, 1), FixedSlack(2))], gamma=0, least_horizon=100)
    for time in range(21):
        feed(operator, [time])
    late = feed(operator, [15])
    assert operator.late.registered == 3
    assert operator.late.beyond == 0
    assert told(late) == []  # gamma is not exceeded by one pane
    final = {end: count for end, _, count, is_final in told(operator.finish()) if is_final}
    assert [final[end] for end in (15, 16, 17, 18, 19, 20, 21)] == [5, 6, 6, 6, 6, 6, 5]


def test_windows_close_when_their_end_is_a_slack_behind() -> None:
    operator = WindowOperator([(plan(10, 10), FixedSlack(3))], gamma=0, least_horizon=1000)
    assert told(feed(operator, [1, 4, 12])) == []
    assert told(feed(operator, [13])) == [(10, 0, 2, False)]


def test_late_tuples_are_corrected_together_once_they_span_more_than_gamma() -> None:
    operator = WindowOperator([(plan(10, 10), FixedSlack(0))], gamma=15, least_horizon=1000)
    feed(operator, [1, 11, 21, 31])
    assert told(feed(operator, [22])) == []
    assert told(feed(operator, [2])) == [(10, 1, 2, False), (30, 1, 2, False)]
    assert told(idle(operator)) == []


def test_silence_answers_a_window_beforehand_and_leaves_it_open() -> None:
    operator = WindowOperator([(plan(10, 10), FixedSlack(3))], gamma=0)
    feed(operator, [1, 4])
    assert idle(operator, reached=12) == []
    (answer,) = idle(operator, reached=100)
    assert (answer.end, answer.final, answer.coverage, answer.slack) == (10, False, None, 90)
    assert idle(operator, reached=1_000) == [], "nothing has changed"
    assert operator.horizon == 10, "silence is no delay"
    assert feed(operator, [5, 11]) == []
    assert told(idle(operator, reached=1_000)) == [(10, 1, 3, False), (20, 0, 1, False)]
    assert told(feed(operator, [6, 15])) == [(10, 2, 4, False)], "its slack is over"
    assert operator.late.registered == 0
    assert told(feed(operator, [31])) == [(20, 1, 2, False)], (
        "the stream is not six times older than the delay of 6"
    )
    assert told(feed(operator, [35])) == [(10, 3, 4, True), (20, 2, 2, True)]
    assert operator.beyond == set()


def test_everything_is_answered_now_and_the_stream_goes_on_as_if_it_had_not_been() -> None:
    batches = [[1, 4, 12], [9, 14, 25], [8, 31, 44], [60]]
    straight, asked = (WindowOperator([(plan(10, 5), FixedSlack(3))], gamma=0) for _ in range(2))

    def finals(answers: list[Answer]) -> list[tuple[int, int]]:
        return sorted((end, count) for end, _, count, is_final in told(answers) if is_final)

    for number, times in enumerate(batches):
        assert finals(feed(asked, times)) == finals(feed(straight, times))
        answered = told(idle(asked, answer_all=True))
        assert finals(idle(asked, answer_all=True)) == []
        assert number or answered == [(10, 0, 2, False), (15, 0, 1, False), (20, 0, 1, False)]
    assert asked.horizon == straight.horizon
    assert asked.standing()["v"].open == straight.standing()["v"].open > 0
    assert finals(asked.finish()) == finals(straight.finish())


def test_nothing_is_final_before_delays_can_have_been_seen() -> None:
    operator = WindowOperator([(plan(10, 10), FixedSlack(0))], gamma=0)
    assert told(feed(operator, [1, 100])) == [(10, 0, 1, False)]
    assert feed(operator, [5]) == []
    assert told(idle(operator)) == [(10, 1, 2, False)], "95 late: the horizon is more than 10"
    assert operator.beyond == set()


def test_a_view_says_how_far_it_has_come() -> None:
    operator = WindowOperator([(plan(10, 5), FixedSlack(3))], gamma=0)
    assert operator.standing()["v"] == Standing(
        3, False, False, 10, None, None, 0, None, BEFORE_ALL, None, None, BOUND
    )
    feed(operator, [1])
    feed(operator, [22])
    assert operator.standing()["v"] == Standing(3, False, True, 10, 22, 22, 2, 25, 12, 1, None, BOUND)
    idle(operator, reached=90)
    assert operator.standing()["v"] == Standing(3, False, True, 10, 22, 90, 2, 25, 12, 1, None, BOUND)


def test_a_view_that_learns_its_slack_is_not_final_before_it() -> None:
    """K is then up to two thirds of the stream's age, and the horizon follows the delays that have been seen."""
    operator = WindowOperator([(plan(10, 10), RequiredSlack(BOUND))], gamma=0)
    for time in [0, 50, 40, 120]:
        feed(operator, [time])
    standing = operator.standing()["v"]
    assert (standing.slack, standing.horizon, standing.final_from) == (54, 55, 60)
    assert (standing.open, standing.oldest) == (1, 130)
    assert told(feed(operator, [184])) == [(130, 0, 1, False)]
    assert told(feed(operator, [185])) == [(130, 1, 1, True)]


class Guessing(FixedSlack):
    """A slack that the horizon cuts off."""

    outlasts_horizon = False


def test_a_window_waits_no_longer_than_the_horizon() -> None:
    operator = WindowOperator([(plan(10, 10), Guessing(50))], gamma=0)
    feed(operator, [1])
    assert told(feed(operator, [19])) == []
    standing = operator.standing()["v"]
    assert (standing.slack, standing.horizon) == (10, 10)
    assert told(feed(operator, [20])) == [(10, 0, 1, True)]


def test_a_window_waits_for_a_slack_that_outlasts_the_horizon() -> None:
    operator = WindowOperator([(plan(10, 10), FixedSlack(50))], gamma=0)
    feed(operator, [1])
    assert told(feed(operator, [20])) == []
    standing = operator.standing()["v"]
    assert (standing.slack, standing.horizon) == (50, 51)
    assert told(feed(operator, [60])) == [(10, 0, 1, False)]
    assert told(feed(operator, [61])) == [(10, 1, 1, True)]


def test_a_view_says_how_far_its_windows_are_answered() -> None:
    operator = WindowOperator([(plan(10, 5), FixedSlack(3))], gamma=0)
    assert operator.progress()["v"] == Progress(BEFORE_ALL, BEFORE_ALL, BEFORE_ALL)
    feed(operator, [1])
    feed(operator, [22])
    assert operator.progress()["v"] == Progress(closed=19, beforehand=19, final=12)
    idle(operator, reached=90)
    assert operator.progress()["v"] == Progress(19, 87, 12)
    idle(operator, answer_all=True)
    assert operator.progress()["v"] == Progress(19, AFTER_ALL, 12)
    feed(operator, [31])
    assert operator.progress()["v"] == Progress(28, 28, 21)
    parts = [operator.progress()["v"], Progress(40, 50, 2)]
    assert Progress.least(parts) == Progress(28, 28, 2)
    assert Progress.least([]) == Progress()


def test_windows_that_lack_tuples_of_before_hold_back_what_is_final() -> None:
    operator = WindowOperator([(plan(10, 10), FixedSlack(0))], gamma=0, since=13, floors={"v": 13})
    feed(operator, [15])
    feed(operator, [41])
    assert operator.progress()["v"] == Progress(41, 41, 19), (
        "the window that ends at 20 lacks what was before"
    )
    operator.process(PaneBatch(None, {}, operator.newest, np.zeros(0, np.int64), makes_whole=True))
    assert operator.progress()["v"].final == 31


def test_a_correction_says_what_it_replaces() -> None:
    operator = WindowOperator([(plan(10, 10, SUM), FixedSlack(0))], gamma=0, least_horizon=1000)
    feed(operator, [1, 11], [2.0, 1.0])
    feed(operator, [2], [3.0])
    (answer,) = idle(operator)
    assert answer.rows.column("_a0").to_pylist() == [5.0]
    assert answer.replaced.column("_a0").to_pylist() == [2.0]


def test_a_final_window_gets_what_comes_later_from_the_history() -> None:
    operator = WindowOperator([(plan(10, 10), FixedSlack(0))], gamma=0)
    feed(operator, [1])
    answers = feed(operator, [50])
    assert told(answers) == [(10, 0, 1, True)]
    assert told(feed(operator, [5])) == []
    assert operator.beyond == {("v", 0)}
    assert operator.late.beyond == 1


def test_the_horizon_follows_the_largest_delay() -> None:
    operator = WindowOperator([(plan(10, 10), FixedSlack(0))], gamma=0)
    feed(operator, [1, 100])
    feed(operator, [20])
    assert operator.horizon == 100


@pytest.mark.parametrize("loose_pieces", [32, 3])
def test_a_restored_shard_goes_on_as_if_nothing_had_happened(
    monkeypatch: pytest.MonkeyPatch, loose_pieces: int
) -> None:
    monkeypatch.setattr(pane, "_LOOSE_PIECES", loose_pieces)
    most_pieces, anew = 0, 0
    views = (plan(10, 5, COUNT, SUM),)
    parts = Parts.of(views[0].aggregates)
    program = WindowProgram(0, (OperatorPlan(1, views, parts, 5),), gamma=0, least_horizon=0)
    rng = np.random.default_rng(5)
    straight, interrupted = Shard(), Shard()
    stored: StoredPanes = {}
    for step in range(40):
        times = rng.integers(step * 3, step * 3 + 20, 5)
        record = _record(program, times)
        expected = straight.process(record)
        found = interrupted.process(record)
        assert [(a.end, a.revision, a.rows.to_pylist()) for a in found] == [
            (a.end, a.revision, a.rows.to_pylist()) for a in expected
        ]
        known = {place: len(pieces) for place, pieces in stored.items()}
        store(interrupted, stored)
        most_pieces = max(most_pieces, *map(len, stored.values()))
        anew += sum(len(pieces) < known.get(place, 0) for place, pieces in stored.items())
        interrupted = Shard.restored(interrupted.scalars(), stored, {program.version: program}.__getitem__)
    assert most_pieces > 2
    assert (anew > 0) == (loose_pieces == 3)


def test_a_large_pane_is_stored_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pane, "_PIECE_BYTES", 2_000)
    parts = Parts(sums=("v",), values=("v",))
    own, again = Panes(parts, ["k"]), Panes(parts, ["k"])
    for arrival in range(2):
        tuples = pa.table({PANE: [0] * 500, "k": np.arange(500), "v": np.arange(500.0) + arrival})
        keys = [PANE, "k"]
        own.append(parts.lift(tuples, keys), {"v": lift_values(tuples, keys, "v")}, arrival)
    change = own.take_changes()[0]
    assert change.kept == 0
    assert len(change.pieces) > 10
    again.put(0, [Content.loaded(piece.stored()) for piece in change.pieces])
    (first,), (second,) = own.contents(0, 10), again.contents(0, 10)
    assert _sorted(first.partials, "k", ARRIVAL) == _sorted(second.partials, "k", ARRIVAL)
    order = "k", "value", ARRIVAL
    assert _sorted(first.values["v"], *order) == _sorted(second.values["v"], *order)


def _sorted(table: pa.Table, *order: str) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in order])


def test_windows_are_answered_alike_however_many_are_merged_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(9)
    batches = [rng.integers(step * 3, step * 3 + 20, 30).tolist() for step in range(30)]

    def told_of(portion_bytes: int) -> list[object]:
        monkeypatch.setattr(merged_windows, "_PORTION_BYTES", portion_bytes)
        operator = WindowOperator([(plan(10, 5, COUNT, SUM), RequiredSlack(BOUND))], gamma=0)
        answers = [answer for times in batches for answer in feed(operator, times)] + operator.finish()
        return [(a.end, a.revision, a.coverage, a.rows.to_pylist()) for a in answers]

    assert told_of(1) == told_of(1 << 30)


def test_views_of_several_sizes_are_answered_alike_whether_their_windows_are_merged_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(11)
    batches = [rng.integers(step * 4 - 12, step * 4 + 16, 40).tolist() for step in range(40)]
    views = [
        replace(plan(size, 5, *own), name=f"{size}-{number}")
        for size in (5, 10, 20)
        for number, own in enumerate([(COUNT, SUM), (MAX,)])
    ]
    merges: list[int] = []
    own_merges = merged_windows.MergedWindows.__init__

    def counted(self: MergedWindows, content: Content, spans: Sequence[Span], keys: Sequence[str]) -> None:
        merges.append(len({end - start for start, end in spans}))
        own_merges(self, content, spans, keys)

    monkeypatch.setattr(merged_windows.MergedWindows, "__init__", counted)

    def told_of(together_bytes: int) -> tuple[list[object], list[int]]:
        monkeypatch.setattr(merged_windows, "_TOGETHER_BYTES", together_bytes)
        merges.clear()
        operator = WindowOperator([(view, RequiredSlack(BOUND)) for view in views], gamma=0)
        answers = [answer for times in batches for answer in feed(operator, times)] + operator.finish()
        told = [
            (a.view, a.end, a.revision, a.coverage, a.promised, a.rows.to_pylist(), a.replaced.to_pylist())
            for a in answers
        ]
        return told, list(merges)

    (apart, each), (together, several) = told_of(-1), told_of(1 << 30)
    assert together == apart
    assert max(each) == 1
    assert max(several) == 3
    assert 3 * len(several) < 2 * len(each)


def test_a_correction_tells_of_the_groups_that_got_tuples() -> None:
    """A sketch of many values may differ when it is merged again."""
    middle = Aggregate("approx_percentile", "v", pa.float64(), 0.5, 20)
    view = WindowPlan("v", "t", Windows(10, 10), (("k", pa.int64()),), (middle,), BOUND)
    operator = WindowOperator([(view, FixedSlack(0))], gamma=0, least_horizon=100)
    rng = np.random.default_rng(1)

    def arrive(time: int, keys: list[int], above: float = 0.0) -> list[Answer]:
        groups = np.repeat(keys, 50_000 if above else 5_000)
        values = rng.random(len(groups)) + above
        tuples = pa.table({PANE: [time // 10 * 10] * len(groups), "k": groups, "v": values})
        partials = operator.parts.lift(tuples, [PANE, "k"])
        return operator.process(PaneBatch(partials, {}, time, np.zeros(1, np.int64), flush=True))

    for time in range(10):
        arrive(time, [1, 2, 3])
    arrive(25, [1])
    (correction,) = [answer for answer in arrive(5, [2], above=1.0) if answer.start == 0]
    assert correction.rows.column("k").to_pylist() == [2]


def _record(program: WindowProgram, times: np.ndarray) -> LogRecord:
    parts = Parts.of(program.operators[0].views[0].aggregates)
    tuples = pa.table({PANE: times // 5 * 5, "v": times.astype(np.float64)})
    envelope = Envelope(1, PARTIALS, stream_of(parts.lift(tuples, [PANE])))
    return LogRecord(program, int(times.max()), np.array([0, 15]), False, [envelope])


def history(partials: pa.Table, end: int, *keys: str) -> WindowHistory:
    """One window's."""
    ends = pa.array([end] * partials.num_rows, pa.int64())
    return WindowHistory(partials.append_column(END, ends), {}, [END, *keys])


def test_required_slack_is_the_least_that_keeps_the_error_below_epsilon() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        count = int(rng.integers(1, 40))
        arrivals = rng.integers(0, 30, count)
        values = rng.gamma(4, 1, count)
        partials = pa.table(
            {
                ARRIVAL: arrivals,
                "rows": np.ones(count, np.int64),
                "count:v": np.ones(count, np.int64),
                "sum:v": values,
            }
        )
        ((slack,),) = history(partials, 10).required_slack([SUM], ErrorBound(0.1, 0.05))
        assert slack == next(
            k
            for k in range(100)
            if all(abs(values[arrivals < 10 + more].sum() / values.sum() - 1) < 0.1 for more in range(k, 60))
        )


@pytest.mark.parametrize("disturbing", [float("nan"), float("inf"), 1e17])
def test_one_group_says_nothing_of_the_required_slack_of_another(disturbing: float) -> None:
    partials = pa.table(
        {
            "k": ["a", "b", "b"],
            ARRIVAL: [0, 0, 50],
            "rows": [1, 1, 1],
            "count:v": [1, 1, 1],
            "sum:v": [disturbing, 1.0, 1.0],
        }
    )
    assert history(partials, 10, "k").required_slack([SUM], BOUND).tolist() == [[0, 41]]


def test_an_extreme_that_is_no_number_is_right_or_wrong() -> None:
    latest = Aggregate("max", "v", pa.timestamp("us"))
    times = pa.array([1_700_000_000_000_000, 1_700_000_001_000_000], pa.timestamp("us"))
    partials = pa.table({ARRIVAL: [0, 50], "rows": [1, 1], "max:v": times})
    assert history(partials, 10).required_slack([latest], BOUND).tolist() == [[41]]


@pytest.mark.parametrize(
    ("function", "kind", "values", "fits"),
    [
        ("sum", pa.decimal128(38, 0), [Decimal(9 * 10**37)] * 2, False),
        ("sum", pa.decimal128(38, 0), [Decimal(4 * 10**37)] * 2, True),
        ("sum", pa.int64(), [2**63 - 1, 1], False),
        ("sum", pa.int64(), [-(2**63), 2**63 - 1], True),
        ("avg", pa.decimal128(3, 2), [Decimal("9.99")] * 2, True),
        *(
            ("sum", pa.decimal128(digits, 0), [Decimal(8 * 10 ** (digits - 1))] * 2, False)
            for digits in (2, 27, 28, 29, 38)
        ),
        *(("sum", pa.decimal128(digits, 2), [Decimal("-0.01")] * 2, True) for digits in (3, 27, 28, 29, 38)),
    ],
)
def test_a_sum_that_does_not_fit_costs_its_row(
    function: str, kind: pa.DataType, values: list[object], fits: bool
) -> None:
    aggregate = Aggregate(function, "v", kind)
    tuples = pa.table({"k": [0, 0, 1], "v": pa.array([*values, 1], kind)})
    parts = Parts.of([aggregate])
    merged = parts.merge(parts.lift(tuples, ["k"]), ["k"])
    found = lower(aggregate, merged, None, ["k"])
    assert [value is not None for value in found.to_pylist()] == [fits, True]
    assert overflowed(aggregate, merged, found, None, ["k"]).tolist() == [not fits, False]


def test_a_flush_corrects_however_few_tuples_wait() -> None:
    operator = WindowOperator([(plan(10, 10), FixedSlack(0))], gamma=1_000, least_horizon=1_000)
    feed(operator, [1, 11])
    assert told(feed(operator, [2])) == []
    batch = PaneBatch(None, {}, 11, np.zeros(0, np.int64), flush=True)
    assert [each[:2] for each in told(operator.process(batch))] == [(10, 1)]


def test_a_dead_clock_hides_no_other_delay() -> None:
    operator = WindowOperator([(plan(10, 10), FixedSlack(0))], gamma=0, most_delay=1_000)
    feed(operator, [100])
    operator.process(PaneBatch(None, {}, 100, np.array([10**9, 80])))
    assert operator.horizon == 100


def test_a_state_of_another_version_is_refused() -> None:
    another = b'{"format":%d,"tables":[]}\n' % (STATE_VERSION + 1)
    for stored in (pickle.dumps((4, {})), b"cpenstock.operators.shard\nNothing\n.", b"{}\n", another):
        with pytest.raises(CheckpointError, match="new checkpoint"):
            Shard.restored(stored, {}, {}.__getitem__)


def test_one_old_tuple_does_not_stop_the_windows() -> None:
    operator = WindowOperator([(plan(10, 10), FixedSlack(0))], gamma=0, most_delay=1_000)
    feed(operator, [1, 11])
    feed(operator, [12])
    feed(operator, [-1_000_000])
    assert operator.horizon == 10
    assert told(feed(operator, [30]))[-1][3]
    assert operator.beyond == {("v", -1_000_000)}


def test_an_operator_keeps_the_parts_of_views_that_are_gone() -> None:
    parts = Parts.of([SUM, Aggregate("max", "v", pa.float64())])
    shard, program = Shard(), WindowProgram(0, (OperatorPlan(1, (plan(10, 5, SUM),), parts, 5),), 0, 0)
    for step in range(40):
        times = np.array([step, step + 1])
        tuples = pa.table({PANE: times // 5 * 5, "v": times.astype(np.float64)})
        envelope = Envelope(1, PARTIALS, stream_of(parts.lift(tuples, [PANE])))
        shard.process(LogRecord(program, step + 1, np.array([0]), False, [envelope]))
    assert list(shard.take_changes())


def test_the_paper_s_rule_steers_alpha_by_the_error_of_the_coverage() -> None:
    policy = ProportionalDerivativeSlack(threshold=0.95)
    policy.arrived(Lateness(np.array([100, 20]), 100, 0))
    assert policy.slack == 100
    policy.known(_outcome(0.99), age=0, final=True)
    assert policy.alpha == pytest.approx(1 + 0.2 * -0.04 + 4 * -0.04)
    policy.known(_outcome(0.93), age=0, final=True)
    assert policy.alpha == pytest.approx(0.832 + 0.2 * 0.02 + 4 * 0.06)


def test_ours_waits_for_the_largest_delay_until_enough_windows_are_known() -> None:
    policy = RequiredSlack(BOUND)
    policy.arrived(Lateness(np.array([70]), 70, 0))
    assert (policy.slack, policy.promised) == (70, False)
    for required in range(100):
        policy.known(WindowOutcome(required, 100, 1.0, np.array([required])), age=0, final=True)
    assert policy.promised
    assert policy.slack == 95  # the ceil(101 * 0.95)-th of 0 .. 99


def test_violations_beyond_delta_are_repaid() -> None:
    policy = RequiredSlack(BOUND)
    for number in range(100):
        policy.known(WindowOutcome(number, 0, 1.0, np.array([10])), age=0, final=True)
    assert policy.memory.debt > 0
    assert policy.slack == 10
    for number in range(3000):
        policy.known(WindowOutcome(number, 20, 1.0, np.array([10])), age=0, final=True)
    assert policy.memory.debt < 0


def test_windows_that_are_not_final_raise_the_slack() -> None:
    policy = RequiredSlack(BOUND)
    for number in range(400):
        policy.known(WindowOutcome(number, 5, 1.0, np.array([1])), age=0, final=True)
    assert policy.slack == 1
    for number in range(60):
        policy.known(WindowOutcome(1000 + number, 1, 0.9, np.array([50])), age=0)
    assert policy.slack == int(50 * (2 - 5 / 40))


def _outcome(coverage: float) -> WindowOutcome:
    return WindowOutcome(0, 0, coverage, np.zeros(1, np.int64))


@pytest.mark.parametrize(
    ("function", "least", "most"),
    [("avg", 0.02, 0.06), ("sum", 0.003, 0.06), ("percentile", 0.02, 0.065)],
)
def test_thresholds_keep_the_bound_where_tuples_are_missing_at_random(
    function: str, least: float, most: float
) -> None:
    rng = np.random.default_rng(7)
    tuples, trials, variation = 500, 4000, 0.5
    coverage = coverage_threshold(function, BOUND, tuples, variation)
    held = int(np.ceil(coverage * tuples))
    if function == "percentile":
        values = rng.random((trials, tuples))
        early = np.argsort(rng.random((trials, tuples)), axis=1)[:, :held]
        medians = np.median(np.take_along_axis(values, early, 1), axis=1)
        error = np.abs((values < medians[:, None]).mean(axis=1) - 0.5)
    else:
        values = rng.gamma(4, 0.25, (trials, tuples))
        reduce = np.sum if function == "sum" else np.mean
        error = np.abs(reduce(values[:, :held], axis=1) / reduce(values, axis=1) - 1)
    assert least <= np.mean(error >= BOUND.epsilon) <= most
