"""The public matcher: what goes in and comes out, and that it needs no Spark."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from penstock import Matcher
from penstock.errors import InputError

SCHEMA = pa.schema({"distance": pa.int32(), "carrier": pa.string(), "seen": pa.timestamp("ns")})


def test_matches_row_by_row() -> None:
    matcher = Matcher(
        {"far": "distance > 2000", "ua": "carrier LIKE 'U%'", "all": "TRUE", "late": "seen > '1970-01-01'"},
        SCHEMA,
    )
    table = pa.table(
        {
            "carrier": pa.array(["UA", None, "B6"]).dictionary_encode(),
            "seen": pa.array([1, 0, None], pa.timestamp("ns")),
            "distance": pa.array([2500, None, 2001], pa.int64()),
        }
    )
    matches = matcher.match(table)
    assert matches.names == ["far", "ua", "all", "late"]
    rows = [
        matches.queries[start:end].tolist()
        for start, end in zip(matches.offsets, matches.offsets[1:], strict=False)
    ]
    assert rows == [[0, 1, 2, 3], [2], [0, 2]]


def test_a_batch_that_does_not_fit_is_refused() -> None:
    matcher = Matcher({"far": "distance > 2000"}, SCHEMA)
    with pytest.raises(InputError, match="no column distance"):
        matcher.match(pa.table({"carrier": ["UA"]}))
    with pytest.raises(InputError, match="does not fit"):
        matcher.match(pa.table({"distance": ["UA"]}))


def test_no_spark_is_imported() -> None:
    code = "import sys, penstock; penstock.Matcher; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
