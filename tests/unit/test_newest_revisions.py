"""The newest rows of published files, and which revisions count where several operators have answered a view."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.publish import Publisher
from penstock.spark.results.bound_views import store_views
from penstock.spark.results.published_rows import all_rows, newest_rows_of
from penstock.spark.results.revisions import OPERATOR, newest_rows, parts_of, standing_rows
from penstock.spark.results.window_schemas import require_readable, result_schema
from penstock.spark.storage.bindings import Beginning, RegisteredWindow, WindowDefinition
from penstock.spark.storage.layout import Layout
from penstock.sql.windows.bind import BoundOutput, BoundWindow
from publishing import stored

MOMENT = pa.timestamp("us", "UTC")
DEFINITION = WindowDefinition("v", "of v", "")
VIEW = BoundWindow(
    WindowPlan("v", "at", Windows(10, 10), (), (Aggregate("sum", "x", pa.float64()),), ErrorBound(0.1, 0.1)),
    (),
    None,
    pa.struct({"start": MOMENT, "end": MOMENT}),
    (BoundOutput("_a0", "n", pa.float64()),),
    None,
)


@pytest.mark.parametrize(
    ("most", "expected", "is_whole"),
    [
        (3, [15, 16, 17], False),
        (8, [*range(10, 18)], False),
        (18, [*range(18)], True),
        (99, [*range(18)], True),
    ],
)
def test_the_last_rows_of_files_are_read_in_order(
    tmp_path: Path, most: int, expected: list[int], is_whole: bool
) -> None:
    files = [tmp_path / f"{number}.parquet" for number in range(3)]
    for number, file in enumerate(files):
        pq.write_table(pa.table({"n": np.arange(6) + 6 * number}), file, row_group_size=2)
    if not is_whole:
        # older files are not even opened
        files[0].write_bytes(b"")
    found = newest_rows_of(files, pa.schema([("n", pa.int64())]), most)
    assert (found[0].column("n").to_pylist(), found[1]) == (expected, is_whole)


def test_of_a_view_that_came_back_final_rows_of_before_count_until_it_is_whole(tmp_path: Path) -> None:
    """The operator of before leaves its windows up to the floor, and its final ones until the next operator's are final."""
    layout = Layout.of(tmp_path / "out", tmp_path / "kept")
    layout.open()
    for operator, floor in ((0, None), (1, 20)):
        beginning = Beginning(operator, None, floor, None)
        registered = RegisteredWindow(DEFINITION, operator, beginning=beginning)
        store_views(layout, "rides", operator, [VIEW], {"v": registered})
    publisher = Publisher(layout, results_of("rides"), ())
    before = [(10, 0, True, 1.0), (20, 0, True, 2.0), (30, 0, True, 3.0), (40, 0, False, 4.0)]
    after = [(30, 0, False, 30.0), (40, 0, False, 40.0), (50, 0, False, 50.0), (50, 1, False, 51.0)]
    published = (before, []), (after, []), ([], [1])
    for batch, (rows, whole) in enumerate(published):
        operator = batch if rows else 1
        made = [stored(layout, results_of("rides"), batch, f"{operator}/v", _rows(rows), job=operator)]
        publisher.publish(batch, made if rows else [], {"batch": batch, "views": {}, "whole": whole})
        if batch:
            readable = require_readable(layout, "rides", "v", DEFINITION.id)
            parts = parts_of(layout, "rides", "v", readable)
            schema = arrow_schema(readable.schema)
            found = pa.concat_tables([part.own(all_rows(part.files, schema)) for part in parts[::-1]])
            standing = standing_rows(found)
            n = standing.column("n").to_pylist()
            assert [part.until for part in parts] == ([None, 20] if batch == 2 else [None, None])
            assert sorted(n) == ([1.0, 2.0, 30.0, 40.0, 51.0] if batch == 2 else [1.0, 2.0, 3.0, 40.0, 51.0])


@pytest.mark.parametrize("seed", range(8))
def test_the_newest_revision_of_each_row_counts_in_the_order_of_the_table(seed: int) -> None:
    """Windows that were told once, windows that were told again, and withdrawals, among rows of two operators."""
    rng = np.random.default_rng(seed)
    told = {
        (int(end), int(revision), bool(final), int(operator))
        for end, revision, final, operator in zip(
            rng.integers(1, 9, 12) * 10,
            rng.integers(0, 2, 12),
            rng.integers(0, 2, 12),
            rng.integers(0, 2, 12),
            strict=True,
        )
    }
    rows = [
        {
            "n": float(rng.integers(100)),
            "revision": revision,
            "is_final": final,
            "op": str(rng.choice(["upsert", "upsert", "delete"])),
            "_row": {"start": end - 10, "end": end, "k0": key},
            OPERATOR: operator,
        }
        for end, revision, final, operator in told
        for key in range(3)
        if rng.random() < 0.8
    ]
    newest: dict[tuple[object, ...], tuple[bool, int, int, int]] = {}
    for place, row in enumerate(rows):
        order = row["is_final"], row[OPERATOR], row["revision"], place
        of = tuple(row["_row"].values())
        newest[of] = max(newest.get(of, order), order)
    key = pa.field("_row", pa.struct([("start", MOMENT), ("end", MOMENT), ("k0", pa.int64())]))
    schema = result_schema(VIEW)
    schema = schema.set(schema.get_field_index("_row"), key).append(pa.field(OPERATOR, pa.int64()))
    found = newest_rows(pa.Table.from_pylist(rows, schema)).select(["n", "op", "_row"])
    places = sorted(place for *_, place in newest.values())
    assert found.equals(
        pa.Table.from_pylist([rows[place] for place in places], schema).select(found.column_names)
    )


def _rows(told: Sequence[tuple[int, int, bool, float]]) -> pa.Table:
    """Rows of windows by end, revision, whether they are final, and value."""
    rows = [
        {
            "n": n,
            "revision": revision,
            "is_final": final,
            "op": "upsert",
            "_row": {"start": end - 10, "end": end},
        }
        for end, revision, final, n in told
    ]
    return pa.Table.from_pylist(rows, result_schema(VIEW))
