"""Event times that only counts need: the footer of a Parquet file says them, and the column is not read."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.operators.ingest.outcomes import Outcomes
from penstock.operators.ingest.stage_counts import StageCounts
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.operators.selection.selector import compile_selections
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.value_sets import Interval, ValueSet
from penstock.settings import Settings
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.sources.source import BoundBatch
from penstock.spark.storage.layout import Layout
from penstock.spark.tasks.parquet_files import RowGroup, open_parquet, row_groups, stamp_of
from penstock.spark.tasks.scan_stage import run_row_groups
from penstock.spark.tasks.worker import TaskReport

ROWS = 5_000
HOUR = 3_600_000_000
FIELDS = (
    "tuples",
    "matched",
    "oldest_event_time",
    "newest_event_time",
    "furthest_event_time",
    "oldest_recent_event_time",
)


def program(compared: str) -> StreamProgram:
    query = Query("v", (Term(((0, ValueSet((Interval(0, 40),))),)),))
    kind = pa.int64() if compared == "a" else pa.timestamp("us", "UTC")
    plan = compile_selections(SelectionSet((Attribute(compared, kind, f"`{compared}`"),), (query,)))
    outcomes = Outcomes.numbered(1)
    return StreamProgram("s", 0, plan, outcomes, ("a", "t"), "t", None, Settings(), stored=("a",))


def written(path: Path, times: pa.Array, *, told: bool = True) -> list[RowGroup]:
    """The row groups of a file; without `told` its footer says nothing."""
    values = np.random.default_rng(7).integers(0, 100, len(times))
    pq.write_table(
        pa.table({"a": values, "t": times}),
        path,
        write_statistics=told,
        compression="none",
        use_dictionary=False,
    )
    return row_groups(str(path), stamp_of(str(path)), open_parquet(str(path)).metadata)


def answered(
    folder: Path, groups: list[RowGroup], limit: int = 2**62, floor: int = -(2**62), compared: str = "a"
) -> TaskReport:
    layout = Layout.of(folder / "out", None)
    layout.open()
    own = program(compared)
    shipped: Any = SimpleNamespace(value=pickle.dumps(own))
    bound = BoundBatch(
        number=0,
        program=own,
        derived=(),
        key=(f"{folder}", 0),
        broadcast=shipped,
        sequence=None,
        store=BatchFiles.of(layout, "s", None, 0),
        time_limit=limit,
        time_floor=floor,
        kept_ahead=0,
        too_late_before=-(2**62),
        checkpoint=folder,
        pace=None,
    )
    return run_row_groups(bound.job(), 0, groups)


def damage(path: Path, column: str) -> None:
    """Overwrites the pages of a column."""
    group = pq.read_metadata(path).row_group(0)
    chunk = next(
        group.column(number)
        for number in range(group.num_columns)
        if group.column(number).path_in_schema == column
    )
    with path.open("r+b") as file:
        file.seek(chunk.data_page_offset)
        file.write(b"\xff" * chunk.total_compressed_size)


def told(counts: StageCounts) -> dict[str, int | None]:
    return {name: getattr(counts, name) for name in FIELDS}


@pytest.mark.parametrize("zone", ["UTC", None])
@pytest.mark.parametrize(
    ("limit", "floor"),
    [
        (2**62, -(2**62)),
        (9 * HOUR, -(2**62)),
        (2**62, 5 * HOUR),
        (9 * HOUR, 5 * HOUR),
        (-1, 0),
        (2**62, 20 * HOUR),
    ],
)
@pytest.mark.parametrize("nulls", [0, 17, ROWS])
def test_the_same_is_counted_by_the_footer(
    tmp_path: Path, zone: str | None, limit: int, floor: int, nulls: int
) -> None:
    draws = np.random.default_rng(3)
    numbers: list[int | None] = [int(each) for each in draws.integers(0, 10 * HOUR, ROWS)]
    numbers[:nulls] = [None] * nulls
    times = pa.array(numbers, pa.timestamp("us", zone))
    by_footer = answered(tmp_path / "one", written(tmp_path / "told.parquet", times), limit, floor)
    by_rows = answered(
        tmp_path / "two", written(tmp_path / "untold.parquet", times, told=False), limit, floor
    )
    assert told(by_footer.counts) == told(by_rows.counts)
    assert by_footer.counts.matched > 0


def test_what_is_not_needed_is_not_read(tmp_path: Path) -> None:
    times = pa.array(np.arange(ROWS) * HOUR).cast(pa.timestamp("us", "UTC"))
    groups = written(tmp_path / "a.parquet", times)
    damage(tmp_path / "a.parquet", "t")
    groups = row_groups(groups[0].path, stamp_of(groups[0].path), open_parquet(groups[0].path).metadata)
    report = answered(tmp_path, groups)
    assert (report.counts.tuples, report.counts.oldest_event_time) == (ROWS, 0)


def test_a_view_that_compares_event_times_reads_them(tmp_path: Path) -> None:
    times = pa.array(np.arange(ROWS)).cast(pa.timestamp("us", "UTC"))
    report = answered(tmp_path, written(tmp_path / "a.parquet", times), compared="t")
    assert (report.counts.matched, report.counts.newest_event_time) == (41, ROWS - 1)
