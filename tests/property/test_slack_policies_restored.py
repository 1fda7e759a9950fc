"""Whatever policies the views of one operator have: each decides as it does alone, and as it does when it is stored and
restored after any batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import PARTIALS, Envelope, LogRecord, OperatorPlan, Shard, WindowProgram
from penstock.plan.slack import SLACK_POLICIES, SlackChoice
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from window_cases import StoredPanes, store, stream_of

AGGREGATES = (Aggregate("count", None, pa.int64()), Aggregate("sum", "v", pa.float64()))
PARTS = Parts.of(AGGREGATES)
CHOICES = [SlackChoice(name, 12 if name == "fixed" else None) for name in SLACK_POLICIES]


def views(choices: list[SlackChoice]) -> tuple[WindowPlan, ...]:
    keys = (("k", pa.int64()),)
    return tuple(
        WindowPlan(each.policy, "t", Windows(20, 10), keys, AGGREGATES, ErrorBound(0.1, 0.3), slack=each)
        for each in choices
    )


def program(version: int, choices: list[SlackChoice], apart: bool = False) -> WindowProgram:
    own = views(choices)
    groups = [(view,) for view in own] if apart else [own]
    operators = tuple(OperatorPlan(number, group, PARTS, 10) for number, group in enumerate(groups))
    return WindowProgram(version, operators, 15, 0)


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[pa.Table, np.ndarray, int]]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    most, newest, found = draw(st.sampled_from([5, 60])), 0, []
    for step in range(draw(st.integers(5, 40))):
        count = int(rng.integers(1, 12))
        times = (
            step * 6
            + rng.integers(0, 7, count)
            - np.where(rng.random(count) < 0.3, rng.integers(0, most, count), 0)
        )
        before = np.maximum(np.maximum.accumulate(times), newest)
        newest = int(before[-1])
        tuples = pa.table({PANE: times // 10 * 10, "k": rng.integers(0, 2, count), "v": rng.random(count)})
        found.append((PARTS.lift(tuples, [PANE, "k"]), before - times, newest))
    return found


def said(
    every: list[tuple[pa.Table, np.ndarray, int]], programs: list[WindowProgram], restored: set[int]
) -> dict[str, list[object]]:
    """What each view says and how it stands, batch by batch."""
    shard, stored = Shard(), StoredPanes()
    known = {each.version: each for each in programs}
    found: dict[str, list[object]] = {}
    for step, (rows, delays, newest) in enumerate(every):
        own = programs[min(step * len(programs) // len(every), len(programs) - 1)]
        envelopes = [Envelope(plan.id, PARTIALS, stream_of(rows)) for plan in own.operators]
        is_last = step == len(every) - 1
        for answer in shard.process(LogRecord(own, newest, delays, is_last, envelopes)):
            found.setdefault(answer.view, []).append(
                (
                    answer.end,
                    answer.revision,
                    answer.final,
                    answer.slack,
                    answer.coverage,
                    answer.rows.to_pylist(),
                )
            )
        for name, standing in shard.standing().items():
            found.setdefault(name, []).append(standing)
        shard.take_late(), shard.take_beyond()
        store(shard, stored)
        if step in restored:
            shard = Shard.restored(shard.scalars(), stored, known.__getitem__)
    return found


@settings(max_examples=examples(40), deadline=None)
@given(batches(), st.sets(st.integers(0, 39), max_size=8))
def test_policies_decide_alike_after_a_restart_and_beside_others(
    every: list[tuple[pa.Table, np.ndarray, int]], restored: set[int]
) -> None:
    together = said(every, [program(0, CHOICES)], set())
    assert said(every, [program(0, CHOICES)], restored) == together
    assert said(every, [program(0, CHOICES, apart=True)], set()) == together


@settings(max_examples=examples(20), deadline=None)
@given(batches(), st.permutations(CHOICES), st.sets(st.integers(0, 39), max_size=8))
def test_a_view_may_change_its_policy(
    every: list[tuple[pa.Table, np.ndarray, int]], others: list[SlackChoice], restored: set[int]
) -> None:
    first, second = program(0, CHOICES), program(1, CHOICES)
    changed = tuple(
        replace(view, slack=other) for view, other in zip(second.operators[0].views, others, strict=True)
    )
    second = replace(second, operators=(replace(second.operators[0], views=changed),))
    whole = said(every, [first, second], set())
    assert said(every, [first, second], restored) == whole
    final = [
        {each[0]: each[5] for each in own if isinstance(each, tuple) and each[2]} for own in whole.values()
    ]
    assert all(own == final[0] for own in final), "in the end all answers are exact"
