"""Records of static tables that do not fit: a file a version, the newest ones."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.operators.ingest.malformed import RecordForm
from penstock.spark.lanes.joins.static_aside import HAS_VALUE, keep_aside
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import by_time
from penstock.spark.tasks.dataframe_stage import CORRUPT, ORIGIN, REASON

SCHEMA = pa.schema({"cust": pa.string(), "tier": pa.int32()})
FORM = RecordForm.of("csv", SCHEMA.names, {})


def aside(*records: bytes, reason: str = "malformed csv record") -> pa.Table:
    return pa.table(
        {
            CORRUPT: pa.array(records, pa.binary()),
            REASON: pa.array([reason] * len(records), pa.string()),
            ORIGIN: pa.array(["custs.csv"] * len(records), pa.string()),
            HAS_VALUE.format(0): pa.array([True] * len(records)),
            HAS_VALUE.format(1): pa.array([False] * len(records)),
        }
    )


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.of(tmp_path, None)


def test_they_are_counted_by_reason_and_kept_once_a_version(layout: Layout) -> None:
    both = pa.concat_tables([aside(b"D,oops", b"E,7,8"), aside(b"F,\xff", reason="not UTF-8")])
    for _ in range(2):
        assert keep_aside(layout, "custs", "v", both, SCHEMA, FORM) == {
            "malformed csv record: tier is no INT": 1,
            "malformed csv record: 3 fields, 2 columns": 1,
            "not UTF-8": 1,
        }
    (file,) = layout.quarantine("custs").iterdir()
    rows = pq.ParquetFile(file).read()
    assert rows.column_names == ["record", "origin", "reason"]
    assert rows.column("record").to_pylist() == [b"D,oops", b"E,7,8", b"F,\xff"]


def test_versions_where_all_fits_leave_nothing(layout: Layout) -> None:
    assert keep_aside(layout, "custs", "v", aside(), SCHEMA, FORM) == {}
    assert not layout.quarantine("custs").exists()


def test_the_newest_versions_stay(layout: Layout) -> None:
    for number in range(12):
        keep_aside(layout, "custs", str(number), aside(b"D,oops"), SCHEMA, FORM)
        os.utime(layout.quarantine("custs") / f"{number}.parquet", ns=(number, number))
    keep_aside(layout, "custs", "12", aside(b"D,oops"), SCHEMA, FORM)
    assert [each.stem for each in by_time(layout.quarantine("custs"), "*.parquet")] == [
        str(number) for number in range(12, 2, -1)
    ]
