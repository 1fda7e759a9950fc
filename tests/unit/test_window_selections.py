"""Views that differ in their conditions share panes: each answers as it would alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.operators.windows import sampling, selected_windows, selections
from penstock.operators.windows.aggregates import SELECTION, Parts, lift_values
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.required_slack import ARRIVAL, END
from penstock.operators.windows.sampling import halvings_of, largest_hashes
from penstock.operators.windows.shard import (
    PARTIALS,
    VALUES,
    Envelope,
    LogRecord,
    OperatorPlan,
    Shard,
    WindowProgram,
)
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from window_cases import StoredPanes, store, stream_of

BOUND = ErrorBound(0.05, 0.2)
AGGREGATES = (
    Aggregate("count", None, pa.int64()),
    Aggregate("sum", "value", pa.float64()),
    Aggregate("max", "value", pa.float64()),
    Aggregate("count_distinct", "value", pa.int64()),
    Aggregate("approx_count_distinct", "value", pa.int64(), accuracy=0.05),
)
#: values that satisfy each condition
CONDITIONS = ((-50, 50), (0, 3), (-50, -49), (10, 40), (60, 70))
PARTS = Parts.of(AGGREGATES)


def plans(windows: Windows, *, keyed: bool, bound: ErrorBound = BOUND) -> list[WindowPlan]:
    keys = (("key", pa.int64()),) if keyed else ()
    return [
        WindowPlan(f"v{number}", "t", windows, keys, AGGREGATES, bound, number)
        for number in range(len(CONDITIONS))
    ]


def alone(plan: WindowPlan) -> WindowPlan:
    return replace(plan, selection=None)


def envelopes(tuples: pa.Table, views: Sequence[WindowPlan], ids: Sequence[int]) -> list[Envelope]:
    """Of one operator for all views, or of one for each."""
    values = tuples.column("value").to_numpy()
    chosen = [tuples.filter(pa.array((values >= low) & (values <= high))) for low, high in CONDITIONS]
    keys = [name for name, _ in views[0].keys]
    if len(ids) == 1:
        stamped = [
            table.append_column(SELECTION, pa.array(np.full(table.num_rows, number)))
            for number, table in enumerate(chosen)
        ]
        chosen, keys = [pa.concat_tables(stamped)], [SELECTION, *keys]
    found = []
    for id_, own in zip(ids, chosen, strict=True):
        if own.num_rows:
            groups = [PANE, *keys]
            tables = {PARTIALS: PARTS.lift(own, groups)}
            tables |= {VALUES + name: lift_values(own, groups, name) for name in PARTS.values}
            found += [Envelope(id_, kind, stream_of(table)) for kind, table in tables.items()]
    return found


def answers(views: Sequence[WindowPlan], seed: int, groups: int, *, shared: bool) -> dict[str, list[object]]:
    """All that a shard says of each view, and what it remembers, batch after batch; its state is stored and read."""
    rng = np.random.default_rng(seed)
    slide = views[0].windows.slide
    if shared:
        operators = (OperatorPlan(0, tuple(views), PARTS, slide),)
    else:
        operators = tuple(OperatorPlan(n, (alone(view),), PARTS, slide) for n, view in enumerate(views))
    program = WindowProgram(0, operators, 5, 60)
    shard, stored = Shard(), StoredPanes()
    said: dict[str, list[object]] = {view.name: [] for view in views}
    newest = 0
    for step in range(24):
        count = int(rng.integers(0, 30)) if groups < 100 else 800
        late = (
            np.where(rng.random(count) < 0.2, rng.integers(0, 80, count), 0) if step else np.zeros(count, int)
        )
        times = step * 7 + rng.integers(0, 9, count) - late
        values = rng.integers(-50, 50, count).astype(np.float64)
        if not step:
            # an operator knows since when its tuples come: all of them have one in the first pane
            times, values = np.append(np.zeros(3, np.int64), times), np.append([-50.0, 0.0, 10.0], values)
        reached = np.maximum.accumulate(np.append(newest, times))[1:]
        newest = int(max([newest, *reached.tolist()]))
        tuples = pa.table(
            {
                PANE: times // slide * slide,
                "key": rng.integers(0, groups, len(times)),
                "value": values,
            }
        )
        record = LogRecord(
            program,
            newest,
            reached - times,
            step == 23,
            envelopes(tuples, views, [plan.id for plan in operators]),
            flush=step % 9 == 4,
            reached=newest + 10 if step % 11 == 5 else None,
        )
        for answer in shard.process(record):
            rows, replaced = (sorted(map(str, table.to_pylist())) for table in (answer.rows, answer.replaced))
            said[answer.view].append(
                (answer.end, answer.revision, answer.final, answer.slack, answer.coverage, rows, replaced)
            )
        for name, standing in shard.standing().items():
            said[name].append((standing, replace(shard.progress()[name], operator=0)))
        late_counts, beyond = shard.take_late(), shard.take_beyond()
        said.setdefault("late", []).append(late_counts)
        said.setdefault("beyond", []).append(sorted((view, start) for _, view, start in beyond))
        store(shard, stored)
        if step % 3 == 0:
            shard = Shard.restored(shard.scalars(), stored, {0: program}.__getitem__)
    return said


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
@pytest.mark.parametrize(
    ("windows", "keyed", "groups"),
    [
        (Windows(20, 5), True, 4),
        (Windows(10, 10), True, 4),
        (Windows(15, 5), False, 1),
        (Windows(20, 10), True, 400),
        (Windows(30, 3), True, 12),
    ],
)
def test_views_with_several_conditions_answer_as_each_alone(
    windows: Windows, keyed: bool, groups: int, seed: int
) -> None:
    views = plans(windows, keyed=keyed)
    with mock.patch.object(selections, "_BLOCK_BYTES", 32 << 20 if seed % 2 else 4_000):
        together = answers(views, seed, groups, shared=True)
    each = answers(views, seed, groups, shared=False)
    for name in each:
        assert together[name] == each[name], name
    assert any(together["v0"])


def _shard(groups: int, batches: int) -> tuple[Shard, list[WindowPlan], list[LogRecord]]:
    """A shard that has taken in all but the newest of some batches without late tuples, and that one."""
    rng = np.random.default_rng(7)
    views = plans(Windows(20, 5), keyed=True)
    program = WindowProgram(0, (OperatorPlan(0, tuple(views), PARTS, 5),), 5, 60)
    shard, records = Shard(), []
    for step in range(batches):
        times = step * 7 + rng.integers(0, 7, 200)
        tuples = pa.table(
            {
                PANE: times // 5 * 5,
                "key": rng.integers(0, groups, 200),
                "value": rng.integers(-50, 50, 200).astype(np.float64),
            }
        )
        delays = np.zeros(1, np.int64)
        records.append(LogRecord(program, int(times.max()), delays, False, envelopes(tuples, views, [0])))
    for record in records[:-1]:
        shard.process(record)
    return shard, views, records[-1:]


def test_windows_whose_panes_stay_as_they_are_are_merged_once() -> None:
    shard, _, (newest,) = _shard(groups=4, batches=20)
    shard.standing()
    with mock.patch.object(selections, "merged_windows", wraps=selections.merged_windows) as merging:
        answers = shard.process(newest)
    merged = [end for call in merging.call_args_list for end, _ in call.args[2]]
    told = {answer.end for answer in answers}
    is_final = {answer.end for answer in answers if answer.final}
    assert is_final
    assert not is_final & set(merged)
    assert len(merged) < len(told)


def test_a_few_windows_do_not_hold_all_that_they_were_merged_with() -> None:
    most, few = (mock.Mock(spec=selected_windows.SelectedWindows, count=3) for _ in range(2))
    assert selections._mostly_current([most, few, most]) == {id(most)}


def test_groups_without_late_rows_are_not_looked_back_at() -> None:
    with mock.patch.object(
        selected_windows, "WindowHistory", wraps=selected_windows.WindowHistory
    ) as looking:
        answers(plans(Windows(20, 5), keyed=True), 1, 4, shared=True)
    assert looking.call_args_list
    for call in looking.call_args_list:
        partials = call.args[0]
        late = partials.filter(pc.greater_equal(partials.column(ARRIVAL), partials.column(END)))
        groups = {tuple(row.values()) for row in late.select([END, SELECTION, "key"]).to_pylist()}
        assert {tuple(row.values()) for row in partials.select([END, SELECTION, "key"]).to_pylist()} == groups


def test_a_shard_is_restored_whose_last_condition_has_been_dropped() -> None:
    shard, views, (newest,) = _shard(groups=4, batches=20)
    stored = StoredPanes()
    fewer = WindowProgram(1, (OperatorPlan(0, tuple(views[:-2]), PARTS, 5),), 5, 60)
    shard.process(replace(newest, program=fewer, envelopes=[]))
    store(shard, stored)
    again = Shard.restored(shard.scalars(), stored, {1: fewer}.__getitem__)
    record = replace(newest, program=fewer, newest=(newest.newest or 0) + 7)
    said = [
        [
            (answer.view, answer.end, answer.revision, answer.rows.to_pylist())
            for answer in each.process(record)
        ]
        for each in (shard, again)
    ]
    assert said[0] == said[1]
    assert said[0]


@pytest.mark.parametrize("groups", [1, 255, 256, 257, 600, 5_000])
def test_the_sample_of_each_window_is_that_of_the_window_alone(groups: int) -> None:
    rng = np.random.default_rng(groups)
    hashes = np.concatenate(
        [rng.integers(0, 2**64, groups, np.uint64), rng.integers(0, 2**64, 40, np.uint64)]
    )
    hashes = np.concatenate([hashes, hashes[: groups // 2]])
    windows = np.repeat([0, 1, 0], [groups, 40, groups // 2])
    found = largest_hashes(windows, hashes)
    for window in (0, 1):
        own = hashes[windows == window]
        assert int(found[window]) == sampling._LARGEST_HASH >> halvings_of(own)
