"""Staged results of window views: each view's file holds its own rows, whatever is written together."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.operators.windows.answers import Answer
from penstock.operators.windows.rows import OVERFLOWED
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.results import window_staging
from penstock.spark.results.window_staging import ResultStage
from penstock.sql.windows.bind import BoundOutput, BoundWindow

VIEWS = 45
MOMENT = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", MOMENT), ("end", MOMENT)])


def view(name: str, having: str | None = None) -> BoundWindow:
    aggregates = (Aggregate("count", None, pa.int64()),)
    plan = WindowPlan(
        name, "ts", Windows(10, 5), (("key", pa.int64()),), aggregates, ErrorBound(0.05, 0.05), 0
    )
    outputs = (BoundOutput("_k0", "key", pa.int64()), BoundOutput("_a0", "n", pa.int64()))
    return BoundWindow(plan, (), None, WINDOW, outputs, having)


def answer(name: str, end: int, counts: list[int], lost: int) -> Answer:
    rows = pa.table(
        {
            "key": range(len(counts)),
            "_a0": pa.array(counts, pa.int64()),
            OVERFLOWED: [number < lost for number in range(len(counts))],
        }
    )
    return Answer(name, end - 10, end, 0, True, 3, 1.0, False, rows, rows.slice(0, 0))


@pytest.mark.parametrize("worth_more", [1 << 20, 600])
def test_each_file_holds_the_rows_of_its_view(tmp_path: Path, worth_more: int) -> None:
    views = {f"v{number}": view(f"v{number}") for number in range(VIEWS)}
    stage = ResultStage(None, tmp_path, 1, lambda operator: views)  # noqa: ARG005
    for number in range(VIEWS):
        for end in (10, 15):
            stage.add(7, answer(f"v{number}", end, [number, end] + [1] * (number % 5), number % 3))
    stage.add(7, answer("v0", 20, [], 0))
    with (
        mock.patch.object(window_staging, "_WORTH_MORE", worth_more),
        mock.patch.object(window_staging, "_ROWS_AT_A_TIME", 60),
    ):
        staged = stage.close()
    assert [each.view for each in staged] == list(views)
    for number, each in enumerate(staged):
        rows = 2 * (2 + number % 5)
        (left,) = each.left
        table = pq.read_table(left.path)
        assert table.column("n").to_pylist() == [
            count for end in (10, 15) for count in [number, end] + [1] * (number % 5)
        ]
        assert table.column("_row").combine_chunks().field("end").cast(pa.int64()).unique().to_pylist() == [
            10,
            15,
        ]
        assert (left.rows, each.said.rows, each.said.overflowed) == (rows, rows, 2 * (number % 3))
        assert (each.operator, each.shard, left.kind) == (7, 1, f"7/v{number}")


def test_groups_that_having_leaves_out_are_in_no_file(tmp_path: Path) -> None:
    views = {name: view(name, "_a0 > 10 AND _k0 <> 1") for name in ("some", "none", "all")}
    stage = ResultStage(None, tmp_path, 1, lambda operator: views)  # noqa: ARG005
    for name, counts in (("some", [11, 12, 10, 13]), ("none", [9, 11]), ("all", [20])):
        stage.add(7, answer(name, 10, counts, 0))
    staged = {each.view: each for each in stage.close()}
    found = {
        name: [pq.read_table(left.path).column("n").to_pylist() for left in each.left]
        for name, each in staged.items()
    }
    assert found == {"some": [[11, 13]], "none": [], "all": [[20]]}
    assert {name: each.said.rows for name, each in staged.items()} == {"some": 2, "none": 0, "all": 1}
    assert not any(each.raw for each in staged.values())
    assert all(each.said.early for each in staged.values()), "a window without rows is answered too"
