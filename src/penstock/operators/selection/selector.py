"""Shared selection: every standing query answered for every tuple of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import thread_time_ns
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.compiled import filling
from penstock.kernels.index import CHUNK_ROWS
from penstock.kernels.lanes import LANES
from penstock.operators.coding.encode import Codes, ColumnEncoder, code_type
from penstock.operators.coding.merging import merge_coded
from penstock.operators.coding.regions import CodedSelections, RegionCoding, code_selections
from penstock.operators.rules.facts import RulePlan, compile_rules
from penstock.operators.rules.matcher import RuleMatcher
from penstock.operators.selection.asc import AscEvaluator, AscIndex, Evaluation
from penstock.operators.selection.batch_index import MOST_FOUND, BatchIndex
from penstock.operators.selection.matches import Matches
from penstock.operators.selection.strategy import TRIAL_ROWS, Side, StrategyChoice
from penstock.plan.arrangement import Arrangement
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.value_sets import Interval, ValueSet

Strategy = Literal["auto", "index", "asc"]
#: rows matched at a time before the number of matches a row is known
FIRST_CHUNK_ROWS = 1 << 13
#: words of GRBs that the ASCs work on at a time
ASC_WORDS = 1 << 18
#: matches that one chunk of a batch should not exceed: bounds the scratch space
CHUNK_PAIRS = 1 << 22

_NO_LIMIT = 2**62

Rows = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]


@dataclass(frozen=True, slots=True, eq=False)
class SelectionPlan:
    """A selection set compiled for matching: immutable and picklable.

    Attributes:
        coded: the selections over region codes.
        rules: those that are trees; None where none is.
    """

    coded: CodedSelections
    rules: RulePlan | None = None

    @property
    def names(self) -> list[str]:
        """Query names."""
        return self.coded.names

    @property
    def codings(self) -> tuple[RegionCoding, ...]:
        """One region coding a p-attribute, in the order columns are handed over."""
        return self.coded.codings

    @property
    def columns(self) -> list[str]:
        """The columns to hand over: those of the codings, then those of the rules."""
        names = [coding.name for coding in self.codings]
        return names if self.rules is None else names + self.rules.columns


def compile_selections(selections: SelectionSet) -> SelectionPlan:
    """Compiles a selection set, once, in the driver."""
    return SelectionPlan(code_selections(selections), compile_rules(selections))


@dataclass(slots=True)
class AscMeasures:
    """What evaluating ASCs took.

    Attributes:
        tuples: tuples evaluated.
        evaluations: ASC evaluations of them.
        ns: what it took.
    """

    tuples: int = 0
    evaluations: int = 0
    ns: int = 0

    def add(self, found: Evaluation, tuples: int, ns: int) -> None:
        """Adds what one run over some tuples found."""
        self.tuples += tuples
        self.evaluations += found.evaluations
        self.ns += ns


def merge_selections(
    one: SelectionPlan, other: SelectionPlan, order: npt.NDArray[np.int64], selections: SelectionSet
) -> SelectionPlan:
    """Compiles a selection set from what most of it and the rest of it were compiled to.

    Args:
        one, other: what was compiled, over columns of the same names.
        order: int64[queries], see `merge_coded`.
        selections: the set.
    """
    rules = _same_rules(one, order) if other.rules is None else None
    return SelectionPlan(
        merge_coded(one.coded, other.coded, order), compile_rules(selections) if rules is None else rules
    )


def _same_rules(plan: SelectionPlan, order: npt.NDArray[np.int64]) -> RulePlan | None:
    """The rules of a plan for its queries in another order; None where some are left out, or follow each other otherwise."""
    if plan.rules is None:
        return None
    places = np.full(max(len(plan.names), int(order.max(initial=-1)) + 1), -1)
    places[order] = np.arange(len(order))
    queries = places[plan.rules.queries]
    if queries.min() < 0 or np.any(np.diff(queries) < 0):
        return None
    return replace(plan.rules, queries=queries.astype(np.int32))


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """What matching one batch took.

    Attributes:
        strategy: the side that answered, "rules" where there are trees alone.
        encode_ns: time spent turning columns into codes; the ASCs' is in `match_ns`.
        match_ns: time spent matching them.
        rules_ns: time that trees took, encoding included.
        asc: what the ASCs took, in a trial beside the index too.
    """

    strategy: Side | Literal["rules"]
    encode_ns: int
    match_ns: int
    rules_ns: int
    asc: AscMeasures


class TooManyMatchesError(Exception):
    """A batch has more matches than the caller takes at once."""


class Selector:
    """Matches batches against a plan. Holds scratch space: one a thread.

    Args:
        plan: the compiled selections.
        strategy: "index", "asc", or "auto" to choose by measured time.
        arrangement: the ASCs' evaluation sequence; the order of the attributes where None.
        index: the batch index to use; one with every access where None.
        before: the selector of another plan, which is used no more: what both have in common is kept.
    """

    def __init__(
        self,
        plan: SelectionPlan,
        strategy: Strategy = "auto",
        arrangement: Arrangement | None = None,
        index: BatchIndex | None = None,
        before: Selector | None = None,
    ) -> None:
        self.plan = plan
        self.strategy = strategy
        #: figures of the last batch, None before the first
        self.figures: BatchFigures | None = None
        self._dtype = code_type(plan.codings)
        #: one a p-attribute
        self.encoders: list[ColumnEncoder] = self._encoders(() if before is None else before.encoders)
        self._codes = np.zeros((len(plan.codings), CHUNK_ROWS + LANES), self._dtype)
        self._index = None if strategy == "asc" else index or BatchIndex(plan.coded)
        self._arrangement = arrangement
        self._evaluator: AscEvaluator | None = None
        self._choice = StrategyChoice()
        self._rules: RuleMatcher | None = (
            None if plan.rules is None else RuleMatcher(plan.rules, None if before is None else before._rules)
        )
        always = int(np.count_nonzero(np.diff(plan.coded.term_start) == 0))
        self._chunk_rows = max(1, min(FIRST_CHUNK_ROWS, CHUNK_PAIRS // max(1, always)))
        words = -(-len(plan.coded.term_query) // 64)
        most_asc_rows = min(CHUNK_ROWS, ASC_WORDS // max(1, words), MOST_FOUND // max(1, len(plan.names)))
        self._asc_rows = max(1, most_asc_rows)

    def _encoders(self, before: Sequence[ColumnEncoder]) -> list[ColumnEncoder]:
        """An encoder for each p-attribute, one of those before where it codes the same."""
        known = {each.coding.name: each for each in before if each.dtype is self._dtype}
        return [
            known[coding.name]
            if coding.name in known and known[coding.name].coding.is_same(coding)
            else ColumnEncoder(coding, self._dtype)
            for coding in self.plan.codings
        ]

    @property
    def bounding_encoders(self) -> list[ColumnEncoder | None]:
        """What codes the bounds of each column handed over that has any: of p-attributes, then of the rules' attributes."""
        return [*self.encoders, *(self._rules.encoders if self._rules is not None else ())]

    def rearrange(self, arrangement: Arrangement) -> None:
        """Lets the ASCs follow another sequence from the next batch on; results stay the same."""
        self._arrangement = arrangement
        if self._evaluator is not None:
            self._evaluator = AscEvaluator(self._evaluator.index, arrangement)
            self._choice.asc_rearranged()

    def match(
        self, columns: Sequence[pa.Array | pa.ChunkedArray], rows: int, most: int = _NO_LIMIT
    ) -> Matches:
        """The queries each tuple of a batch satisfies.

        Args:
            columns: the batch's columns in the order of the plan's `columns`, `rows` values each.
            rows: number of tuples.
            most: matches that two or more tuples may have.

        Raises:
            TypeError: a column's type does not fit its coding.
            TooManyMatchesError: there are more than `most`.
        """
        codings = len(self.encoders)
        ruled, rules_ns = None, 0
        if self._rules is not None:
            begun = thread_time_ns()
            ruled = self._rules.match(columns[codings:], rows, most)
            rules_ns = thread_time_ns() - begun
            if ruled is None:
                raise TooManyMatchesError
            if not len(self.plan.coded.term_query):
                self.figures = BatchFigures("rules", 0, 0, rules_ns, AscMeasures())
                return Matches(self.plan.names, *ruled, None)
        side: Side = self._choice.choose(rows) if self.strategy == "auto" else self.strategy
        compared = columns[:codings]
        begun = thread_time_ns()
        measures = AscMeasures()
        most -= 0 if ruled is None else len(ruled[1])
        if side == "asc":
            parts, encode_ns = self._evaluated(compared, rows, most, measures), 0
        else:
            parts, encode_ns = self._indexed(compared, rows, most)
        match_ns = thread_time_ns() - begun - encode_ns
        offsets, queries = parts[0] if len(parts) == 1 else _concatenate(parts)
        if ruled is not None:
            offsets, queries = _merged((offsets, queries), ruled)
        if rows:
            self._chunk_rows = max(1, min(CHUNK_ROWS, CHUNK_PAIRS * rows // max(len(queries), 1)))
            if self.strategy == "auto":
                self._learn(side, compared, rows, encode_ns + match_ns, measures)
        evaluations = measures.evaluations if side == "asc" else None
        self.figures = BatchFigures(side, encode_ns, match_ns, rules_ns, measures)
        return Matches(self.plan.names, offsets, queries, evaluations)

    def encode(
        self, columns: Sequence[pa.Array | pa.ChunkedArray]
    ) -> tuple[list[Codes], npt.NDArray[np.int64]]:
        """Region codes of each column, unsigned[rows], and what each took, int64[n] ns."""
        codes, ns = [], np.zeros(len(columns), np.int64)
        for number, (encoder, column) in enumerate(zip(self.encoders, columns, strict=True)):
            begun = thread_time_ns()
            codes.append(encoder.encode(column))
            ns[number] = thread_time_ns() - begun
        return codes, ns

    def _indexed(
        self, columns: Sequence[pa.Array | pa.ChunkedArray], rows: int, most: int
    ) -> tuple[list[Rows], int]:
        """What the index finds, and how long encoding took."""
        assert self._index is not None, "the index is built for every strategy that may use it"
        parts: list[Rows] = []
        encode_ns = start = found = 0
        while start < rows or not parts:
            size = _even_part(rows - start, self._chunk_rows)
            begun = thread_time_ns()
            for encoder, column, codes in zip(self.encoders, columns, self._codes, strict=True):
                encoder.encode(column if size == rows else column.slice(start, size), codes[:size])
            encode_ns += thread_time_ns() - begun
            part = self._index.match(self._codes, size)
            if part is None:
                self._chunk_rows = size // 2
                continue
            parts.append(part)
            start += size
            found += len(part[1])
            if found > most and rows > 1:
                raise TooManyMatchesError
        return parts, encode_ns

    def _evaluated(
        self,
        columns: Sequence[pa.Array | pa.ChunkedArray],
        rows: int,
        most: int,
        measures: AscMeasures,
    ) -> list[Rows]:
        """What the ASCs find."""
        parts: list[Rows] = []
        start = found = 0
        while start < rows or not parts:
            size = _even_part(rows - start, self._asc_rows)
            answer = self._evaluate([column.slice(start, size) for column in columns], size, measures)
            parts.append((answer.offsets, answer.queries))
            start += size
            found += len(answer.queries)
            if found > most and rows > 1:
                raise TooManyMatchesError
        return parts

    def _evaluate(
        self, columns: Sequence[pa.Array | pa.ChunkedArray], rows: int, measures: AscMeasures
    ) -> Evaluation:
        def codes_of(attribute: int, wanted: npt.NDArray[np.int32] | None) -> Codes:
            out = self._codes[attribute, : rows if wanted is None else len(wanted)]
            return self.encoders[attribute].encode(columns[attribute], out, wanted)

        evaluator = self._asc()
        begun = thread_time_ns()
        answer = evaluator.evaluate(codes_of, rows)
        measures.add(answer, rows, thread_time_ns() - begun)
        return answer

    def _asc(self) -> AscEvaluator:
        if self._evaluator is None:
            self._evaluator = AscEvaluator(AscIndex(self.plan.coded), self._arrangement)
        return self._evaluator

    def _learn(
        self,
        side: Side,
        columns: Sequence[pa.Array | pa.ChunkedArray],
        rows: int,
        ns: int,
        measures: AscMeasures,
    ) -> None:
        is_usual = side == "asc" or (self._index is not None and not self._index.laid_out_anew)
        self._choice.answered(side, rows, ns, is_usual=is_usual)
        if side == "index" and self._choice.trial_due:
            few = min(rows, TRIAL_ROWS, self._asc_rows)
            begun = thread_time_ns()
            self._evaluate([column.slice(0, few) for column in columns], few, measures)
            self._choice.asc_tried(rows, few, measures.ns, thread_time_ns() - begun)


@filling()
def warm_up() -> None:
    """Compiles or loads the kernels for the usual column types, before a process forks or is timed."""
    kinds = (pa.int32(), pa.int64(), pa.float64(), pa.string())
    draws = np.random.default_rng(0).integers(0, 500, (len(kinds), 4096))
    columns = [
        pa.array(draw.astype(str) if kind == pa.string() else draw, kind)
        for kind, draw in zip(kinds, draws, strict=True)
    ]
    queries = [
        Query(
            str(number),
            (
                Term(
                    (
                        (0, ValueSet((Interval(number % 500, number % 500 + width),))),
                        (1, ValueSet((Interval(None, 400),))),
                    )
                ),
            ),
        )
        for number in range(600)
        for width in (0, 20)
    ]
    widest = Interval(0.5, 1e300), Interval(b"a", None)
    queries.append(Query("all", (Term(((2, ValueSet(widest[:1])), (3, ValueSet(widest[1:])))),)))
    attributes = tuple(Attribute(f"a{i}", kind, f"`a{i}`") for i, kind in enumerate(kinds))
    strategies: tuple[Strategy, ...] = ("index", "asc")
    # few point queries are answered by probes, many queries by slices
    for chosen in (queries[:60:2], queries):
        plan = compile_selections(SelectionSet(attributes, tuple(chosen)))
        for strategy in strategies:
            Selector(plan, strategy).match(columns, len(columns[0]))


def _even_part(rows: int, most: int) -> int:
    """How many rows to take at a time, so that all parts are about equal."""
    return -(-rows // max(1, -(-rows // most)))


def _concatenate(parts: Sequence[Rows]) -> Rows:
    ends = np.cumsum([0] + [len(queries) for _, queries in parts])
    offsets = [parts[0][0]] + [part[1:] + end for (part, _), end in zip(parts[1:], ends[1:-1], strict=True)]
    return np.concatenate(offsets), np.concatenate([queries for _, queries in parts])


def _merged(one: Rows, other: Rows) -> Rows:
    """The matches of both, row by row and ascending; no query is in both."""
    if not len(one[1]) or not len(other[1]):
        return other if len(other[1]) else one
    places = [np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) for offsets, _ in (one, other)]
    row, query = np.concatenate(places), np.concatenate([one[1], other[1]])
    return one[0] + other[0], query[np.lexsort((query, row))]
