"""The batch index as an operator: lays itself out by what it measures, then matches batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.assemble import assemble_rows
from penstock.kernels.index import CHUNK_ROWS, count_codes, gather, match_probes, match_slices, sort_by_code
from penstock.kernels.lanes import LANES
from penstock.operators.index_layout import CostModel, Frequencies, Layout, TermTable, build_layout
from penstock.operators.regions import CodedSelections

CodeMatrix = npt.NDArray[np.unsignedinteger[Any]]

#: batches between two looks at whether the layout still fits
REVIEW_BATCHES = 32
#: the layout is chosen anew when its estimated cost has changed by this factor
DRIFT_FACTOR = 1.25


class BatchIndex:
    """Matches batches of coded tuples against a selection set.

    Args:
        coded: the selections over region codes.
        dtype: type of the codes.
        accesses: accesses the layout may use besides the scan: "slice", "probe".
    """

    def __init__(
        self,
        coded: CodedSelections,
        dtype: type[np.uint16] | type[np.uint32],
        accesses: frozenset[str] = frozenset({"slice", "probe"}),
    ) -> None:
        self._terms = TermTable.build(coded)
        self._dtype = dtype
        self._accesses = accesses
        self._layout: Layout | None = None
        self._batches_to_review = 0
        self._identity = np.arange(CHUNK_ROWS).astype(np.uint16)
        self._order = np.empty(CHUNK_ROWS, np.uint16)
        self._columns = np.zeros((len(coded.codings), CHUNK_ROWS + LANES), dtype)
        self._starts = [np.empty(coding.codes + 2, np.int32) for coding in coded.codings]
        self._pairs = np.empty(1 << 12, np.uint64)

    @property
    def layout(self) -> Layout | None:
        """The layout in use; None before the first batch."""
        return self._layout

    def match(self, codes: CodeMatrix, rows: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """The queries each tuple satisfies.

        Args:
            codes: unsigned[n, at least rows + 64], region codes of the batch.
            rows: at most 65,536.

        Returns:
            offsets int64[rows + 1] and queries int32, as in `Matches`.
        """
        layout = self._fitting_layout(codes, rows)
        entries, predicates = layout.entries, self._terms.predicates
        pairs, count = self._pairs, 0
        if layout.scans:
            whole = np.array([0, rows], np.int32)
            pairs, count = match_slices(
                entries, 0, layout.scans, whole, self._identity, codes, codes, predicates, pairs, count
            )
        for attribute, bucket in layout.probes:
            pairs, count = match_probes(entries, bucket, attribute, rows, codes, predicates, pairs, count)
        for attribute, first, last, gathered in layout.slices:
            starts = self._starts[attribute]
            sort_by_code(codes[attribute, :rows], starts, self._order)
            for other in gathered:
                gather(codes[other], self._order, rows, self._columns[other])
            pairs, count = match_slices(
                entries, first, last, starts, self._order, self._columns, codes, predicates, pairs, count
            )
        self._pairs = pairs
        return assemble_rows(  # type: ignore[no-any-return]
            pairs, count, rows, self._terms.always, self._terms.repeats
        )

    def _fitting_layout(self, codes: CodeMatrix, rows: int) -> Layout:
        self._batches_to_review -= 1
        if self._layout is not None and self._batches_to_review > 0:
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
        access, cost = model.choose()
        self._layout = build_layout(self._terms, frequencies, self._dtype, access, cost)
        return self._layout
