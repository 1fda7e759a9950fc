"""Algorithm 1: the join tree with the largest output rate, by the paper's own model, and a baseline by cardinalities.

Each join's output rate is the next one's input rate; unary operators form a group below the first join and above each
join, ordered by algorithm 2. Static rewrites come first: every unary operator stands at the lowest place where all
streams it reads are joined. The executor follows probe orders (`probe_orders`), whose inner results are no state;
trees are what the paper compares.

Source: Song, Zhang, Lu, Yu, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.optimizer.operator_order import (
    UnaryOperator,
    best_order,
    processing_seconds,
)
from penstock.optimizer.printed_rates import Form, WindowJoin, group_rate, passing_share
from penstock.plan.joins import Method

#: up to so many streams all trees without cross products are looked at
ENUMERATED_STREAMS = 6


@dataclass(frozen=True, slots=True)
class PlacedOperator:
    """A unary operator and the numbers of the streams whose columns it reads."""

    operator: UnaryOperator
    streams: frozenset[int]


@dataclass(frozen=True, slots=True)
class TreeQuery:
    """A query over sliding windows of several streams.

    Attributes:
        rates: by stream, tuples a second.
        selectivities: by pair of streams, the lower first, the share of pairs that join; a pair without is not joined.
        window: T, seconds.
        operators: unary ones.
        nested_seconds, hash_seconds: C_N and C_H.
        buckets: of each table.
        form: of the join's output rate.
    """

    rates: tuple[float, ...]
    selectivities: Mapping[tuple[int, int], float]
    window: float
    operators: tuple[PlacedOperator, ...] = ()
    nested_seconds: float = 1e-6
    hash_seconds: float = 2e-6
    buckets: int = 64
    form: Form = field(default=Form.CORRECTED)


@dataclass(frozen=True, slots=True)
class Tree:
    """A plan tree with its figures.

    Attributes:
        streams: bit set of those it joins.
        left, right: None for a stream.
        operators: unary ones above it, in order.
        methods: of the direction left > right and of right > left; None for a stream.
        output_rate: r_o, tuples a second.
        seconds: of a processor that all of it takes in a second.
        cardinality: rows a second, did everything keep up.
        cardinalities: sum of those of the joins in it.
    """

    streams: int
    left: Tree | None
    right: Tree | None
    operators: tuple[UnaryOperator, ...]
    methods: tuple[Method, Method] | None
    output_rate: float
    seconds: float
    cardinality: float
    cardinalities: float

    def __str__(self) -> str:
        if self.left is None or self.right is None:
            return str(self.streams.bit_length() - 1)
        return f"({self.left} {self.right})"


@dataclass(frozen=True, slots=True)
class PlannedTree:
    """The chosen tree and how it was found."""

    tree: Tree
    search: str


def plan_tree(query: TreeQuery) -> PlannedTree:
    """The tree with the largest output rate, among equal ones that with the least work.

    Raises:
        ValueError: the query joins streams only by a cross product.
    """
    builder = _Builder(query, lambda join: join.methods())
    streams = len(query.rates)
    if streams <= ENUMERATED_STREAMS:
        return PlannedTree(min(builder.trees(), key=_by_output_rate), f"all {len(builder.trees())} trees")
    return PlannedTree(
        builder.best(_by_output_rate),
        f"dynamic programming: more than {ENUMERATED_STREAMS} streams, so that better trees may exist",
    )


def cardinality_tree(query: TreeQuery) -> Tree:
    """The baseline: the tree with the least sum of intermediate cardinalities, joined by hash; unary operators by
    selectivity alone.

    Raises:
        ValueError: the query joins streams only by a cross product.
    """
    builder = _Builder(query, lambda _: (Method.HASH, Method.HASH), _by_selectivity)
    return builder.best(lambda tree: (tree.cardinalities, 0.0))


def every_tree(query: TreeQuery) -> Sequence[Tree]:
    """All trees without cross products; left and right are not told apart.

    Raises:
        ValueError: the query joins streams only by a cross product.
    """
    return _Builder(query, lambda join: join.methods()).trees()


def _by_output_rate(tree: Tree) -> tuple[float, float]:
    # rates that differ by rounding alone are equal
    return -float(f"{tree.output_rate:.9g}"), tree.seconds


def _by_selectivity(operators: Sequence[UnaryOperator]) -> tuple[UnaryOperator, ...]:
    return tuple(sorted(operators, key=lambda each: (each.is_projection, each.selectivity)))


class _Builder:
    def __init__(
        self,
        query: TreeQuery,
        methods: Callable[[WindowJoin], tuple[Method, Method]],
        order: Callable[[Sequence[UnaryOperator]], tuple[UnaryOperator, ...]] = best_order,
    ) -> None:
        self._query = query
        self._methods = methods
        self._order = order
        self._every = (1 << len(query.rates)) - 1

    def trees(self) -> list[Tree]:
        """All of them, each part of a tree made once."""
        known: dict[int, list[Tree]] = {}
        for streams in range(1, self._every + 1):
            known[streams] = [
                self._join(left, right)
                for a, b in self._splits(streams)
                for left in known[a]
                for right in known[b]
            ]
            if streams.bit_count() == 1:
                known[streams] = [self._leaf(streams.bit_length() - 1)]
        return self._any(known[self._every])

    def best(self, key: Callable[[Tree], tuple[float, float]]) -> Tree:
        """The best tree that is made of the best ones of fewer streams."""
        known: dict[int, Tree] = {}
        for streams in range(1, self._every + 1):
            if streams.bit_count() == 1:
                known[streams] = self._leaf(streams.bit_length() - 1)
                continue
            joined = [
                self._join(known[a], known[b]) for a, b in self._splits(streams) if a in known and b in known
            ]
            if joined:
                known[streams] = min(joined, key=key)
        return self._any([known[self._every]] if self._every in known else [])[0]

    def _any(self, found: list[Tree]) -> list[Tree]:
        if not found:
            raise ValueError("the query joins streams only by a cross product")
        return found

    def _splits(self, streams: int) -> Iterator[tuple[int, int]]:
        """Every two parts of a set that have a join condition in common, the lowest stream in the first one."""
        lowest = streams & -streams
        rest = streams & ~lowest
        part = rest
        while part:
            if self._selectivity(streams & ~part, part) is not None:
                yield streams & ~part, part
            part = (part - 1) & rest

    def _selectivity(self, left: int, right: int) -> float | None:
        found = None
        for (a, b), share in self._query.selectivities.items():
            if (left >> a & 1 and right >> b & 1) or (left >> b & 1 and right >> a & 1):
                found = share if found is None else found * share
        return found

    def _leaf(self, stream: int) -> Tree:
        rate = self._query.rates[stream]
        return self._topped(1 << stream, None, None, None, rate, rate, 0.0, 0.0)

    def _join(self, left: Tree, right: Tree) -> Tree:
        query = self._query
        selectivity = self._selectivity(left.streams, right.streams)
        assert selectivity is not None, "only such parts are joined"
        join = WindowJoin(
            (left.output_rate, right.output_rate),
            query.window,
            selectivity,
            query.nested_seconds,
            query.hash_seconds,
            (query.buckets, query.buckets),
        )
        methods = self._methods(join)
        rows = 2 * query.window * selectivity * left.cardinality * right.cardinality
        return self._topped(
            left.streams | right.streams,
            left,
            right,
            methods,
            join.output_rate(query.form, methods=methods) if min(join.rates) else 0.0,
            rows,
            left.seconds + right.seconds + join.seconds(methods),
            left.cardinalities + right.cardinalities,
        )

    def _topped(
        self,
        streams: int,
        left: Tree | None,
        right: Tree | None,
        methods: tuple[Method, Method] | None,
        rate: float,
        rows: float,
        seconds: float,
        cardinalities: float,
    ) -> Tree:
        """A tree with the unary operators that belong right above it."""
        own = []
        for placed in self._query.operators:
            needed = sum(1 << stream for stream in placed.streams)
            below = [each.streams for each in (left, right) if each is not None]
            if needed & ~streams == 0 and all(needed & ~each for each in below):
                own.append(placed.operator)
        order = self._order(own)
        share = passing_share(order)
        return Tree(
            streams,
            left,
            right,
            order,
            methods,
            group_rate(order, rate),
            seconds + rate * processing_seconds(order),
            rows * share,
            cardinalities + (rows * share if left is not None else 0.0),
        )
