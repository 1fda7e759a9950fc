"""Which access each term gets: the cost model of the batch index.

A term is run by SCAN (64 tuples a step over the unsorted batch), by SLICE (the same steps over the
slice of one predicate in a batch sorted by its attribute) or by PROBE (looked up by the code of each
tuple; single codes only). Sorting by an attribute and gathering other columns into its order costs the
same however many terms use it, so this is a facility location problem; it is solved greedily.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.kernels.index import ENTRY, LAST_BIN, Entries, Predicates
from penstock.kernels.spans import spans
from penstock.operators.coding.regions import CodedSelections

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: measured costs in nanoseconds: an entry begun, a step of 64 tuples, a candidate probed, a row
#: sorted, a code of the sorted attribute, a row gathered, a row probed, a survivor's exact check
ENTRY_NS, STEP_NS, PROBE_NS, SORT_NS, CODE_NS, GATHER_NS, LOOKUP_NS = 17.0, 2.5, 8.0, 1.3, 1.5, 0.4, 0.6

SCAN = 0


@dataclass(frozen=True, slots=True, eq=False)
class TermTable:
    """The terms that can match, and the queries that always do.

    Attributes:
        attributes: number of p-attributes, n.
        query: int32[terms], the query of each term.
        term: int64[P], the term of each predicate; -1 where the term cannot match.
        ranges: int64[P], number of code ranges.
        hull_low, hull_high: int64[P], lowest and highest code of the predicate.
        single: bool[P], whether every range is a single code.
        predicates: the predicates themselves.
        always: int32, queries with a term without predicates.
        repeats: whether some query has several terms.
    """

    attributes: int
    codes: tuple[int, ...]
    query: npt.NDArray[np.int32]
    term: Ints
    ranges: Ints
    hull_low: Ints
    hull_high: Ints
    single: npt.NDArray[np.bool_]
    predicates: Predicates
    always: npt.NDArray[np.int32]
    repeats: bool

    @classmethod
    def build(cls, coded: CodedSelections) -> TermTable:
        """Prepares the terms of `coded`."""
        sizes = np.diff(coded.term_start)
        ranges = np.diff(coded.predicate_start)
        term = np.repeat(np.arange(len(sizes)), sizes)
        possible = np.ones(len(sizes), np.bool_)
        possible[term[ranges == 0]] = False
        always = np.unique(coded.term_query[sizes == 0])
        possible &= ~np.isin(coded.term_query, always)
        number = np.where(possible, np.cumsum(possible) - 1, -1)
        query = coded.term_query[possible]
        filled = ranges > 0
        hull_low = np.zeros(len(ranges), np.int64)
        hull_high = np.zeros(len(ranges), np.int64)
        hull_low[filled] = coded.range_low[coded.predicate_start[:-1][filled]]
        hull_high[filled] = coded.range_high[coded.predicate_start[1:][filled] - 1]
        padded = np.concatenate([coded.range_low == coded.range_high, [True]])
        single = np.logical_and.reduceat(padded, coded.predicate_start[:-1]) if len(ranges) else filled
        return cls(
            attributes=len(coded.codings),
            codes=tuple(coding.codes for coding in coded.codings),
            query=query,
            term=number[term],
            ranges=ranges,
            hull_low=hull_low,
            hull_high=hull_high,
            single=single,
            predicates=Predicates(
                coded.predicate_attribute, coded.predicate_start, coded.range_low, coded.range_high
            ),
            always=always.astype(np.int32),
            repeats=bool(len(np.unique(query)) < len(query)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """How the terms are run, grouped by access.

    Attributes:
        rows: rows of the batch it was chosen for.
        cost_ns: estimated cost of such a batch.
        entries: all entries; group by group, by ascending low code within one.
        scans: number of entries of the scan group, which comes first.
        slices: (attribute, first entry, last entry, gathered attributes) of each sorted attribute.
        probes: (attribute, first entry, entries before each code) of each probed attribute.
        binned: attributes whose bins are compared.
        bins: uint8[codes] of each attribute, the bin of each code, ascending.
        access: int64[terms], SCAN, 1 + a for a slice of attribute a, 1 + n + a for a probe of it.
    """

    rows: int
    cost_ns: float
    entries: Entries
    scans: int
    slices: tuple[tuple[int, int, int, tuple[int, ...]], ...]
    probes: tuple[tuple[int, Ints], ...]
    binned: tuple[int, ...]
    bins: tuple[npt.NDArray[np.uint8], ...]
    access: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Frequencies:
    """Measured share of each predicate, from one batch.

    Attributes:
        rows: rows of the batch.
        counts: int64[codes] of each attribute, rows of each code.
        exact: float64[P], share of the rows in any of the predicate's ranges.
        hull: float64[P], share between the lowest and the highest.
    """

    rows: int
    counts: Sequence[Ints]
    exact: Floats
    hull: Floats

    @classmethod
    def measure(cls, terms: TermTable, counts: Sequence[Ints], rows: int) -> Frequencies:
        """Turns counts of codes, one array an attribute, into shares of predicates."""
        exact = np.zeros(len(terms.term))
        hull = np.zeros(len(terms.term))
        range_attribute = np.repeat(terms.predicates.attribute, terms.ranges)
        range_predicate = np.repeat(np.arange(len(terms.term)), terms.ranges)
        for attribute, count in enumerate(counts):
            below = np.concatenate([[0], np.cumsum(count)])
            own = np.flatnonzero(range_attribute == attribute)
            share = below[terms.predicates.high[own].astype(np.int64) + 1] - below[terms.predicates.low[own]]
            exact += np.bincount(range_predicate[own], share, len(exact))
            own = np.flatnonzero(terms.predicates.attribute == attribute)
            hull[own] = below[terms.hull_high[own] + 1] - below[terms.hull_low[own]]
        return cls(rows, counts, exact / max(rows, 1), hull / max(rows, 1))


class CostModel:
    """Costs of every access of every term, in nanoseconds a batch.

    Args:
        terms: the terms.
        frequencies: measured shares.
        allowed: accesses that may be used, "scan" always among them.
    """

    def __init__(
        self,
        terms: TermTable,
        frequencies: Frequencies,
        allowed: frozenset[str] = frozenset({"slice", "probe"}),
    ) -> None:
        rows = frequencies.rows
        live = np.flatnonzero(terms.term >= 0)
        candidates = rows * frequencies.exact
        slices = terms.ranges * (ENTRY_NS + STEP_NS) + candidates / 64 * STEP_NS
        probes = np.where(terms.single, candidates * PROBE_NS, np.inf)
        self.scan = np.full(len(terms.query), ENTRY_NS + rows / 64 * STEP_NS)
        self._facilities: dict[int, tuple[Ints, Floats]] = {}
        self._opening: dict[int, float] = {}
        n = terms.attributes
        for attribute in range(n):
            own = live[terms.predicates.attribute[live] == attribute]
            if not len(own):
                continue
            users = np.zeros(len(terms.query), np.bool_)
            users[terms.term[own]] = True
            others = np.unique(terms.predicates.attribute[live[users[terms.term[live]]]])
            sort = rows * SORT_NS + terms.codes[attribute] * CODE_NS
            if "slice" in allowed:
                self._facilities[1 + attribute] = (terms.term[own], slices[own])
                self._opening[1 + attribute] = sort + (len(others) - 1) * rows * GATHER_NS
            if "probe" in allowed:
                self._facilities[1 + n + attribute] = (terms.term[own], probes[own])
                self._opening[1 + n + attribute] = rows * LOOKUP_NS

    def assign(self, opened: Sequence[int]) -> tuple[Ints, Floats]:
        """The cheapest access of each term among SCAN and the opened ones, and its cost."""
        access = np.zeros(len(self.scan), np.int64)
        cost = self.scan.copy()
        for facility in opened:
            users, own = self._facilities[facility]
            better = own < cost[users]
            cost[users[better]] = own[better]
            access[users[better]] = facility
        return access, cost

    def total(self, opened: Sequence[int], cost: Floats) -> float:
        """Cost of a batch with these accesses open."""
        return float(cost.sum()) + sum(self._opening[facility] for facility in opened)

    def choose(self) -> tuple[Ints, float]:
        """Opens accesses while that saves time, then closes those that no longer do.

        Returns:
            access of each term (see `Layout.access`) and the estimated cost of a batch.
        """
        opened: list[int] = []
        cost = self.scan.copy()
        while True:
            best, saving = -1, 0.0
            for facility, (users, own) in self._facilities.items():
                if facility not in opened:
                    saved = float(np.maximum(cost[users] - own, 0).sum()) - self._opening[facility]
                    if saved > saving:
                        best, saving = facility, saved
            if best < 0:
                break
            opened.append(best)
            users, own = self._facilities[best]
            cost[users] = np.minimum(cost[users], own)
        access, cost = self.assign(opened)
        for facility in tuple(opened):
            fewer = [other for other in opened if other != facility]
            _, cost_without = self.assign(fewer)
            if self.total(fewer, cost_without) < self.total(opened, cost):
                opened, cost = fewer, cost_without
        access, cost = self.assign(opened)
        return access, self.total(opened, cost)

    def cost_of(self, access: Ints) -> float:
        """Estimated cost of a batch with the accesses given."""
        cost = self.scan.copy()
        opened = [int(facility) for facility in np.unique(access) if facility != SCAN]
        for facility in opened:
            users, own = self._facilities[facility]
            chosen = access[users] == facility
            cost[users[chosen]] = own[chosen]
        return self.total(opened, cost)


def build_layout(terms: TermTable, frequencies: Frequencies, access: Ints, cost_ns: float) -> Layout:
    """Lays the terms out by access.

    Each term's three other predicates of the smallest measured share become its vector checks; unions
    of ranges and further predicates are checked exactly on what is left.
    """
    n = terms.attributes
    live = np.flatnonzero(terms.term >= 0)
    attribute = terms.predicates.attribute[live].astype(np.int64)
    term = terms.term[live]
    is_access = (access[term] != SCAN) & ((access[term] - 1) % n == attribute)
    order = np.lexsort((frequencies.hull[live], is_access, term))
    live, attribute, term, is_access = live[order], attribute[order], term[order], is_access[order]
    rank = np.arange(len(term)) - np.searchsorted(term, np.arange(len(terms.query)))[term]
    bins = tuple(_equal_shares(count) for count in frequencies.counts)

    checks: list[_VectorCheck] = []
    for number in range(3):
        chosen = (rank == number) & ~is_access
        idle = checks[0].column if checks else np.zeros(len(terms.query), np.int16)
        checks.append(_vector_check(terms, live[chosen], bins, idle))
    is_rest = ~is_access & ((rank >= 3) | (terms.ranges[live] > 1))
    rest_bounds = np.concatenate([[0], np.cumsum(np.bincount(term[is_rest], minlength=len(terms.query)))])

    accessed = live[is_access]
    scanned = np.flatnonzero(access == SCAN)
    ranges = terms.ranges[accessed]
    range_number = spans(terms.predicates.start[accessed], ranges)
    entry_term = np.concatenate([scanned, np.repeat(term[is_access], ranges)])
    entry_low = np.concatenate([np.zeros(len(scanned), np.uint32), terms.predicates.low[range_number]])
    entry_high = np.concatenate([np.zeros(len(scanned), np.uint32), terms.predicates.high[range_number]])
    order = np.lexsort((checks[0].column[entry_term], entry_high, entry_low, access[entry_term]))
    entry_term, entry_low, entry_high = entry_term[order], entry_low[order], entry_high[order]
    table = np.empty(len(entry_term), ENTRY)
    table["query"], table["low"], table["high"] = terms.query[entry_term], entry_low, entry_high
    for name, check in zip("abc", checks, strict=True):
        for part in ("column", "low", "width", "bin", "bins", "core", "cores"):
            table[f"{part}_{name}"] = getattr(check, part)[entry_term]
    table["cored"] = np.logical_and.reduce([check.cored for check in checks])[entry_term]
    table["rest_start"], table["rest_end"] = rest_bounds[entry_term], rest_bounds[entry_term + 1]
    bounds = np.searchsorted(access[entry_term], np.arange(2 * n + 2))
    slices, probes = [], []
    for number in range(n):
        begin, end = int(bounds[1 + number]), int(bounds[2 + number])
        if begin < end:
            slices.append((number, begin, end, _compared(table[begin:end])))
        begin, end = int(bounds[1 + n + number]), int(bounds[2 + n + number])
        if begin < end:
            bucket = np.searchsorted(table["low"][begin:end], np.arange(terms.codes[number] + 1)) + begin
            probes.append((number, bucket))
    return Layout(
        rows=frequencies.rows,
        cost_ns=cost_ns,
        entries=Entries(table, live[is_rest]),
        scans=len(scanned),
        slices=tuple(slices),
        probes=tuple(probes),
        binned=_compared(table[: bounds[1 + n]]),
        bins=bins,
        access=access,
    )


class _VectorCheck(NamedTuple):
    """One vector check of every term, named as the fields of `ENTRY`."""

    column: npt.NDArray[np.int16]
    low: npt.NDArray[np.uint32]
    width: npt.NDArray[np.uint32]
    bin: npt.NDArray[np.uint8]
    bins: npt.NDArray[np.uint8]
    core: npt.NDArray[np.uint8]
    cores: npt.NDArray[np.uint8]
    cored: npt.NDArray[np.bool_]


def _vector_check(
    terms: TermTable,
    chosen: Ints,
    bins: Sequence[npt.NDArray[np.uint8]],
    idle: npt.NDArray[np.int16],
) -> _VectorCheck:
    """The check by the chosen predicates; other terms get one of column `idle` that always holds."""
    count = len(terms.query)
    check = _VectorCheck(
        idle.copy(),
        np.zeros(count, np.uint32),
        np.full(count, np.iinfo(np.uint32).max, np.uint32),
        np.zeros(count, np.uint8),
        np.full(count, LAST_BIN, np.uint8),
        np.zeros(count, np.uint8),
        np.full(count, LAST_BIN, np.uint8),
        np.ones(count, np.bool_),
    )
    users = terms.term[chosen]
    low, high = terms.hull_low[chosen], terms.hull_high[chosen]
    check.column[users] = terms.predicates.attribute[chosen]
    check.low[users] = low
    check.width[users] = high - low
    for attribute, bin_of in enumerate(bins):
        own = terms.predicates.attribute[chosen] == attribute
        check.bin[users[own]] = bin_of[low[own]]
        check.bins[users[own]] = bin_of[high[own]] - bin_of[low[own]]
        # the outer bins are in the core where the next code beyond the bounds lies in another one
        padded = np.concatenate([[-1], bin_of.astype(np.int64), [LAST_BIN + 1]])
        first, last = padded[low[own] + 1], padded[high[own] + 1]
        first = first + (padded[low[own]] == first)
        last = last - (padded[high[own] + 2] == last)
        check.cored[users[own]] = first <= last
        check.core[users[own]] = np.minimum(first, LAST_BIN)
        check.cores[users[own]] = np.maximum(last - first, 0)
    return check


def _compared(table: npt.NDArray[np.void]) -> tuple[int, ...]:
    """The attributes that vector checks of these entries compare."""
    columns = np.concatenate([table[f"column_{check}"] for check in "abc"])
    cores = np.concatenate([table[f"cores_{check}"] for check in "abc"])
    return tuple(np.unique(columns[cores < LAST_BIN]).tolist())


def _equal_shares(count: Ints) -> npt.NDArray[np.uint8]:
    """Bins of codes: each code its own where that fits a byte, else runs of equal frequency."""
    if len(count) <= 256:
        return np.arange(len(count)).astype(np.uint8)
    before = np.cumsum(count + 1) - (count + 1)
    bins: npt.NDArray[np.uint8] = (before * 256 // (before[-1] + count[-1] + 1)).astype(np.uint8)
    return bins
