"""The console sink prints every row, whatever its moments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.sinks import _console


def test_rows_with_moments_of_any_year_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    moments = pa.array([-(2**63), 0, None], pa.int64()).cast(pa.timestamp("us", "UTC"))
    window = pa.StructArray.from_arrays([moments, moments], ["start", "end"])
    rows = pa.table({"id": [1, 2, 3], "at": moments, "w": window})
    given: Any = SimpleNamespace(drop=lambda *_: SimpleNamespace(toArrow=lambda: rows))
    _console("shown")(given, 7)
    least, epoch = -(2**63), "1970-01-01 00:00:00.000000Z"
    assert capsys.readouterr().out.splitlines() == [
        f"shown 7: {{'id': {number}, 'at': {at!r}, 'w': {{'start': {at!r}, 'end': {at!r}}}}}"
        for number, at in ((1, least), (2, epoch), (3, None))
    ]
