"""Window views in the virtual-time runner: whatever the disorder, final results are those over all tuples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.operators.windows.aggregates import Parts, lift_values
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import (
    PARTIALS,
    VALUES,
    Envelope,
    LogRecord,
    OperatorPlan,
    Shard,
    WindowProgram,
)
from penstock.operators.windows.slack import (
    RequiredSlack,
    SlackPolicy,
)
from penstock.operators.windows.slack_policies import FixedSlack, ProportionalDerivativeSlack
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock_lab.simulate.disorder import Arrivals
from penstock_lab.simulate.windows import play
from window_cases import StoredPanes, store, stream_of

BOUND = ErrorBound(0.05, 0.05)
AGGREGATES = (
    Aggregate("count", None, pa.int64()),
    Aggregate("count", "value", pa.int64()),
    Aggregate("sum", "value", pa.float64()),
    Aggregate("avg", "value", pa.float64()),
    Aggregate("min", "value", pa.float64()),
    Aggregate("max", "whole", pa.int64()),
    Aggregate("sum", "whole", pa.int64()),
    Aggregate("stddev_samp", "value", pa.float64()),
    Aggregate("var_pop", "value", pa.float64()),
    Aggregate("count_distinct", "whole", pa.int64()),
    Aggregate("percentile", "value", pa.float64(), 0.5),
    Aggregate("percentile", "whole", pa.float64(), 0.9),
    Aggregate("sum_distinct", "whole", pa.int64()),
    Aggregate("avg_distinct", "whole", pa.float64()),
    Aggregate("mode", "whole", pa.int64()),
    Aggregate("collect_set", "whole", pa.list_(pa.int64())),
    Aggregate("collect_list", "whole", pa.list_(pa.int64())),
    Aggregate("max_by", "whole", pa.int64(), by="value"),
    Aggregate("min_by", "whole", pa.int64(), by="value"),
    Aggregate("covar_pop", "whole", pa.float64(), by="value"),
    Aggregate("regr_sxy", "whole", pa.float64(), by="value"),
    Aggregate("regr_slope", "whole", pa.float64(), by="value"),
    Aggregate("bit_and", "whole", pa.int64()),
    Aggregate("bit_or", "whole", pa.int64()),
    Aggregate("bit_xor", "whole", pa.int64()),
)
ORACLE = """
    SELECT s.start, s.end, t.key, count(*), count(value), sum(value), avg(value), min(value), max(whole),
           sum(whole)::BIGINT, stddev_samp(value), var_pop(value), count(DISTINCT whole),
           quantile_cont(value, 0.5), quantile_cont(whole::DOUBLE, 0.9),
           sum(DISTINCT whole)::BIGINT, avg(DISTINCT whole), mode(whole ORDER BY whole),
           list_sort(coalesce(list(DISTINCT whole) FILTER (WHERE whole IS NOT NULL), [])),
           list_sort(coalesce(list(whole) FILTER (WHERE whole IS NOT NULL), [])),
           arg_max_null(whole, value), arg_min_null(whole, value),
           covar_pop(whole, value), covar_pop(whole, value) * regr_count(whole, value),
           CASE WHEN regr_count(whole, value) > 1 THEN regr_slope(whole, value) END,
           bit_and(whole), bit_or(whole), bit_xor(whole)
    FROM starts s JOIN tuples t ON t.time >= s.start AND t.time < s.end
    GROUP BY ALL
