"""Groups of rows are numbered and merged as a hash table over all keys would."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.windows.aggregates import ROWS, Parts
from penstock.operators.windows.grouping import first_rows, group_codes
from penstock.plan.windows import Aggregate

LARGEST = 2**63 - 1
COLUMNS = {
    "small": pa.array([3, 3, -2, 3, -2, 7] * 200),
    "runs": pa.array(np.repeat([-LARGEST, 0, LARGEST, 0], 300)),
    "wide": pa.array([LARGEST, -LARGEST - 1, 5, 5, LARGEST, 0] * 200),
    "narrow": pa.array([1, 2, 1, 1, 2, 3] * 200, pa.int8()),
    "nulls": pa.array([None, 1, 1, None, 2, 1] * 200),
    "texts": pa.array(["b", "a", None, "b", "", "a"] * 200),
    "reals": pa.array([0.5, float("nan"), 0.5, float("nan"), None, 1.0] * 200),
    "decimals": pa.array([Decimal(1), Decimal(2), None, Decimal(1), Decimal(1), Decimal(2)] * 200),
}


@pytest.mark.parametrize(
    "keys", [[], *([name] for name in COLUMNS), list(COLUMNS), ["wide", "runs", "wide"], ["small", "texts"]]
)
@pytest.mark.parametrize("rows", [0, 1, 1200])
def test_groups_are_numbered_in_order_of_first_occurrence(keys: list[str], rows: int) -> None:
    table = pa.table(COLUMNS).slice(0, rows)
    known: dict[str, int] = {}
    told = [known.setdefault(repr([row[key] for key in keys]), len(known)) for row in table.to_pylist()]
    codes = group_codes(table, keys)
    assert codes.tolist() == told
    assert first_rows(codes).tolist() == [told.index(number) for number in range(len(known))]


def test_merged_partials_are_those_of_a_hash_table() -> None:
    aggregates = [
        Aggregate("sum", "real", pa.float64()),
        Aggregate("sum", "exact", pa.decimal128(38, 2)),
        Aggregate("max", "real", pa.float64()),
        Aggregate("min", "text", pa.string()),
    ]
    rng = np.random.default_rng(5)
    tuples = pa.table(
        {
            "key": rng.integers(0, 40, 2000),
            "batch": rng.integers(0, 30, 2000),
            "real": pa.array(rng.random(2000), mask=rng.random(2000) < 0.7),
            "exact": pa.array([Decimal(int(n)).scaleb(-2) for n in rng.integers(-(10**6), 10**6, 2000)]),
            "text": pa.array([None if n > 6 else "abcdefg"[n] for n in rng.integers(0, 40, 2000)]),
        }
    )
    parts = Parts.of(aggregates)
    partials = parts.lift(tuples, ["key", "batch"])
    merged = parts.merge(partials, ["key"])
    names = [name for name in merged.column_names if name != "key"]
    asked = [(name, name.split(":")[0] if name[:3] in ("min", "max") else "sum") for name in names]
    expected = partials.group_by(["key"], use_threads=False).aggregate(asked)
    assert merged.column(ROWS).to_pylist() == expected.column(f"{ROWS}_sum").to_pylist()
    assert merged.to_pydict() == expected.rename_columns(["key", *names]).to_pydict()
