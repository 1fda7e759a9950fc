"""Rows of a view are read from any place on, in either order, and nothing far from it is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock.spark.results.stored_rows import Ints, StoredRows
from penstock.spark.storage import columns

SCHEMA = pa.schema([("n", pa.int64())])
FILES = (7, 0, 30, 1, 12)


def _odd(batch: pa.RecordBatch) -> tuple[Ints, pa.RecordBatch]:
    places = pc.indices_nonzero(pc.equal(pc.bit_wise_and(batch.column("n"), 1), 1))
    return places.to_numpy().astype(np.int64), batch.take(places)


@pytest.fixture
def stored(tmp_path: Path) -> StoredRows:
    """The odd numbers of 0 to 49, in files of row groups of 4."""
    files, first = [], 0
    for number, rows in enumerate(FILES):
        path = tmp_path / f"{number}.parquet"
        table = pa.table({"n": np.arange(first, first + rows)}, SCHEMA)
        pq.write_table(table, path, row_group_size=4, write_page_checksum=True)
        files.append((path, rows))
        first += rows
    return StoredRows(SCHEMA, files, SCHEMA, _odd)


@pytest.mark.parametrize("newest_first", [False, True])
def test_rows_follow_each_other_from_any_place_on(stored: StoredRows, newest_first: bool) -> None:
    assert stored.count == 50
    for begin in range(51):
        found, numbers, end = [], [], begin
        for part in stored.parts(begin, newest_first=newest_first):
            assert (part.end < end) if newest_first else (part.end > end)
            end = part.end
            found += part.rows.column("n").to_pylist()
            numbers += part.numbers.tolist()
        numbered = range(begin - 1, -1, -1) if newest_first else range(begin, 50)
        assert found == numbers == [each for each in numbered if each % 2]
        assert end == (0 if newest_first else 50)


def test_row_groups_before_a_place_are_not_read(stored: StoredRows, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, int]] = []
    inner = columns.batches_of

    def batches_of(path: Path, names: list[str], groups: list[int]) -> object:
        read.append((path.stem, *groups))
        return inner(path, names, groups)

    monkeypatch.setattr(columns, "batches_of", batches_of)
    next(stored.parts(30))
    next(stored.parts(30, newest_first=True))
    # 30 is the 24th row of the third file
    assert read == [("2", 5), ("2", 5)]


@pytest.mark.parametrize("newest_first", [False, True])
def test_before_the_first_batch_nothing_is_stored(newest_first: bool) -> None:
    stored = StoredRows(SCHEMA, [], SCHEMA, _odd)
    assert (stored.count, list(stored.parts(newest_first=newest_first))) == (0, [])
