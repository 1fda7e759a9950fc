"""Where a window view begins in a stream that had batches before: what it cannot have seen, and what it answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.settings import Settings
from penstock.spark.bindings import FROM_THE_START, Beginning, WindowDefinition
from penstock.spark.envelope_log import EnvelopeLog
from penstock.spark.history import FIRST_REVISION
from penstock.spark.layout import Layout
from penstock.spark.past import read_offset
from penstock.spark.publish import read_manifests, results_of, view_kind
from penstock.spark.result_views import FINAL, REVISION, ROW, earlier_operators, whole_operators
from penstock.sql.script import parse_query

#: microseconds, a time before all others and one after them
BEFORE_ALL, AFTER_ALL = -(2**62), 2**62


@dataclass(frozen=True)
class _Before:
    """What was published before a batch, read when it is asked for.

    Attributes:
        layout: output and checkpoint folders.
        stream: the stream's name.
        batch: the batch.
    """

    layout: Layout
    stream: str
    batch: int

    @cached_property
    def figures(self) -> list[dict[str, Any]]:
        """What the manifests say of the batches before, in order."""
        manifests = read_manifests(self.layout, self.stream)
        every = (figures for manifest in manifests for figures in manifest["batches"])
        return [figures for figures in every if figures["batch"] < self.batch]

    @cached_property
    def results(self) -> list[dict[str, Any]]:
        """The manifests of the window views' results, in order."""
        return list(read_manifests(self.layout, results_of(self.stream)))


class Beginnings:
    """Says of the views of one stream where they begin.

    Args:
        layout: output and checkpoint folders.
        stream: the stream's name.
        settings: frozen settings.
    """

    def __init__(self, layout: Layout, stream: str, settings: Settings) -> None:
        self._layout = layout
        self._stream = stream
        self._ahead = settings.max_clock_ahead_seconds

    def __call__(self, batch: int) -> Callable[[WindowDefinition], Beginning]:
        """Gives where new views begin; what was published before is read once for all of them.

        Args:
            batch: the first one they are answered by; all before are published.
        """
        return partial(self._where, _Before(self._layout, self._stream, batch))

    def _where(self, before: _Before, definition: WindowDefinition) -> Beginning:
        batch, figures = before.batch, before.figures
        newest = self._largest("newest", figures)
        known = (newest, self._largest("furthest", figures))
        furthest = max((each for each in known if each is not None), default=None)
        if furthest is None:
            return FROM_THE_START
        offset = read_offset(self._layout.spark(self._stream), batch - 1)
        if parse_query(definition.sql).hints.backfill:
            return Beginning(batch, furthest, BEFORE_ALL, offset)
        over = BEFORE_ALL if newest is None else min(newest, self._left_off(definition, before))
        return Beginning(batch, furthest, over, offset)

    def _largest(self, which: str, batches: Sequence[Mapping[str, Any]]) -> int | None:
        """Largest event time of some batches, of those believed or of all; None where there is none."""
        newest: int | None = None
        for figures in batches:
            if not figures["tuples"]:
                continue
            found = figures.get(f"{which}_event_time_us")
            if found is None and "null_event_times" not in figures:
                # the stream had no event time then: as late as any tuple can have been believed
                found = int((time.time() + self._ahead) * 1e6)
            if found is not None:
                newest = found if newest is None else max(newest, found)
        return newest

    def _left_off(self, definition: WindowDefinition, before: _Before) -> int:
        """Up to where the view was answered for good when it was there before, and nothing has come since.

        The last window that was final then, or the oldest tuple that has come without the view; a time after all
        others where the view was never there.
        """
        earlier = earlier_operators(self._layout, self._stream, definition.name, definition.id)
        if not earlier:
            return AFTER_ALL
        operator, floor = earlier[-1]
        final = self._last_final(definition.name, operator, before.results)
        if final is None:
            final = BEFORE_ALL if floor is None else floor
        elif floor is not None and operator not in whole_operators(before.results):
            # windows behind its floor lacked tuples and were never final, though later ones were
            final = min(final, floor)
        return min(final, self._oldest_without(operator, before.figures))

    def _last_final(self, view: str, operator: int, manifests: Sequence[Mapping[str, Any]]) -> int | None:
        """End of the last window that an operator called final, microseconds."""
        kind = view_kind(operator, view)
        for manifest in reversed(manifests):
            ends: list[pa.ChunkedArray] = []
            for file in manifest["files"]:
                if file["kind"] == kind:
                    path = self._layout.results(view) / file["name"]
                    rows = pq.read_table(path, columns=[ROW, FINAL, REVISION])
                    rows = rows.filter(pc.field(FINAL) & (pc.field(REVISION) < FIRST_REVISION))
                    ends.append(pc.struct_field(rows.column(ROW), "end").cast(pa.int64()))
            last = pc.max(pa.chunked_array([chunk for each in ends for chunk in each.chunks], pa.int64()))
            if last.is_valid:
                return int(last.as_py())
        return None

    def _oldest_without(self, operator: int, batches: Sequence[Mapping[str, Any]]) -> int:
        """Smallest event time of the batches since the last one that an operator took part in."""
        log = EnvelopeLog(self._layout, self._stream)
        answered: dict[int, bool] = {}
        oldest = AFTER_ALL
        for figures in reversed(batches):
            plan = figures["plan"]
            if plan not in answered:
                program = log.program(plan)
                answered[plan] = program is not None and operator in {each.id for each in program.operators}
            if answered[plan]:
                break
            if figures["oldest_event_time_us"] is not None:
                oldest = min(oldest, figures["oldest_event_time_us"])
        return oldest
