"""What orders of a lot share: views that ask for the same tuples and are due together read them once, and merge a window once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from penstock.operators.deadlines.instances import Extent, Tuples
from penstock.operators.deadlines.pane_partials import MergedWindow
from penstock.operators.deadlines.run_tuples import tuples_of
from penstock.operators.joins.tuples import RunSlice
from penstock.spark.log.run_files import FoundRuns

#: no more is held for later orders of the lot, bytes
_MOST = 32 << 20


def slices_of(runs: FoundRuns, after: int = -1) -> list[RunSlice]:
    """Opens runs.

    Args:
        runs: where they lie.
        after: tuples of entries behind this one are wanted.

    Raises:
        CheckpointError: a file is damaged, or missing.
    """
    return [RunSlice(each.run, each.after, each.until) for each in runs.open(after)]


class ReadTuples:
    """Reads tuples, and holds them for the orders behind; one task uses it.

    Attributes:
        merged: windows that orders have merged from partials of panes, for those behind.
    """

    def __init__(self) -> None:
        self.merged: dict[Hashable, MergedWindow] = {}
        self._held: dict[Hashable, Tuples] = {}
        self._bytes = 0

    def of(
        self, runs: FoundRuns, columns: Sequence[str], extents: Sequence[Extent], after: int = -1
    ) -> Tuples:
        """The tuples of some extents, see `tuples_of`; nobody changes them.

        Args:
            runs: where they lie.
            columns: those that are given.
            extents: of which instances.
            after: tuples of entries behind this one are wanted.

        Raises:
            CheckpointError: a file is damaged, or missing.
        """
        # not by the files: runs that were merged since hold the same tuples
        key = runs.log.name, runs.demand, runs.after, runs.until, after, tuple(columns), tuple(extents)
        if key in self._held:
            return self._held[key]
        slices = slices_of(runs, after)
        with runs.named():
            found = tuples_of(slices, columns, extents)
        size = found.columns.nbytes + found.times.nbytes + found.entries.nbytes
        if self._bytes + size <= _MOST:
            self._bytes += size
            self._held[key] = found
        return found
