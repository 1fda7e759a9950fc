"""The batch index as an operator: lays itself out by what it measures, then matches batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.assemble import assemble_rows
from penstock.kernels.index import (
    CHUNK_ROWS,
    Found,
    count_codes,
    gather,
    match_probes,
    match_slices,
    sort_by_code,
)
from penstock.kernels.lanes import LANES
from penstock.operators.coding.regions import CodedSelections
from penstock.operators.selection.index_layout import CostModel, Frequencies, Layout, TermTable, build_layout

CodeMatrix = npt.NDArray[np.unsignedinteger[Any]]

#: batches between two looks at whether the layout still fits
REVIEW_BATCHES = 32
#: the layout is chosen anew when its estimated cost has changed by this factor
DRIFT_FACTOR = 1.25
#: rows scanned at a time, so that the bins of every attribute stay in cache
SCAN_ROWS = 1 << 14
#: what `Found.rows` may hold for a batch of more than one row, some 16 to 32 million matches; beyond it the
#: caller takes fewer rows. Bounds the scratch space, and keeps places within 32 bits
MOST_FOUND = 1 << 25
#: bytes of scratch space that are kept from batch to batch: four times what the last one needed, within these
KEPT_BYTES = (1 << 23, 1 << 27)


_NO_LIMIT = 2**62


class BatchIndex:
    """Matches batches of coded tuples against a selection set.

    Args:
        coded: the selections over region codes.
        accesses: accesses the layout may use besides the scan: "slice", "probe".
    """

    def __init__(
        self,
        coded: CodedSelections,
        accesses: frozenset[str] = frozenset({"slice", "probe"}),
    ) -> None:
        self._terms = TermTable.build(coded)
        self._accesses = accesses
        self._query_bits = int(self._terms.query.max(initial=0)).bit_length()
        self._layout: Layout | None = None
        self._batches_to_review = 0
        #: whether the layout was chosen in the last call of `match`, which then took longer
        self.laid_out_anew = False
        self._order_of_batch = np.arange(CHUNK_ROWS).astype(np.uint16)
        self._order = np.empty(CHUNK_ROWS, np.uint16)
        self._bins = _aligned_bytes(len(coded.codings), CHUNK_ROWS + LANES)
        self._columns = _aligned_bytes(len(coded.codings), CHUNK_ROWS + LANES)
        self._starts = [np.empty(coding.codes + 2, np.int32) for coding in coded.codings]
        self._found = Found.empty()
        self._spare = np.empty(0, np.uint64)

    @property
    def layout(self) -> Layout | None:
        """The layout in use; None before the first batch."""
        return self._layout

    def match(
        self, codes: CodeMatrix, rows: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]] | None:
        """The queries each tuple satisfies.

        Args:
            codes: unsigned[n, at least rows + 64], region codes of the batch.
            rows: at most 65,536.

        Returns:
            offsets int64[rows + 1] and queries int32, as in `Matches`; None where a batch of two or more
            rows has more matches than are answered at once.
        """
        always = self._terms.always
        most = MOST_FOUND if rows > 1 else _NO_LIMIT
        if rows * len(always) > most:
            return None
        layout = self._fitting_layout(codes, rows)
        entries, predicates = layout.entries, self._terms.predicates
        found = self._found
        found.used[:] = 0
        for attribute in layout.binned:
            gather(layout.bins[attribute], codes[attribute], rows, self._bins[attribute])
        for start in range(0, rows if layout.scans else 0, SCAN_ROWS):
            block = np.array([start, min(start + SCAN_ROWS, rows)], np.int32)
            found = match_slices(
                entries,
                0,
                layout.scans,
                block,
                self._order_of_batch,
                self._bins,
                codes,
                predicates,
                found,
                most,
            )
        for attribute, bucket in layout.probes:
            found = match_probes(
                entries, bucket, attribute, rows, codes, predicates, self._order, found, most
            )
        for attribute, first, last, gathered in layout.slices:
            starts = self._starts[attribute]
            sort_by_code(codes[attribute, :rows], starts, self._order)
            for other in gathered:
                gather(self._bins[other], self._order, rows, self._columns[other])
            found = match_slices(
                entries, first, last, starts, self._order, self._columns, codes, predicates, found, most
            )
        filled, runs = found.used.tolist()
        answer = None
        if filled <= most:
            if len(self._spare) < runs:
                self._spare = np.empty(len(found.runs), np.uint64)
            answer = assemble_rows(found, self._spare, rows, self._query_bits, always, self._terms.repeats)
        self._keep(found, 2 * filled + 16 * runs)
        return answer

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the scratch space that grows with the matches of a batch."""
        return self._found.rows.nbytes + self._found.runs.nbytes + self._spare.nbytes

    def _keep(self, found: Found, used: int) -> None:
        """Keeps the scratch space for the next batch, unless it is much more than this one needed."""
        self._found = found
        least, most = KEPT_BYTES
        if self.scratch_bytes > min(max(least, 4 * used), most):
            self._found, self._spare = Found.empty(), np.empty(0, np.uint64)

    def _fitting_layout(self, codes: CodeMatrix, rows: int) -> Layout:
        self._batches_to_review -= 1
        self.laid_out_anew = False
        if self._layout is not None and self._batches_to_review > 0 and rows <= 2 * self._layout.rows:
            return self._layout
        self._batches_to_review = REVIEW_BATCHES
        counts = []
        for attribute, known in enumerate(self._terms.codes):
            count = np.zeros(known, np.int64)
            count_codes(codes[attribute, :rows], count)
            counts.append(count)
        frequencies = Frequencies.measure(self._terms, counts, rows)
        model = CostModel(self._terms, frequencies, self._accesses)
        if self._layout is not None:
            change = model.cost_of(self._layout.access) / max(self._layout.cost_ns, 1.0)
            if 1 / DRIFT_FACTOR < change < DRIFT_FACTOR:
                return self._layout
        self.laid_out_anew = True
        access, cost = model.choose()
        self._layout = build_layout(self._terms, frequencies, access, cost)
        return self._layout


def _aligned_bytes(rows: int, columns: int) -> npt.NDArray[np.uint8]:
    """Zeros, uint8[rows, columns], beginning at a multiple of 64 bytes: a cache line, a vector."""
    memory = np.zeros(rows * columns + LANES, np.uint8)
    start = -memory.ctypes.data % LANES
    return memory[start : start + rows * columns].reshape(rows, columns)
