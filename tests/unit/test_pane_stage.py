"""Pane partials: whatever the batches, merged they are the group-by of all tuples; shards share them out."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.hashing import key_hashes
from penstock.operators.windows import held_partials
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.event_times import event_times
from penstock.operators.windows.pane_plan import PaneColumn, PanePlan, PaneProgram
from penstock.operators.windows.pane_stage import PaneStage
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.satisfied import Satisfied
from penstock.operators.windows.shard import PARTIALS, VALUES, Envelope
from penstock.plan.times import BEFORE_ALL, EARLIEST, LATEST

HASHES = [13503369963971452764, 5937307202493844834]
LIMIT = 1_000
SHARDS = 3
PARTS = Parts(sums=("_x0",), extremes=(("max", "_x0"),), values=("_x1",))

numbers = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, math.nan]))
rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(-500, 1_200)),
        numbers,
        st.sampled_from(["a", "b", "ab", None]),
        st.one_of(st.none(), st.integers(-100, 100)),
        numbers,
        st.booleans(),
    ),
    max_size=60,
)


def table(tuples: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    time, level, name, amount, kind, failed = zip(*tuples, strict=True) if tuples else [()] * 6
    return pa.record_batch(
        {
            "ts": pa.array(time, pa.timestamp("us", "UTC")),
            "level": pa.array(level, pa.float64()),
            "name": pa.array(name, pa.string()),
            "amount": pa.array(amount, pa.int32()),
            "kind": pa.array(kind, pa.float64()),
            "failed": pa.array(failed, pa.bool_()),
        }
    )


def stage(selection: int | None, *, keyed: bool = True) -> PaneStage:
    keys = (PaneColumn("level", "_k0", pa.float64()), PaneColumn("name", "_k1", pa.string()))
    plan = PanePlan(
        id=7,
        selections=() if selection is None else (selection,),
        keys=keys if keyed else (),
        arguments=(PaneColumn("amount", "_x0", pa.int32()), PaneColumn("kind", "_x1", pa.float64())),
        raising=("failed",),
        parts=PARTS,
        pane=100,
        offset=30,
    )
    return PaneStage(PaneProgram("ts", (plan,), SHARDS))


def run(found: PaneStage, batches: Sequence[pa.RecordBatch], selected: bool) -> list[tuple[int, Envelope]]:
    for batch in batches:
        chosen = _satisfied(_selected(batch)) if selected else Satisfied.none(batch.num_rows)
        found.add(batch, event_times(batch.column("ts"), LIMIT), chosen)
    return found.envelopes()


def _satisfied(chosen: Any) -> Satisfied:
    """One condition, by whether each row satisfies it."""
    return Satisfied.by_row(np.append(0, np.cumsum(chosen)), np.zeros(np.count_nonzero(chosen), np.int32), 1)


def _selected(batch: pa.RecordBatch) -> Any:
    return np.asarray([(amount or 0) > 0 for amount in batch.column("amount").to_pylist()], bool)


def read(envelopes: Sequence[tuple[int, Envelope]], kind: str) -> list[tuple[int, dict[str, Any]]]:
    return [
        (shard, row)
        for shard, envelope in envelopes
        if envelope.kind == kind
        for row in pa.ipc.open_stream(envelope.payload).read_all().to_pylist()
    ]


def key(value: float | None) -> Any:
    return "NaN" if value is not None and math.isnan(value) else value if value is None else value + 0.0


@given(tuples=rows, cuts=st.lists(st.integers(0, 60)), held=st.integers(1, 40), filtered=st.booleans())
def test_partials_of_any_batches_are_the_group_by_of_all(
    tuples: list[tuple[Any, ...]], cuts: list[int], held: int, filtered: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_partials, "_HELD_ROWS", held)
        patch.setattr(held_partials, "_LOOSE_ROWS", held)
        edges = sorted({0, len(tuples), *(min(cut, len(tuples)) for cut in cuts)})
        whole = table(tuples)
        pieces = [whole.slice(low, high - low) for low, high in pairwise(edges)]
        own = stage(0 if filtered else None)
        found = run(own, pieces, filtered)
    groups: dict[Any, list[Any]] = defaultdict(list)
    counted: Counter[Any] = Counter()
    raised = 0
    for time, level, name, amount, kind, failed in tuples:
        if filtered and (amount or 0) <= 0:
            continue
        if failed:
            raised += 1
            continue
        if time is None or time > LIMIT:
            continue
        group = ((time - 30) // 100 * 100 + 30, key(level), name)
        groups[group].append(amount)
        if kind is not None:
            counted[(*group, key(kind))] += 1
    expected = {
        group: (
            len(amounts),
            sum(each for each in amounts if each is not None)
            if any(a is not None for a in amounts)
            else None,
            max((each for each in amounts if each is not None), default=None),
        )
        for group, amounts in groups.items()
    }
    partials = read(found, PARTIALS)
    merged = {
        (row[PANE], key(row["_k0"]), row["_k1"]): (row["rows"], row["sum:_x0"], row["max:_x0"])
        for _, row in partials
    }
    assert len(partials) == len(merged)
    assert merged == expected
    values = read(found, VALUES + "_x1")
    assert {
        (row[PANE], key(row["_k0"]), row["_k1"], key(row["value"])): row["rows"] for _, row in values
    } == dict(counted)
    assert own.raised.tolist() == [raised]
    homes = {(key(row["_k0"]), row["_k1"], shard) for shard, row in [*partials, *values]}
    assert len(homes) == len({home[:2] for home in homes})


def test_without_keys_everything_goes_to_the_first_shard() -> None:
    whole = table([(time, 0.0, "a", 1, 1.5, False) for time in range(0, 400, 7)])
    found = run(stage(None, keyed=False), [whole], False)
    assert {shard for shard, _ in found} == {0}
    assert sum(row["rows"] for _, row in read(found, PARTIALS)) == whole.num_rows


def test_a_batch_in_which_nothing_matches_brings_nothing() -> None:
    whole = table([(time, 0.0, "a", 1, 1.5, False) for time in range(0, 400, 7)])
    assert run(stage(0), [whole], False) == []


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, None, 3], pa.int32()),
        (["a", "", None, "b"], pa.string()),
        ([b"a", b"", None, b"b"], pa.binary()),
        ([True, False, None], pa.bool_()),
        ([Decimal("1.50"), None, Decimal("2.00")], pa.decimal128(10, 2)),
        ([0.0, 1.5, math.nan, None], pa.float32()),
        ([0, 1, None], pa.date32()),
        ([0, 1, None], pa.timestamp("us", "UTC")),
        ([0, 1, None], pa.duration("us")),
        ([0, 1, None], pa.time64("ns")),
    ],
)
def test_hashes_depend_on_the_keys_alone(values: list[Any], kind: pa.DataType) -> None:
    column = pa.array(values, kind)
    twice = pa.table({"k": pa.chunked_array([column, column.take(pa.array(range(len(values))[::-1]))])})
    hashes = key_hashes(twice, ["k"])
    assert hashes[: len(values)].tolist() == hashes[len(values) :][::-1].tolist()
    assert len(set(hashes.tolist())) == len(values)


def test_hashes_stay_what_they_were() -> None:
    keys = pa.table({"a": pa.array([1, None]), "b": pa.array(["x", "y"])})
    assert key_hashes(keys, ["a", "b"]).tolist() == HASHES


def test_times_that_are_not_believed_are_counted() -> None:
    times = event_times(pa.array([5, None, 2_000, -3], pa.timestamp("us", "UTC")), LIMIT)
    assert (times.nulls, times.future, times.oldest, times.newest) == (1, 1, -3, 5)
    assert times.usable is not None
    assert times.usable.tolist() == [True, False, False, True]
    kept = event_times(pa.array([5, None, 2_000, 2_500, 9_000], pa.timestamp("us", "UTC")), 1_000, 1_500)
    assert (kept.oldest, kept.newest, kept.furthest, kept.nulls, kept.ahead, kept.future) == (
        5,
        5,
        2_500,
        1,
        2,
        1,
    )
    assert kept.middle == (4, 2_500)
    assert kept.usable is not None
    assert kept.usable.tolist() == [True, False, True, True, False]
    local = event_times(pa.array([2_000], pa.timestamp("us")), LIMIT)
    assert local.usable is None


@pytest.mark.parametrize("limit", [LIMIT, 2**62, 2**70])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_that_no_window_holds_are_too_late_or_ahead(limit: int, zone: str | None) -> None:
    moments = [-(2**63), 5, EARLIEST - 1, EARLIEST, None, LATEST + 1, 2**63 - 1]
    times = event_times(pa.array(moments, pa.int64()).cast(pa.timestamp("us", zone)), limit, 10)
    assert (times.oldest, times.newest, times.furthest) == (EARLIEST, 5, 5)
    assert (times.nulls, times.ahead, times.future, times.has_early) == (1, 0, 2, True)
    assert times.usable is not None
    assert times.believed is not None
    assert times.usable.tolist() == [True, True, True, True, False, False, False]
    assert times.believed.tolist() == [False, True, False, True, False, False, False]
    batch = table([(None, 0.5, "a", 1, 0.5, False)] * len(moments))
    too_late = stage(None).add(batch, times, Satisfied.none(len(moments)))
    assert too_late is not None
    assert too_late.tolist() == [True, False, True, False, False, False, False]
    alone = event_times(pa.array([-(2**63)], pa.int64()).cast(pa.timestamp("us", zone)), limit)
    assert (alone.oldest, alone.newest, alone.furthest, alone.future) == (None, None, None, 0)
    assert alone.oldest_since(BEFORE_ALL) is None


def test_tuples_that_are_too_late_are_in_no_pane_and_told() -> None:
    batch = table([(time, 0.5, "a", 1, 0.5, time == 150) for time in (None, 90, 150, 99, 100, 101)])
    for selection in (None, 0):
        found = stage(selection)
        found.begin(too_late_before=100)
        chosen = np.isin(np.arange(6), [0, 1, 2, 5])
        too_late = found.add(batch, event_times(batch.column("ts"), LIMIT), _satisfied(chosen))
        assert too_late is not None
        late, kept = ([1, 3], 2) if selection is None else ([1], 1)
        assert np.flatnonzero(too_late).tolist() == late
        assert sum(row["rows"] for _, row in read(found.envelopes(), PARTIALS)) == kept
        found.begin(too_late_before=90)
        assert found.add(batch, event_times(batch.column("ts"), LIMIT), _satisfied(np.ones(6, bool))) is None
