"""What statistics of a row group say of an event time that is stored as numbers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.operators.coding.encode import ColumnEncoder
from penstock.operators.coding.regions import RegionCoding
from penstock.operators.ingest.event_times import MOMENT, EpochTimes
from penstock.operators.selection.pruning import CodeBounds
from penstock.plan.selection import Domain
from penstock.spark.tasks.parquet_files import RowGroup
from penstock.spark.tasks.scan_stage import _bounds


@pytest.mark.parametrize(
    ("values", "unit", "moments", "may_be_null"),
    [
        (pa.array([1, 3]), "seconds", [1_000_000, 3_000_000], False),
        (pa.array([1, None]), "seconds", [1_000_000] * 2, True),
        (pa.array([0, 4_000_000_000]), "nanos", [0, 4_000_000], False),
        # statistics leave NaN out, which is no moment
        (pa.array([1.0, float("nan")]), "seconds", [1_000_000] * 2, True),
    ],
)
def test_statistics_become_moments(
    tmp_path: Path, values: pa.Array, unit: str, moments: list[int], may_be_null: bool
) -> None:
    path = tmp_path / "1.parquet"
    pq.write_table(pa.table({"ts": values}), path)
    encoder = ColumnEncoder(RegionCoding("ts", MOMENT, Domain.INTEGER, (500_000, 3_500_000)))
    group = RowGroup(str(path), 0, len(values), None, times=EpochTimes("ts", unit))
    low, high = encoder.encode(pa.array(moments, MOMENT)).tolist()
    assert _bounds(group, pq.read_metadata(path).row_group(0), [encoder], ["ts"]) == [
        CodeBounds(low, high, may_be_null)
    ]


@pytest.mark.parametrize("value", [2**62, -(2**62)])
def test_of_numbers_that_are_no_moment_nothing_is_known(tmp_path: Path, value: int) -> None:
    path = tmp_path / "1.parquet"
    pq.write_table(pa.table({"ts": [0, value]}), path)
    encoder = ColumnEncoder(RegionCoding("ts", MOMENT, Domain.INTEGER, (500_000,)))
    group = RowGroup(str(path), 0, 2, None, times=EpochTimes("ts", "millis"))
    assert _bounds(group, pq.read_metadata(path).row_group(0), [encoder], ["ts"]) == [None]


def test_columns_that_are_none_of_the_stream_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    pq.write_table(pa.table({"__d0": [1, 2]}), path)
    encoder = ColumnEncoder(RegionCoding("__d0", pa.int64(), Domain.INTEGER, (500,)))
    group = RowGroup(str(path), 0, 2, None)
    row_group = pq.read_metadata(path).row_group(0)
    assert _bounds(group, row_group, [encoder], ["a"]) == [None]
    assert _bounds(group, row_group, [encoder], ["__d0"]) != [None]
