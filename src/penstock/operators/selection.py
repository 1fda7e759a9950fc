"""Shared selection: every standing query answered for every tuple of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.index import CHUNK_ROWS
from penstock.kernels.lanes import LANES
from penstock.operators.batch_index import BatchIndex
from penstock.operators.encode import ColumnEncoder, code_type
from penstock.operators.matches import Matches
from penstock.operators.regions import CodedSelections, RegionCoding, code_selections
from penstock.plan.selection import SelectionSet

Strategy = Literal["auto", "index", "asc"]


@dataclass(frozen=True, slots=True, eq=False)
class SelectionPlan:
    """A selection set compiled for matching: immutable and picklable.

    Attributes:
        coded: the selections over region codes.
    """

    coded: CodedSelections

    @property
    def names(self) -> list[str]:
        """Query names."""
        return self.coded.names

    @property
    def codings(self) -> tuple[RegionCoding, ...]:
        """One region coding a p-attribute, in the order columns are handed over."""
        return self.coded.codings


def compile_selections(selections: SelectionSet) -> SelectionPlan:
    """Compiles a selection set, once, in the driver."""
    return SelectionPlan(code_selections(selections))


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """What matching one batch took.

    Attributes:
        strategy: "index", "asc", or "both" where parts of the batch were answered by either.
        tuples: rows of the batch.
        dropped: rows that satisfy no query.
        evaluations: ASC evaluations, None where the index answered.
        encode_ns: time spent turning columns into codes.
        match_ns: time spent matching codes.
    """

    strategy: str
    tuples: int
    dropped: int
    evaluations: int | None
    encode_ns: int
    match_ns: int


class Selector:
    """Matches batches against a plan. Holds scratch space: one a thread.

    Args:
        plan: the compiled selections.
        strategy: "index", "asc", or "auto" to choose by measured time.
    """

    def __init__(self, plan: SelectionPlan, strategy: Strategy = "auto") -> None:
        self.plan = plan
        self.strategy = strategy
        #: figures of the last batch, None before the first
        self.figures: BatchFigures | None = None
        dtype = code_type(plan.codings)
        self._encoders = [ColumnEncoder(coding, dtype) for coding in plan.codings]
        self._codes = np.zeros((len(plan.codings), CHUNK_ROWS + LANES), dtype)
        self._index = BatchIndex(plan.coded)

    def match(self, columns: Sequence[pa.Array | pa.ChunkedArray], rows: int) -> Matches:
        """The queries each tuple of a batch satisfies.

        Args:
            columns: the batch's p-attributes in the order of the plan's codings, `rows` values each.
            rows: number of tuples.

        Raises:
            TypeError: a column's type does not fit its coding.
        """
        encode_ns = match_ns = 0
        parts = []
        chunks = max(1, -(-rows // CHUNK_ROWS))
        bounds = [rows * number // chunks for number in range(chunks + 1)]
        for start, end in zip(bounds, bounds[1:], strict=False):
            begun = perf_counter_ns()
            for encoder, column, codes in zip(self._encoders, columns, self._codes, strict=True):
                part = column if chunks == 1 else column.slice(start, end - start)
                encoder.encode(part, codes[: end - start])
            encoded = perf_counter_ns()
            parts.append(self._index.match(self._codes, end - start))
            match_ns += perf_counter_ns() - encoded
            encode_ns += encoded - begun
        offsets, queries = parts[0] if chunks == 1 else _concatenate(parts)
        dropped = int(np.count_nonzero(offsets[1:] == offsets[:-1]))
        self.figures = BatchFigures("index", rows, dropped, None, encode_ns, match_ns)
        return Matches(self.plan.names, offsets, queries, None)

    def encode(
        self, columns: Sequence[pa.Array | pa.ChunkedArray], rows: int
    ) -> list[npt.NDArray[np.unsignedinteger[Any]]]:
        """Region codes of each column, unsigned[rows]."""
        return [
            encoder.encode(column)[:rows] for encoder, column in zip(self._encoders, columns, strict=True)
        ]

    def sample(self, codes: Sequence[npt.NDArray[np.unsignedinteger[Any]]], n: int) -> npt.NDArray[np.uint32]:
        """Codes of at most n evenly strided rows: uint32[attributes, <= n]."""
        rows = len(codes[0]) if codes else 0
        stride = max(1, -(-rows // max(n, 1)))
        sampled = np.empty((len(codes), -(-rows // stride)), np.uint32)
        for row, column in zip(sampled, codes, strict=True):
            row[:] = column[::stride]
        return sampled


def _concatenate(
    parts: Sequence[tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    ends = np.cumsum([0] + [len(queries) for _, queries in parts])
    offsets = [parts[0][0]] + [part[1:] + end for (part, _), end in zip(parts[1:], ends[1:-1], strict=True)]
    return np.concatenate(offsets), np.concatenate([queries for _, queries in parts])
