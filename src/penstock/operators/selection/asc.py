"""Attribute selection constructs: shared selections answered region by region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels import asc as kernels
from penstock.kernels.asc import AscTables, Bits, Codes
from penstock.kernels.asc_measures import candidate_arrows
from penstock.operators.coding.regions import CodedSelections
from penstock.operators.selection.asc_tables import build_tables
from penstock.plan.arrangement import NO_ARROW, Arrangement, ArrangementKind

#: evaluations of single tuples are not counted
_UNCOUNTED = np.empty(0, np.int32)
#: the regions of the tuples at some places of a batch, None: of all of them, by the number of the p-attribute
CodesOf = Callable[[int, npt.NDArray[np.int32] | None], npt.NDArray[np.unsignedinteger[Any]]]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What a run of an arrangement over a batch found, and its cost.

    Attributes:
        offsets: int64[tuples + 1]; tuple i satisfies queries[offsets[i]:offsets[i + 1]].
        queries: int32, ascending and distinct within a tuple.
        counts: int32[tuples], ASC evaluations of each tuple; empty where they were not asked for.
        micro_arrows: micro-arrows followed.
        dropped: tuples that satisfy no query.
        by_attribute: int64[n], ASC evaluations of all tuples by p-attribute.
    """

    offsets: npt.NDArray[np.int64]
    queries: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    micro_arrows: int
    dropped: int
    by_attribute: npt.NDArray[np.int64]

    @property
    def evaluations(self) -> int:
        """ASC evaluations of all tuples: the paper's cost."""
        return int(self.by_attribute.sum())


class AscIndex:
    """The ASCs of a selection set, built once and shared by every arrangement.

    Memory grows with terms and predicates, not with their square: see `penstock.kernels.asc`.

    Args:
        coded: the selections over region codes.
    """

    def __init__(self, coded: CodedSelections) -> None:
        self.coded = coded
        self.tables = build_tables(coded)
        self._cabs: dict[int, npt.NDArray[np.bool_]] = {}

    @property
    def attributes(self) -> tuple[int, ...]:
        """The p-attributes that some term uses, ascending."""
        return tuple(int(a) for a in np.flatnonzero(self.tables.used))

    @property
    def terms(self) -> int:
        """Number of terms: the bits of a GRB."""
        return len(self.tables.slot_query)

    @property
    def memory_bytes(self) -> int:
        """Size of all tables."""
        return sum(int(table.nbytes) for table in self.tables)

    def cab(self, attribute: int) -> npt.NDArray[np.bool_]:
        """Candidate-arrow bitmaps of an ASC: bool[codes, n]."""
        if attribute not in self._cabs:
            codes = self.coded.codings[attribute].codes
            self._cabs[attribute] = candidate_arrows(self.tables, attribute, codes)
        return self._cabs[attribute]

    def given_order(self) -> Arrangement:
        """The ASCs in the order of the attributes: where measuring starts."""
        return Arrangement(ArrangementKind.FIXED, self.attributes)

    def flatten(self, arrangement: Arrangement) -> npt.NDArray[np.int16]:
        """An arrangement's micro-arrows laid out as the tables' codes; empty where it has none."""
        if not arrangement.micro_arrows:
            return np.empty(0, np.int16)
        return np.concatenate(arrangement.micro)

    def no_arrows(self) -> tuple[npt.NDArray[np.int16], ...]:
        """Micro-arrow targets of every region, none set."""
        return tuple(np.full(coding.codes, NO_ARROW, np.int16) for coding in self.coded.codings)

    def stack(self, codes: Sequence[npt.NDArray[np.unsignedinteger]]) -> Codes:
        """Code arrays of all p-attributes as one uint32[n, tuples]."""
        if isinstance(codes, np.ndarray):
            return np.ascontiguousarray(codes, np.uint32)
        if not codes:
            return np.empty((0, 0), np.uint32)
        return np.stack(codes).astype(np.uint32, copy=False)

    def evaluate(self, codes: Codes, arrangement: Arrangement) -> Evaluation:
        """Runs an arrangement over uint32[n, tuples] of region codes."""

        def codes_of(attribute: int, rows: npt.NDArray[np.int32] | None) -> Codes:
            found: Codes = codes[attribute].copy() if rows is None else codes[attribute].take(rows)
            return found

        counts = np.zeros(codes.shape[1], np.int32)
        return AscEvaluator(self, arrangement).evaluate(codes_of, codes.shape[1], counts)


