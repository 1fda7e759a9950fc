"""The stored state of window views: what was packed is unpacked, and lies as Arrow computes on it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.operators.windows.stored import packed, unpacked


@pytest.mark.parametrize("length", range(1, 9))
def test_unpacked_tables_lie_at_multiples_of_eight_bytes(length: int) -> None:
    tables = {"": pa.table({"k": [1, 2], "v": [0.5, None]}), "n" * length: pa.table({"s": ["a", "bc"]})}
    found = unpacked(packed(tables, {"stamp": "x" * length}, b"rest"))
    assert found.tables == tables
    assert (found.header, found.rest) == ({"stamp": "x" * length}, b"rest")
    buffers = [
        buffer
        for table in found.tables.values()
        for column in table.columns
        for chunk in column.chunks
        for buffer in chunk.buffers()
        if buffer is not None
    ]
    assert buffers
    assert [buffer.address % 8 for buffer in buffers] == [0] * len(buffers)
