"""The map stage of an ingest batch: Arrow batches of tuples in, matched tuples out.

A pure function of the program and the batch; where the batch comes from (behind a DataFrame, in
the scan, decoded from Kafka) and where the matches go is the caller's business.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.derived import DerivedLayout
from penstock.operators.encode import ColumnEncoder
from penstock.operators.selection import SelectionPlan, Selector
from penstock.plan.arrangement import Arrangement
from penstock.settings import Settings

#: the column of `matches/` that names the satisfied queries
QUERIES = "queries"


@dataclass(frozen=True, slots=True, eq=False)
class StreamProgram:
    """One compiled plan version of a stream, as shipped to the workers.

    Attributes:
        stream: name of the stream.
        version: number of the plan version; stage caches are keyed by it.
        plan: the compiled selections; `plan.names[:views]` are views, the rest error queries.
        views: number of views.
        columns: the tuple's own columns, in order.
        event_time: the event time column, or None.
        derived: how derived columns reach the worker, or None where there are none.
        arrangement: evaluation sequence for the ASC side, or None before anything was measured.
        settings: frozen settings.
    """

    stream: str
    version: int
    plan: SelectionPlan
    views: int
    columns: tuple[str, ...]
    event_time: str | None
    derived: DerivedLayout | None
    arrangement: Arrangement | None
    settings: Settings


@dataclass(slots=True, eq=False)
class StageCounts:
    """What a task counted; sums of two are the counts of both.

    Attributes:
        tuples, matched, pairs: tuples seen, tuples that satisfied a view, (tuple, view) pairs.
        skipped: tuples of row groups whose statistics ruled out every query, counted in `tuples` too.
        evaluations: ASC evaluations, over the `asc_tuples` that the ASC side answered.
        encode_ns, match_ns, write_ns: processor time by part.
        view_pairs: pairs a view (index in the plan), int64[views].
        view_errors: tuples a view lost to an expression that raised, int64[views].
        newest_event_time: largest event time, microseconds since the epoch, or None.
    """

    tuples: int = 0
    matched: int = 0
    pairs: int = 0
    skipped: int = 0
    evaluations: int = 0
    asc_tuples: int = 0
    encode_ns: int = 0
    match_ns: int = 0
    write_ns: int = 0
    view_pairs: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    view_errors: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    newest_event_time: int | None = None


class MapStage:
    """Matches batches against one program and keeps the counts of the task at hand."""

    def __init__(self, program: StreamProgram) -> None:
        self.program = program
        self._selector = Selector(program.plan, program.settings.strategy, program.arrangement)
        names = program.plan.names[: program.views]
        self._names = pa.array(names, pa.string())
        self._error_views = _error_views(names, program.plan.names[program.views :])
        self.begin()

    @property
    def encoders(self) -> list[ColumnEncoder]:
        """Turns values into region codes: one a p-attribute."""
        return self._selector.encoders

    def begin(self) -> None:
        """Starts a new task: counts and sample are empty again."""
        views = self.program.views
        self.counts = StageCounts(view_pairs=np.zeros(views, np.int64), view_errors=np.zeros(views, np.int64))
        self.sample: npt.NDArray[np.uint32] | None = None

    def match(self, attributes: list[pa.Array], rows: int) -> tuple[npt.NDArray[np.bool_], pa.Array]:
        """Which tuples of a batch satisfy a view, and which views.

        Args:
            attributes: one column a p-attribute, in the order of `plan.codings`.
            rows: tuples in the batch.

        Returns:
            bool[rows], and for the true ones the `queries` column: list of view names, ascending by
            index, dictionary-encoded.
        """
        matches = self._selector.match(attributes, rows)
        figures = self._selector.figures
        assert figures is not None, "figures of the batch just matched"
        offsets, queries = matches.offsets, matches.queries
        counts = self.counts
        if len(matches.names) > self.program.views:
            offsets, queries = self._take_errors(offsets, queries)
        degrees = np.diff(offsets)
        mask = degrees > 0
        counts.tuples += rows
        counts.matched += int(np.count_nonzero(mask))
        counts.pairs += len(queries)
        counts.view_pairs += np.bincount(queries, minlength=self.program.views)
        counts.encode_ns += figures.encode_ns
        counts.match_ns += figures.match_ns
        if matches.evaluations is not None:
            counts.evaluations += matches.evaluations
            counts.asc_tuples += rows
        if self.sample is None and rows:
            self._take_sample(attributes, rows)
        list_offsets = np.zeros(int(np.count_nonzero(mask)) + 1, np.int32)
        np.cumsum(degrees[mask], out=list_offsets[1:])
        names = pa.DictionaryArray.from_arrays(pa.array(queries), self._names)
        return mask, pa.ListArray.from_arrays(pa.array(list_offsets), names)

    def observe_event_time(self, column: pa.Array) -> None:
        """Keeps the largest event time (a timestamp in microseconds)."""
        newest = pc.max(column).cast(pa.int64()).as_py()
        if newest is not None:
            seen = self.counts.newest_event_time
            self.counts.newest_event_time = newest if seen is None else max(seen, newest)

    def _take_sample(self, attributes: list[pa.Array], rows: int) -> None:
        wanted = self.program.settings.sample_tuples
        if not wanted or not attributes:
            return
        places = pa.array(np.arange(0, rows, max(1, -(-rows // wanted))))
        codes = self._selector.encode([column.take(places) for column in attributes], len(places))
        self.sample = np.stack(codes).astype(np.uint32)

    def _take_errors(
        self, offsets: npt.NDArray[np.int64], queries: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        errors = queries >= self.program.views
        if not errors.any():
            return offsets, queries
        failed = self._error_views[queries[errors] - self.program.views]
        np.add.at(self.counts.view_errors, failed, 1)
        before = np.concatenate(([0], np.cumsum(~errors)))
        return before[offsets], queries[~errors]


def _error_views(views: list[str], errors: list[str]) -> npt.NDArray[np.int64]:
    index = {name: number for number, name in enumerate(views)}
    return np.asarray([index[name] for name in errors], np.int64)