class AscEvaluator:
    """Answers batches by one arrangement of a selection set's ASCs, column by column.

    An ASC is evaluated for all tuples that reach it at once, and the regions of a column are worked out for them alone.
    Holds scratch space: one a thread.

    Args:
        index: the ASCs.
        arrangement: the sequence to follow; the given order where None.

    Raises:
        ValueError: the arrangement is of other p-attributes.
    """

    def __init__(self, index: AscIndex, arrangement: Arrangement | None = None) -> None:
        self.index = index
        self.arrangement = arrangement or index.given_order()
        if set(self.arrangement.order) != set(index.attributes):
            raise ValueError(
                f"the arrangement orders ASCs {sorted(self.arrangement.order)}, "
                f"the selections use {list(index.attributes)}"
            )
        self._numbers = np.empty(0, np.int32)
        self._rows = np.empty(0, np.int32)
        self._grbs = np.empty((0, len(index.tables.live)), np.uint64)

    def evaluate(
        self, codes_of: CodesOf, tuples: int, counts: npt.NDArray[np.int32] = _UNCOUNTED
    ) -> Evaluation:
        """Evaluates a batch.

        Args:
            codes_of: gives region codes as they are asked for; the arrays are overwritten.
            tuples: number of tuples.
            counts: int32[tuples], the ASC evaluations of each tuple are added; empty: they are not counted.
        """
        tables = self.index.tables
        if len(self._rows) < tuples:
            self._numbers = np.arange(tuples, dtype=np.int32)
            self._rows = np.empty(tuples, np.int32)
            self._grbs = np.empty((tuples, len(tables.live)), np.uint64)
        rows, grbs = self._rows[:tuples], self._grbs[:tuples]
        rows[:] = self._numbers[:tuples]
        grbs[:] = tables.live
        way = _Way(tables, codes_of, tuples, len(self.index.coded.codings), counts)
        micro_arrows = 0
        if not len(tables.live):
            rows, grbs = rows[:0], grbs[:0]
        elif self.arrangement.micro_arrows:
            micro = self.index.flatten(self.arrangement)
            rows, grbs, micro_arrows = way.follow_arrows(rows, grbs, self.arrangement.order, micro)
        else:
            rows, grbs = way.follow_order(rows, grbs, self.arrangement.order)
        offsets, queries = kernels.collect(tables, rows, grbs, tuples)
        return Evaluation(offsets, queries, counts, micro_arrows, tuples - len(rows), way.by_attribute)


_Left = tuple[npt.NDArray[np.int32], Bits, npt.NDArray[np.unsignedinteger[Any]]]


class _Way:
    """The way of a batch's tuples through the ASCs.

    Attributes:
        by_attribute: int64[n], ASC evaluations so far, by p-attribute.
    """

    def __init__(
        self,
        tables: AscTables,
        codes_of: CodesOf,
        tuples: int,
        attributes: int,
        counts: npt.NDArray[np.int32],
    ) -> None:
        self._tables = tables
        self._codes_of = codes_of
        self._tuples = tuples
        self._counts = counts
        self._attributes = attributes
        self.by_attribute = np.zeros(attributes, np.int64)

    def follow_order(
        self, rows: npt.NDArray[np.int32], grbs: Bits, order: Sequence[int]
    ) -> tuple[npt.NDArray[np.int32], Bits]:
        """Sends all tuples through one order; those that are left, and their GRBs."""
        for attribute in order:
            if not len(rows):
                break
            rows, grbs, _ = self._narrow(attribute, rows, grbs, is_in_order=True)
        return rows, grbs

    def follow_arrows(
        self,
        rows: npt.NDArray[np.int32],
        grbs: Bits,
        order: Sequence[int],
        micro: npt.NDArray[np.int16],
    ) -> tuple[npt.NDArray[np.int32], Bits, int]:
        """Sends each tuple where its regions' micro-arrows point to; likewise, and how many were followed."""
        attributes = self._attributes
        evaluated = np.zeros((self._tuples, attributes), np.bool_)
        position = np.zeros(self._tuples, np.int16)
        waiting: dict[int, list[tuple[npt.NDArray[np.int32], Bits]]] = {order[0]: [(rows, grbs)]}
        macro = np.asarray(order, np.int64)
        arrows = 0
        while any(attribute < attributes for attribute in waiting):
            # where most tuples wait, so that others may join those that wait elsewhere
            attribute = max(
                (each for each in waiting if each < attributes),
                key=lambda each: sum(len(part) for part, _ in waiting[each]),
            )
            left, left_grbs, codes = self._narrow(
                attribute, *_joined_parts(waiting.pop(attribute)), is_in_order=False
            )
            grouped, grouped_grbs, start, followed = kernels.follow(
                self._tables, attribute, codes, left, left_grbs, macro, micro, evaluated, position
            )
            arrows += int(followed)
            for following in np.flatnonzero(np.diff(start)).tolist():
                group = slice(start[following], start[following + 1])
                waiting.setdefault(following, []).append((grouped[group], grouped_grbs[group]))
        rows, grbs = _joined_parts(waiting.get(attributes, [(rows[:0], grbs[:0])]))
        ascending = np.argsort(rows)
        return rows[ascending], grbs[ascending], arrows

    def _narrow(self, attribute: int, rows: npt.NDArray[np.int32], grbs: Bits, *, is_in_order: bool) -> _Left:
        """Evaluates an ASC for some tuples; those that are left, their GRBs and their regions."""
        every = is_in_order and len(rows) == self._tuples
        codes = self._codes_of(attribute, None if every else rows)
        kept = kernels.narrow(self._tables, attribute, codes, rows, grbs, self._counts)
        self.by_attribute[attribute] += len(rows)
        return rows[:kept], grbs[:kept], codes[:kept]


def _joined_parts(
    parts: Sequence[tuple[npt.NDArray[np.int32], Bits]],
) -> tuple[npt.NDArray[np.int32], Bits]:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([rows for rows, _ in parts]), np.concatenate([grbs for _, grbs in parts])
