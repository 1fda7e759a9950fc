"""Lookups of joined rows in a static table: each row with all of its partners, or once with NULL, as a nested loop says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.joins.lookups import TableLookup
from penstock.operators.joins.tuples import InputRuns, RunSlice
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import Run, RunPlan, write_run
from penstock.plan.joins import Comparison, JoinColumn, JoinInput, JoinKey, Lookup, Operator

NO_TIME = "no_time"
TABLE = {"id": pa.int64(), "name": pa.string(), "size": pa.float64()}


def table_of(rows: Sequence[tuple[Any, Any, Any]], key: str | None, path: Path) -> InputRuns:
    """A static table as the lane stores it."""
    columns = {
        name: pa.array([row[place] for row in rows], kind) for place, (name, kind) in enumerate(TABLE.items())
    }
    moments = pa.array(np.zeros(len(rows), np.int64)).cast(pa.timestamp("us", "UTC"))
    with path.open("wb") as sink:
        write_run(
            pa.table({**columns, NO_TIME: moments}),
            RunPlan(() if key is None else (key,), NO_TIME, HashRouter((), 1)),
            sink,
        )
    return InputRuns((), (RunSlice(Run(pa.py_buffer(path.read_bytes())), -1, 0),))


def lookup_of(
    keys: Sequence[tuple[str, str]],
    compared: Sequence[tuple[str, Operator, str]] = (),
    required: Sequence[str] = (),
) -> Lookup:
    columns = tuple(JoinColumn(name, name, kind) for name, kind in TABLE.items())
    return Lookup(
        JoinInput("t", "things", True, None, columns, None),
        tuple(JoinKey(pair, TABLE[pair[1]]) for pair in keys),
        tuple(Comparison(*each) for each in compared),
        tuple(required),
    )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("piece_rows", [7, 1 << 16])
@pytest.mark.parametrize(
    "lookup",
    [
        lookup_of([("k", "id")]),
        lookup_of([("said", "name")]),
        lookup_of([("x", "size")], required=["ok"]),
        lookup_of([("k", "id"), ("said", "name")]),
        lookup_of([("k", "id")], [("x", Operator.LESS_EQUAL, "size")]),
        lookup_of([], [("size", Operator.GREATER, "x")], required=["ok"]),
    ],
    ids=["whole", "text", "double", "two keys", "compared", "no key"],
)
def test_rows_have_all_partners_or_stay_alone(
    lookup: Lookup, piece_rows: int, seed: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(seed)
    floats = [None, float("nan"), -0.0, 0.0, 1.5]

    def some(count: int) -> list[tuple[Any, Any, Any]]:
        return [
            (
                None if rng.random() < 0.2 else int(rng.integers(0, 5)),
                None if rng.random() < 0.2 else "abcde"[int(rng.integers(0, 5))] * int(rng.integers(0, 9)),
                floats[int(rng.integers(0, len(floats)))],
            )
            for _ in range(count)
        ]

    own = some(int(rng.integers(0, 30)))
    batches, wanted = [], Counter[str]()
    for _ in range(3):
        rows = some(int(rng.integers(1, 40)))
        ok = [[True, False, None][int(rng.integers(0, 3))] for _ in rows]
        ops = [("insert", "delete")[int(rng.integers(0, 2))] for _ in rows]
        batches.append(
            pa.record_batch(
                {
                    "k": pa.array([row[0] for row in rows], pa.int64()),
                    "said": pa.array([row[1] for row in rows], pa.string()),
                    "x": pa.array([row[2] for row in rows], pa.float64()),
                    "ok": pa.array(ok, pa.bool_()),
                    "op": pa.array(ops),
                }
            )
        )
        for row, is_ok, op in zip(rows, ok, ops, strict=True):
            left = {"k": row[0], "said": row[1], "x": row[2], "ok": is_ok, "op": op}
            found = [
                {**left, "name": each[1], "size": each[2]}
                for each in own
                if _matches(lookup, {**left, **dict(zip(TABLE, each, strict=True))})
            ]
            wanted.update(map(repr, found or [{**left, "name": None, "size": None}]))
    runs = table_of(own, lookup.keys[0].columns[1] if lookup.keys else None, tmp_path / "run")
    made = list(TableLookup(lookup, runs, ["name", "size"], piece_rows=piece_rows).batches(batches))
    assert all(each.num_rows for each in made)
    assert Counter(repr(row) for each in made for row in each.to_pylist()) == wanted
    assert made[0].schema.names == ["k", "said", "x", "ok", "op", "name", "size"]


def _matches(lookup: Lookup, row: dict[str, Any]) -> bool:
    def value(name: str | None) -> Any:
        found = row[name or ""]
        # NaN equals NaN and is the largest
        return (found != found, 0.0 if found != found else found) if isinstance(found, float) else found

    if any(row[name] is not True for name in lookup.required):
        return False
    pairs = [(*(value(name) for name in key.columns), "=") for key in lookup.keys]
    pairs += [(value(each.left), value(each.right), each.operator) for each in lookup.comparisons]
    judges = {"=": lambda a, b: a == b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b}
    return all(one is not None and other is not None and judges[how](one, other) for one, other, how in pairs)
