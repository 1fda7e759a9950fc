"""Aggregates over thousands of groups: partials merged are what pandas finds over the tuples."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from penstock.operators.windows.aggregates import Parts, lower
from penstock.plan.windows import Aggregate

_REAL = pa.float64()
AGGREGATES = {
    "stddev_samp": Aggregate("stddev_samp", "v", _REAL),
    "var_pop": Aggregate("var_pop", "v", _REAL),
    "avg": Aggregate("avg", "v", _REAL),
    "max": Aggregate("max", "v", _REAL),
    "distinct": Aggregate("approx_count_distinct", "v", pa.int64(), None, 0.01),
    "least": Aggregate("approx_percentile", "v", _REAL, 0.0, 1_000),
}
KEYS = ["pane", "k", "other"]


@pytest.mark.parametrize("pieces", [1, 20])
def test_partials_of_thousands_of_groups_stay_with_their_group(pieces: int) -> None:
    rng = np.random.default_rng(2)
    rows = 8_000
    frame = pd.DataFrame(
        {
            "pane": rng.integers(0, 20, rows),
            "k": rng.choice(["a", "b", "c"], rows),
            "other": rng.integers(0, 40, rows),
            "v": rng.normal(size=rows),
        }
    )
    tuples = pa.Table.from_pandas(frame)
    parts = Parts.of(AGGREGATES.values())
    step = rows // pieces
    partials = [parts.lift(tuples.slice(first, step), KEYS) for first in range(0, rows, step)]
    merged = parts.merge(pa.concat_tables(partials), KEYS)
    found = merged.select(KEYS).to_pandas()
    for name, aggregate in AGGREGATES.items():
        found[name] = lower(aggregate, merged, None, KEYS).to_pandas()
    values = frame.groupby(KEYS)["v"]
    expected = pd.DataFrame(
        {
            "stddev_samp": values.std(),
            "var_pop": values.var(ddof=0),
            "avg": values.mean(),
            "max": values.max(),
            "distinct": values.nunique(),
            "least": values.min(),
        }
    )
    assert len(expected) > 2_000
    pd.testing.assert_frame_equal(found.set_index(KEYS).sort_index(), expected.sort_index())
