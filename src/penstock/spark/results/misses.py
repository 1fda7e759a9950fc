"""The windows of views with a deadline that were not released in time, as they are published."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import UnknownNameError
from penstock.spark.publication.kinds import misses_kind, results_of
from penstock.spark.publication.manifests import published_paths
from penstock.spark.reporting.catalog import find_view
from penstock.spark.results.published_rows import all_rows
from penstock.spark.storage.deadlines import DEADLINES_NAME
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import StorePath

_MOMENT = pa.timestamp("us", "UTC")
#: outcome of a row that tells that a window which was missed has been answered since; readers put that beside the window
LATE = "late"
#: `arrived`: when the tuple arrived that closed it, by what `arrived_by` says; `noticed`: when Penstock knew;
#: `slack`: seconds of event time from its end until it was created; `seconds`: what was worked on it by then; NULL where it was not begun;
#: `answered`: when its late answer was published
MISSES = pa.schema(
    [
        ("window", pa.struct([("start", _MOMENT), ("end", _MOMENT)])),
        ("arrived", _MOMENT),
        ("arrived_by", pa.string()),
        ("noticed", _MOMENT),
        ("deadline", _MOMENT),
        ("slack", pa.float64()),
        ("outcome", pa.string()),
        ("predicted_seconds", pa.float64()),
        ("seconds", pa.float64()),
        ("reason", pa.string()),
        ("answered", _MOMENT),
    ]
)


def missed_paths(layout: Layout, view: str) -> list[StorePath]:
    """The files that tell of them.

    Raises:
        InputError: the folder is none of Penstock's.
        UnknownNameError: there is no such view, or it has no deadline.
    """
    name, definition = find_view(layout, view)
    if definition.get("stream") != DEADLINES_NAME:
        raise UnknownNameError(f"{name} has no deadline and therefore no missed windows")
    return list(published_paths(layout, results_of(DEADLINES_NAME), misses_kind(name)))


def missed_windows(layout: Layout, view: str) -> pa.Table:
    """All of them, with the columns of MISSES; raises what `missed_paths` raises."""
    told = all_rows(missed_paths(layout, view), MISSES)
    is_late = pc.equal(told.column("outcome"), LATE)
    late, missed = told.filter(is_late), told.filter(pc.invert(is_late))
    answered = dict(zip(_windows(late), late.column("answered").cast(pa.int64()).to_pylist(), strict=True))
    moments = pa.array([answered.get(window) for window in _windows(missed)], pa.int64()).cast(_MOMENT)
    return missed.set_column(len(MISSES) - 1, MISSES.field("answered"), moments)


def _windows(told: pa.Table) -> list[tuple[int, int]]:
    """The windows of rows as microseconds."""
    window = told.column("window")
    starts, ends = (pc.struct_field(window, part).cast(pa.int64()).to_pylist() for part in ("start", "end"))
    return list(zip(starts, ends, strict=True))
