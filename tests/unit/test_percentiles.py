"""Exact percentiles between two values have the digits that Spark gives them."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.windows.of_values import from_values
from penstock.plan.windows import Aggregate


@pytest.mark.parametrize(
    ("low", "high", "fraction", "by_spark"),
    [
        (0.1, 24.9, 0.9, 22.419999999999998),
        (0.1, 83.1, 0.3, 25.0),
        (0.7, 24.9, 0.3, 7.96),
        (0.7, 100.3, 0.1, 10.66),
        (19.9, 100.3, 0.1, 27.939999999999998),
        (19.9, 100.3, 0.9, 92.26000000000002),
        (1.0, math.inf, 0.3, math.inf),
        (-math.inf, 1.0, 0.3, math.nan),
    ],
)
def test_between_two_values_it_has_the_digits_of_spark(
    low: float, high: float, fraction: float, by_spark: float
) -> None:
    aggregate = Aggregate("percentile", None, pa.float64(), parameter=fraction)
    values, once = pa.chunked_array([[low, high]]), np.ones(2, np.int64)
    found = from_values(aggregate, values, once, np.zeros(2, np.int64), 1)[0].as_py()
    assert found == by_spark or (math.isnan(found) and math.isnan(by_spark))
