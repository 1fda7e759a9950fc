"""Routers: rows that must meet do, in exactly one cell that says what they make; the windows' shards stay theirs."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from itertools import pairwise, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import TypeMismatchError
from penstock.operators.hashing import key_hashes
from penstock.operators.routing.routers import Dimension, Grid, GridRouter, HashRouter, Router, router_of

#: values of a key, the type it is compared in, and columns of other types that Spark would compare with it once converted
SAME = [
    ([1, -7, 0, 2**31 - 1, None], pa.int64(), [pa.int8(), pa.int16(), pa.int32()]),
    ([1, 7, 250, None], pa.int64(), [pa.uint8(), pa.int64()]),
    ([0.0, -0.0, 1.5, math.nan, math.inf, None], pa.float64(), [pa.float32()]),
    ([Decimal("1.50"), Decimal("-2.00"), None], pa.decimal128(12, 4), [pa.decimal128(10, 2)]),
    ([1, 0, -3, None], pa.decimal128(22, 2), [pa.int32(), pa.int64()]),
    ([0, 86_400_000_000, None], pa.timestamp("us", "UTC"), [pa.timestamp("us", "UTC")]),
    (["a", "", "ä", None], pa.string(), [pa.large_string(), pa.dictionary(pa.int32(), pa.string())]),
]


def fits(values: list[Any], kind: pa.DataType) -> list[Any]:
    def one(value: Any) -> bool:
        try:
            pa.array([value], kind)
        except (pa.ArrowInvalid, OverflowError):
            return False
        return True

    return [value for value in values if one(value)]


@pytest.mark.parametrize(("values", "common", "others"), SAME)
def test_keys_that_spark_compares_as_equal_are_dealt_to_the_same_cell(
    values: list[Any], common: pa.DataType, others: list[pa.DataType]
) -> None:
    for other in others:
        own = fits(values, other)
        columns = [pa.table({"k": pa.array(own, kind).cast(common)}) for kind in (common, other)]
        grid = Grid((Dimension("k", (str(common),), 13),))
        for router in (HashRouter(("k",), 13), GridRouter(grid, (("k",),))):
            assert router.deal(columns[0]).tolist() == router.deal(columns[1]).tolist()


def test_all_integer_types_agree_without_conversion() -> None:
    values = [0, 1, 100, None]
    router = HashRouter(("k",), 1_000)
    dealt = [
        router.deal(pa.table({"k": pa.array(values, kind)})).tolist()
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    ]
    assert all(one == other for one, other in pairwise(dealt))


def test_zeros_and_nans_are_one_each() -> None:
    odd_nan = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
    table = pa.table({"k": pa.array([0.0, -0.0, math.nan, float(odd_nan)])})
    first, second, third, fourth = HashRouter(("k",), 1 << 20).deal(table).tolist()
    assert (first, third) == (second, fourth)


def test_a_dimension_refuses_keys_of_another_type() -> None:
    router = GridRouter(Grid((Dimension("airport", ("int64",), 4),)), (("origin",),))
    with pytest.raises(TypeMismatchError, match=r"airport: columns origin are int32, .* by int64"):
        router.deal(pa.table({"origin": pa.array([1], pa.int32())}))


def test_windows_shards_are_dealt_as_they_were() -> None:
    table = pa.table({"a": pa.array([1, None, 1, 5]), "b": pa.array(["x", "y", None, "x"])})
    expected = (key_hashes(table, ["a", "b"]) % np.uint64(7)).tolist()
    assert HashRouter(("a", "b"), 7).deal(table).tolist() == expected
    assert HashRouter((), 7).deal(table).tolist() == [0] * 4
    assert HashRouter((), 7).parts == 1


#: which of the dimensions each input has
inputs = st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=2, max_size=4)
keys = st.one_of(st.none(), st.integers(0, 6))


@given(
    shares=st.lists(st.integers(1, 4), min_size=3, max_size=3),
    held=inputs,
    rows=st.lists(st.lists(keys, min_size=3, max_size=3), min_size=4, max_size=4),
)
def test_rows_that_agree_meet_and_one_cell_says_so(
    shares: list[int], held: list[list[bool]], rows: list[list[int | None]]
) -> None:
    grid = Grid(tuple(Dimension(f"d{n}", ("int64",), share) for n, share in enumerate(shares)))
    routers = [
        GridRouter(grid, tuple((f"d{n}",) if has else () for n, has in enumerate(own))) for own in held
    ]
    cells = []
    for router, own in zip(routers, rows, strict=False):
        row = pa.table({f"d{n}": pa.array([value], pa.int64()) for n, value in enumerate(own)})
        (part,) = router.deal(row).tolist()
        assert 0 <= part < router.parts
        cells.append(set(router.cells_of(part)))
    for one, other in product(range(len(routers)), repeat=2):
        shared = [n for n in range(3) if held[one][n] and held[other][n]]
        if one == other or any(rows[one][n] is None or rows[one][n] != rows[other][n] for n in shared):
            continue
        meeting = cells[one] & cells[other]
        pair = [routers[one], routers[other]]
        assert [grid.is_responsible(cell, pair) for cell in meeting].count(True) == 1
    for router, own in zip(routers, cells, strict=True):
        # the place of a row without partner, as an outer join needs it
        assert [grid.is_responsible(cell, [router]) for cell in own].count(True) == 1


@given(shares=st.lists(st.integers(1, 4), min_size=1, max_size=4), has=st.lists(st.booleans(), min_size=4))
def test_parts_cover_every_cell_once(shares: list[int], has: list[bool]) -> None:
    grid = Grid(tuple(Dimension(f"d{n}", ("int64",), share) for n, share in enumerate(shares)))
    router = GridRouter(grid, tuple((f"d{n}",) if has[n] else () for n in range(len(shares))))
    covered = sorted(cell for part in range(router.parts) for cell in router.cells_of(part))
    assert covered == list(range(grid.cells))
    assert all(grid.cell(grid.point(cell)) == cell for cell in range(grid.cells))


def test_a_key_of_several_columns_with_a_null_lies_in_the_first_slice() -> None:
    grid = Grid((Dimension("k", ("int64", "string"), 64),))
    router = GridRouter(grid, (("a", "b"),))
    table = pa.table({"a": [1, 1, None, 2], "b": ["x", None, "x", "y"]})
    parts = router.deal(table).tolist()
    assert parts[1:3] == [0, 0]
    assert parts[0] != parts[3]


def test_keys_spread_evenly_and_dimensions_do_not_follow_each_other() -> None:
    numbers = np.arange(40_000)
    table = pa.table({"a": numbers, "b": numbers})
    grid = Grid((Dimension("a", ("int64",), 4), Dimension("b", ("int64",), 4)))
    counts = np.bincount(GridRouter(grid, (("a",), ("b",))).deal(table), minlength=16)
    assert counts.min() > 0.8 * 40_000 / 16
    assert counts.max() < 1.2 * 40_000 / 16


GRID = Grid((Dimension("airport", ("int64",), 3), Dimension("day", ("date32[day]", "string"), 2)))


@pytest.mark.parametrize(
    "router", [HashRouter(("a", "b"), 5), HashRouter((), 1), GridRouter(GRID, (("o",), ("d", "e")))]
)
def test_a_router_is_read_as_it_was_written(router: Router) -> None:
    assert router_of(json.loads(json.dumps(router.document()))) == router


def test_what_is_no_router_is_refused() -> None:
    with pytest.raises(ValueError, match="no router"):
        router_of({"kind": "range", "keys": []})
