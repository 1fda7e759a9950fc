"""Partials of views with different conditions: what each condition gets is what it would get alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from penstock.kernels.spreading import add_limbs, add_up
from penstock.operators.text.known_sets import KnownSets
from penstock.operators.windows import held_partials, spreading
from penstock.operators.windows.aggregates import SELECTION, Parts
from penstock.operators.windows.event_times import event_times
from penstock.operators.windows.moments import Moments
from penstock.operators.windows.pane_plan import PaneColumn, PanePlan, PaneProgram
from penstock.operators.windows.pane_stage import PaneStage
from penstock.operators.windows.satisfied import Part, Satisfied
from penstock.operators.windows.shard import Envelope
from penstock.operators.windows.sketches import Sketch, estimates
from penstock.operators.windows.spreading import SET
from penstock.plan.windows import Aggregate

#: each argument is used in another way
TYPES = {
    "real": pa.float64(),
    "whole": pa.int64(),
    "exact": pa.decimal128(30, 2),
    "text": pa.string(),
    "moment": pa.float64(),
    "kept": pa.int32(),
}
DISTINCT = Aggregate("approx_count_distinct", "kept", pa.int64(), accuracy=0.05)
COUNTED = Sketch.of(DISTINCT)
PARTS = Parts(
    sums=("real", "whole", "exact"),
    counts=("text",),
    extremes=(("min", "real"), ("max", "whole"), ("max", "text"), ("min", "exact")),
    moments=(Moments.of(Aggregate("stddev_samp", "moment", pa.float64())),),
    values=("kept",),
    sketches=(COUNTED,),
)
CONDITIONS = 7


def program(*, keyed: bool, shared: bool) -> PaneProgram:
    arguments = tuple(PaneColumn(name, name, kind) for name, kind in TYPES.items())
    keys = (PaneColumn("key", "_k0", pa.string()),) if keyed else ()
    every = tuple(range(CONDITIONS))
    # the fourth is of views that were dropped
    selections = [(0, 1, 2, None, 4, 5, 6)] if shared else [(each,) for each in every if each != 3]
    plans = (
        PanePlan(number, own, keys, arguments, ("failed",), PARTS, 100, 30)
        for number, own in enumerate(selections)
    )
    return PaneProgram("ts", tuple(plans), 3)


def batch(rng: np.random.Generator, rows: int) -> pa.RecordBatch:
    def some(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if rng.random() < 0.2 else value for value in values], kind)

    wholes = rng.integers(-(2**62), 2**62, rows).tolist()
    return pa.record_batch(
        {
            "ts": some(rng.integers(0, 300, rows).tolist(), pa.timestamp("us", "UTC")),
            "key": some(rng.choice(["a", "b", "c"], rows).tolist(), pa.string()),
            "real": some(rng.choice([0.0, -0.0, 1.5, 0.25, math.nan], rows, p=[0.3, 0.3, 0.2, 0.19, 0.01]).tolist(), pa.float64()),
            "whole": some(wholes, pa.int64()),
            "exact": some([Decimal(each).scaleb(-2) for each in wholes], TYPES["exact"]),
            "text": some(rng.choice(["x", "", "yy"], rows).tolist(), pa.string()),
            "moment": some(rng.integers(0, 9, rows).astype(float).tolist(), pa.float64()),
            "kept": some(rng.integers(0, 5, rows).tolist(), pa.int32()),
            "failed": pa.array(rng.random(rows) < 0.1),
        }
    )  # fmt: skip


def found(
    stage: PaneStage, envelopes: Sequence[tuple[int, Envelope]], *, shared: bool
) -> Counter[tuple[object, ...]]:
    """Every row with its shard, kind and condition."""
    rows: Counter[tuple[object, ...]] = Counter()
    for shard, envelope in envelopes:
        for row in pa.ipc.open_stream(envelope.payload).read_all().to_pylist():
            place = row.pop(SELECTION) if shared else 0
            condition = stage.program.operators[envelope.operator].selections[place]
            told = {
                name: round(value, 9) if isinstance(value, float) else value for name, value in row.items()
            }
            if COUNTED.column in told:
                (told[COUNTED.column],) = estimates(
                    DISTINCT, pa.chunked_array([[told[COUNTED.column]]])
                ).to_pylist()
            rows[shard, envelope.kind, condition, str(told)] += 1
    return rows


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize(
    ("pairs", "bytes_", "held"), [(1 << 22, 1 << 25, 1 << 20), (5, 1 << 25, 30), (64, 0, 30)]
)
def test_each_condition_gets_what_it_would_get_alone(
    monkeypatch: pytest.MonkeyPatch, pairs: int, bytes_: int, held: int, keyed: bool
) -> None:
    monkeypatch.setattr(spreading, "_MOST_PAIRS", pairs)
    monkeypatch.setattr(held_partials, "_SETS_BYTES", bytes_)
    monkeypatch.setattr(held_partials, "_HELD_ROWS", held)
    rng = np.random.default_rng(pairs)
    stages = [PaneStage(program(keyed=keyed, shared=shared)) for shared in (True, False)]
    for _ in range(3):
        for stage in stages:
            stage.begin(too_late_before=20)
        for rows in (0, 1, 80, 50):
            tuples = batch(rng, rows)
            holds = rng.random((rows, CONDITIONS)) < rng.choice([0.0, 0.3, 0.8], CONDITIONS)
            satisfied = Satisfied.by_row(
                np.append(0, np.cumsum(holds.sum(1))), np.nonzero(holds)[1].astype(np.int32), CONDITIONS
            )
            times = event_times(tuples.column("ts"), 10_000)
            late = [stage.add(tuples, times, satisfied) for stage in stages]
            assert late[0] is None if late[1] is None else late[0].tolist() == late[1].tolist()
        together, each = (
            found(stage, stage.envelopes(), shared=shared)
            for stage, shared in zip(stages, (True, False), strict=True)
        )
        assert together == each
        assert together
        raised = dict(zip(stages[1].program.members, stages[1].raised.tolist(), strict=True))
        assert stages[0].raised.tolist() == [raised.get(each, 0) for each in (0, 1, 2, None, 4, 5, 6)]


@pytest.mark.parametrize("bytes_", [1 << 25, 0])
def test_sets_of_classes_are_numbered_once(monkeypatch: pytest.MonkeyPatch, bytes_: int) -> None:
    """Classes that parts have in common, of which later parts have more, as `condition_classes` gives them."""
    monkeypatch.setattr(held_partials, "_SETS_BYTES", bytes_)
    rng = np.random.default_rng(bytes_)
    stages = [PaneStage(program(keyed=True, shared=shared)) for shared in (True, False)]
    holds = rng.random((40, CONDITIONS)) < 0.4
    family = object()
    with mock.patch.object(KnownSets, "number", autospec=True, side_effect=KnownSets.number) as numbering:
        for known in (10, 10, 25, 40, 40):
            tuples = batch(rng, 300)
            classes = rng.integers(0, known, 300).astype(np.int32)
            offsets = np.append(0, np.cumsum(holds[:known].sum(1)))
            conditions = np.nonzero(holds[:known])[1].astype(np.int32)
            satisfied = Satisfied(300, [Part(offsets, conditions, classes, family)], CONDITIONS)
            for stage in stages:
                stage.add(tuples, event_times(tuples.column("ts"), 10_000), satisfied)
    numbered = [value for call in numbering.call_args_list for value in set(call.args[2].tolist())]
    assert (
        bytes_ == 0 or sorted(numbered) == np.flatnonzero(holds[:, [0, 1, 2, 4, 5, 6]].any(axis=1)).tolist()
    )
    together, each = (
        found(stage, stage.envelopes(), shared=shared)
        for stage, shared in zip(stages, (True, False), strict=True)
    )
    assert together == each
    assert [*stages[0].raised[:3], *stages[0].raised[4:]] == stages[1].raised.tolist()


def test_pairs_of_sets_add_up_as_they_are_listed() -> None:
    rng = np.random.default_rng(3)
    sets = KnownSets()
    values = np.repeat(np.arange(30, dtype=np.int32), 4)
    sets.number(rng.integers(0, 9, 120).astype(np.int32), values, np.zeros(30, np.uint32))
    table = pa.table(
        {
            SET: rng.integers(0, len(sets), 500).astype(np.int32),
            "key": rng.integers(0, 12, 500),
            "real": rng.normal(size=500),
        }
    )
    for pairs in spreading._portions(table, sets, ["key"]):
        rows, cells = pairs.listed
        sums, listed = np.zeros(pairs.count), np.zeros(pairs.count)
        pairs.add(table.column("real").to_numpy(), sums)
        add_up(table.column("real").to_numpy(), rows, cells, listed)
        # to the last digit: both add in the same order
        assert sums.tolist() == listed.tolist()
        keys = pairs.cells_of(table, ["key"])
        assert len(set(map(str, keys.to_pylist()))) == pairs.count
        assert keys.column("key").take(pa.array(cells)).to_pylist() == (
            table.column("key").take(pa.array(rows)).to_pylist()
        )


def test_decimals_of_several_limbs_are_added_with_carry() -> None:
    numbers = [2**128 - 1, 1, 2**127, -(2**64), 3]
    limbs = np.array([[n >> 64 * limb & 2**64 - 1 for limb in range(4)] for n in numbers], np.uint64)
    sums = np.zeros((2, 4), np.uint64)
    add_limbs(limbs, np.arange(5), np.array([0, 0, 0, 1, 1]), sums)
    told = [sum(int(word) << 64 * limb for limb, word in enumerate(own)) for own in sums]
    assert told == [sum(numbers[:3]) % 2**256, sum(numbers[3:]) % 2**256]