"""


@st.composite
def streams(draw: st.DrawFn) -> tuple[Arrivals, WindowPlan, int]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(1, 150))
    slide = draw(st.integers(1, 20))
    size = slide * draw(st.integers(1, 4)) + draw(st.sampled_from([0, 0, slide // 2]))
    if is_cumulating := draw(st.sampled_from([False, False, True])):
        size = slide * draw(st.integers(2, 5))
    windows = Windows(size, slide, draw(st.integers(0, slide - 1)), is_cumulating)
    event = np.sort(rng.integers(0, 400, count)) - 100
    delay = np.where(
        rng.random(count) < draw(st.sampled_from([0.0, 0.2, 0.8])), rng.pareto(1.0, count) * 10, 0
    )
    order = np.argsort(event + delay, kind="stable")
    columns = pa.table(
        {
            "key": pa.array(rng.choice(["a", "b", "c"], count), mask=rng.random(count) < 0.2),
            "value": pa.array(rng.normal(0, 10, count), mask=rng.random(count) < 0.2),
            "whole": pa.array(rng.integers(-5, 5, count), mask=rng.random(count) < 0.2),
        }
    )
    if draw(st.booleans()):
        columns = columns.set_column(0, "key", pa.array(["all"] * count))
        plan = WindowPlan("v", "time", windows, (), AGGREGATES, BOUND)
    else:
        plan = WindowPlan("v", "time", windows, (("key", pa.string()),), AGGREGATES, BOUND)
    arrivals = Arrivals(
        "random", event[order], (event + delay)[order].astype(np.int64), columns.take(pa.array(order))
    )
    return arrivals, plan, draw(st.integers(1, 60))


def policies() -> list[SlackPolicy]:
    return [FixedSlack(0), FixedSlack(7), ProportionalDerivativeSlack(0.9), RequiredSlack(BOUND)]


@settings(max_examples=examples(30))
@given(streams(), st.integers(0, 3), st.integers(0, 100))
def test_final_results_are_those_over_all_tuples(
    stream: tuple[Arrivals, WindowPlan, int], policy: int, gamma: int
) -> None:
    arrivals, plan, step = stream
    played, _ = play(arrivals, plan, policies()[policy], step, gamma)

    size, slide, start = plan.windows.size, plan.windows.slide, plan.windows.start
    event = arrivals.event_time
    first = (int(event.min()) - size - start) // slide * slide + start
    ends = range(first + size, int(event.max()) + size + 1, slide)
    starts = pa.table({"start": [plan.windows.begin(end) for end in ends], "end": list(ends)})
    tuples = arrivals.columns.append_column("time", pa.array(event))
    with duckdb.connect() as connection:
        connection.register("starts", starts)
        connection.register("tuples", tuples)
        expected = connection.sql(ORACLE).fetchall()
    final = played.final
    if not plan.keys:
        final = final.append_column("key", pa.array(["all"] * final.num_rows))
    found = final.select(
        ["start", "end", "key", *(f"_a{number}" for number in range(len(AGGREGATES)))]
    ).to_pylist()
    assert _sorted([tuple(row.values()) for row in found]) == _approx(_sorted(expected))
    assert final.group_by(["start", "end", "key"]).aggregate([]).num_rows == final.num_rows


@settings(max_examples=8)
@given(
    streams(),
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 12), st.booleans()), min_size=2, max_size=4),
    st.integers(0, 40),
)
def test_views_of_one_operator_answer_as_each_alone(
    stream: tuple[Arrivals, WindowPlan, int], shapes: list[tuple[int, int, bool]], gamma: int
) -> None:
    """They share panes and what is merged of them; their state is stored and read again after each batch."""
    arrivals, plan, step = stream
    plans = [
        replace(plan, name=f"v{number}", windows=Windows(slide * times, slide, is_cumulating=cumulates))
        for number, (times, slide, cumulates) in enumerate(shapes)
    ]
    pane = int(np.gcd.reduce([each.windows.pane for each in plans]))
    together = _told(arrivals, plans, pane, step, gamma, is_restored=True)
    for each in plans:
        assert together[each.name] == _told(arrivals, [each], pane, step, gamma, is_restored=False)[each.name]
        assert together[each.name]


def _rounded(row: dict[str, object]) -> dict[str, object]:
    """Sums differ in their last digits with the order of what is summed."""
    return {name: round(v, 6) + 0.0 if isinstance(v, float) else v for name, v in row.items()}


def _told(
    arrivals: Arrivals, plans: Sequence[WindowPlan], pane: int, step: int, gamma: int, *, is_restored: bool
) -> dict[str, list[object]]:
    """All that a shard says of each view, batch after batch."""
    parts = Parts.of(AGGREGATES)
    program = WindowProgram(0, (OperatorPlan(0, tuple(plans), parts, pane),), gamma, 100)
    groups = [PANE, *(name for name, _ in plans[0].keys)]
    shard, stored = Shard(), StoredPanes()
    told: dict[str, list[object]] = {each.name: [] for each in plans}
    newest = int(arrivals.event_time[0])
    for first in range(0, len(arrivals.event_time), step):
        times = arrivals.event_time[first : first + step]
        reached = np.maximum.accumulate(np.append(newest, times))[1:]
        newest = int(reached[-1])
        tuples = arrivals.columns.slice(first, step).append_column(PANE, pa.array(times // pane * pane))
        tables = {PARTIALS: parts.lift(tuples, groups)}
        tables |= {VALUES + name: lift_values(tuples, groups, name) for name in parts.values}
        envelopes = [Envelope(0, kind, stream_of(table)) for kind, table in tables.items()]
        ended = first + step >= len(arrivals.event_time)
        for answer in shard.process(LogRecord(program, newest, reached - times, ended, envelopes)):
            rows = sorted(str(_rounded(row)) for row in answer.rows.to_pylist())
            said = (
                answer.start,
                answer.end,
                answer.revision,
                answer.final,
                answer.slack,
                answer.coverage,
                rows,
            )
            told[answer.view].append(said)
        store(shard, stored)
        if is_restored:
            shard = Shard.restored(shard.scalars(), stored, {program.version: program}.__getitem__)
    return told


@st.composite
def logs(draw: st.DrawFn) -> list[LogRecord]:
    """Records for two operators, one of them begun in mid-stream; sums of whole doubles are exact in any order."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    groups, slide, since = (
        draw(st.sampled_from([1, 3, 400])),
        draw(st.integers(2, 9)),
        draw(st.integers(0, 40)),
    )
    exact = tuple(
        Aggregate(function, argument, pa.int64() if argument != "value" else pa.float64(), parameter)
        for function, argument, parameter in [
            ("count", None, None),
            ("sum", "value", None),
            ("max", "whole", None),
            ("count_distinct", "whole", None),
            ("percentile", "value", 0.5),
        ]
    )
    parts, bound = Parts.of(exact), ErrorBound(0.05, draw(st.sampled_from([0.05, 0.4])))
    views = tuple(
        WindowPlan(
            f"v{n}",
            "t",
            Windows(slide * draw(st.integers(1, 4)), slide, is_cumulating=draw(st.booleans())),
            (("key", pa.int64()),),
            exact,
            bound,
        )
        for n in range(3)
    )
    first = OperatorPlan(4, views[:2], parts, slide)
    late = OperatorPlan(7, views[2:], parts, slide, since, (("v2", draw(st.sampled_from([since, -20]))),))
    gamma = draw(st.integers(0, 30))
    programs = [
        WindowProgram(0, (first,), gamma, 0),
        WindowProgram(1, (first, late), gamma, 30),
        WindowProgram(2, (replace(first, views=views[:1]), late), 2 * gamma, 10),
        WindowProgram(5, (late,), 0, 0),
    ]
    steps, records, newest = draw(st.integers(4, 30 if groups < 100 else 16)), [], None
    changes = sorted(draw(st.lists(st.integers(0, 2 * steps), min_size=3, max_size=3)))
    whole_at = draw(st.integers(0, 2 * steps))
    for step in range(steps):
        program = programs[sum(step > change for change in changes)]
        if newest is not None and rng.random() < 0.2:
            reached, answer_all = newest + int(rng.integers(0, 60)), bool(rng.random() < 0.3)
            nothing = np.zeros(0, np.int64)
            record = LogRecord(program, newest, nothing, False, [], False, (), reached, answer_all)
        else:
            count = int(rng.integers(1, 40)) if groups < 100 else 300
            delay = np.where(rng.random(count) < 0.2, rng.integers(0, 60, count), 0)
            times = step * 4 + rng.integers(0, 8, count) - delay
            is_whole = step == whole_at and newest is not None
            reached_by = np.maximum.accumulate(np.append(times[0] if newest is None else newest, times))[1:]
            delays = np.zeros(0, np.int64) if is_whole else reached_by - times
            newest = newest if is_whole else int(reached_by[-1])
            tuples = pa.table(
                {
                    PANE: times // slide * slide,
                    "key": rng.integers(0, groups, count),
                    "value": rng.integers(-50, 50, count).astype(np.float64),
                    "whole": rng.integers(-5, 5, count),
                }
            )
            tables = {PARTIALS: parts.lift(tuples, [PANE, "key"])}
            tables |= {VALUES + name: lift_values(tuples, [PANE, "key"], name) for name in parts.values}
            envelopes = [
                Envelope(plan.id, kind, stream_of(table))
                for plan in program.operators
                for kind, table in tables.items()
                if not is_whole or plan.id == late.id
            ]
            whole = (late.id,) if is_whole else ()
            record = LogRecord(program, newest, delays, False, envelopes, bool(rng.random() < 0.1), whole)
        records.append(record)
    records[-1] = replace(records[-1], ended=True)
    return records


