"""Some rows of a frame as plain values."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame

from penstock.spark.provenance.verdicts import number
from penstock.spark.results.read import rows_as_json


def some_rows(frame: DataFrame, most: int) -> tuple[dict[str, Any], ...]:
    """Some rows of a frame, with values as JSON has them.

    Args:
        frame: any.
        most: how many; 0: none.
    """
    if not most:
        return ()
    lines = rows_as_json(frame.limit(most)).collect()
    return tuple(json.loads(row.line, parse_float=number) for row in lines)
