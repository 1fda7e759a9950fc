"""Rows of stored Parquet files: what pyarrow has not got is not told as damage."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import DamagedError
from penstock.monitor.verification import Findings
from penstock.spark.storage.columns import named_errors


def test_what_pyarrow_cannot_read_is_left_to_spark(tmp_path: Path) -> None:
    path, found = tmp_path / "0.parquet", Findings(tmp_path, tmp_path)

    def read(error: Exception) -> None:
        with named_errors(path):
            raise error

    with pytest.raises(pa.ArrowNotImplementedError, match="nested"):
        read(pa.ArrowNotImplementedError("nested"))
    with pytest.raises(DamagedError, match="cannot be read: torn"):
        read(pa.ArrowInvalid("torn"))
    found.look(path, lambda: read(pa.ArrowNotImplementedError("no such codec")))
    assert [(each.path, each.fault) for each in found.faults] == [
        (str(path), "cannot be read: no such codec")
    ]