@settings(max_examples=examples(25))
@given(logs())
def test_a_shard_that_is_stored_and_read_goes_on_as_if_nothing_had_happened(records: list[LogRecord]) -> None:
    straight, interrupted, stored = Shard(), Shard(), StoredPanes()
    programs = {record.program.version: record.program for record in records}
    for record in records:
        told = [_everything(shard, shard.process(record)) for shard in (straight, interrupted)]
        assert told[0] == told[1]
        dropped = interrupted.take_dropped()
        for place in [each for each in stored if each[0] in dropped]:
            del stored[place]
        store(interrupted, stored)
        interrupted = Shard.restored(interrupted.scalars(), stored, programs.__getitem__)


def _everything(shard: Shard, answers: Sequence[Answer]) -> list[object]:
    said = [
        (
            *(a.view, a.start, a.end, a.revision, a.final, a.slack, a.coverage, a.promised),
            sorted(map(str, a.rows.to_pylist())),
            sorted(map(str, a.replaced.to_pylist())),
        )
        for a in answers
    ]
    return [said, shard.standing(), shard.take_late(), shard.take_beyond()]


def _sorted(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(rows, key=lambda row: (row[:2], row[2] is not None, row[2]))


def _approx(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return [
        tuple(pytest.approx(v, rel=1e-9, abs=1e-6) if isinstance(v, float) else v for v in row)
        for row in rows
    ]
