"""The newest rows of published files, without those of older row groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.results.published_rows import newest_rows_of


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
