"""What benchmarks of latency have in common: files that come at a rate, and when what became of them happened."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

#: what comes before that, from the first file on, is not counted
WARM_SECONDS = 20.0


def due_files(
    every_seconds: float, seconds: float, begun: float | None = None
) -> Iterator[tuple[int, float]]:
    """The files that are due until the time is over, each when it is.

    Args:
        every_seconds: between two files.
        seconds: until when.
        begun: since when, seconds since the epoch; None: now.

    Yields:
        Its number, and until when its tuples were made, seconds since the epoch.
    """
    begun = time.time() if begun is None else begun
    for number in range(int(seconds / every_seconds)):
        due = begun + (number + 1) * every_seconds
        time.sleep(max(0.0, due - time.time()))
        yield number, due


def event_times(moments: npt.NDArray[np.float64]) -> pa.Array:
    """Moments in seconds since the epoch as TIMESTAMP."""
    return pa.array((moments * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC"))


def put_file(folder: Path, number: int, table: pa.Table) -> None:
    """Writes a file that is seen whole or not at all."""
    beside = folder / f".{number:06d}"
    pq.write_table(table, beside)
    beside.rename(folder / f"{number:06d}.parquet")


def moment(event: Mapping[str, Any]) -> float:
    """When an event was told, seconds since the epoch."""
    return datetime.fromisoformat(event["time"]).timestamp()


def begun(event: Mapping[str, Any], *parts: str) -> float:
    """When what an event tells of began: so many seconds before as its parts took."""
    return moment(event) - sum(event[f"{part}_seconds"] for part in parts)
