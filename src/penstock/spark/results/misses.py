"""The windows of views with a deadline that were not released in time, as they are published."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import UnknownNameError
from penstock.spark.publication.kinds import misses_kind, results_of
from penstock.spark.publication.manifests import published_paths
from penstock.spark.reporting.catalog import find_view
from penstock.spark.storage.deadlines import DEADLINES_NAME
from penstock.spark.storage.layout import Layout

_MOMENT = pa.timestamp("us", "UTC")
#: `seconds`: what was worked on it by then; NULL where it was not begun
MISSES = pa.schema(
    [
        ("window", pa.struct([("start", _MOMENT), ("end", _MOMENT)])),
        ("created", _MOMENT),
        ("deadline", _MOMENT),
        ("outcome", pa.string()),
        ("predicted_seconds", pa.float64()),
        ("seconds", pa.float64()),
        ("reason", pa.string()),
    ]
)


def missed_paths(layout: Layout, view: str) -> list[Path]:
    """The files that tell of them.

    Raises:
        InputError: the folder is none of Penstock's.
        UnknownNameError: there is no such view, or it has no deadline.
    """
    name, definition = find_view(layout, view)
    if definition.get("stream") != DEADLINES_NAME:
        raise UnknownNameError(f"{name} has no deadline, so no window of it is missed")
    return list(published_paths(layout, results_of(DEADLINES_NAME), misses_kind(name)))


def missed_windows(layout: Layout, view: str) -> pa.Table:
    """All of them, with the columns of MISSES; raises what `missed_paths` raises."""
    return pa.concat_tables(
        [
            MISSES.empty_table(),
            *(pq.ParquetFile(path).read().cast(MISSES) for path in missed_paths(layout, view)),
        ]
    )
