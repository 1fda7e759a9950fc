"""What planning a join goes by: rates, selectivities and what pieces of the work take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log2

#: selectivity of a key of which nothing is known yet
UNKNOWN_SELECTIVITY = 0.001


def search_steps(rows: float, tuples: float) -> float:
    """Steps of searching sorted tuples for rows in the same order: for each the logarithm of how many are passed over."""
    return rows * (1 + log2(1 + tuples / rows)) if rows else 0.0


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """What pieces of a join's work take, in seconds of a processor. The defaults are of the order of compiled loops.

    Attributes:
        probe: to search sorted tuples for one row, for each step of the search (see `search_steps`).
        pair: to look at a tuple that was found.
        output: to put out a row.
        nested: to look at a tuple within the bound by nested loops.
        build: to put a tuple in a table.
        lookup: to search a table for one row.
    """

    probe: float = 10e-9
    pair: float = 5e-9
    output: float = 20e-9
    nested: float = 2e-9
    build: float = 40e-9
    lookup: float = 60e-9

    def times(self, factor: float) -> UnitCosts:
        """All of them, so many times as large."""
        return UnitCosts(
            self.probe * factor,
            self.pair * factor,
            self.output * factor,
            self.nested * factor,
            self.build * factor,
            self.lookup * factor,
        )


@dataclass(frozen=True, slots=True)
class JoinStatistics:
    """What is known of the inputs of a join and of the executor.

    Attributes:
        rates: by input, new tuples a second that take part; 0 for a static table.
        sizes: by input, tuples of a static table; 0 for a stream.
        equal: by (key, input, input), the lower input first: share of pairs of tuples that are equal in the key.
        satisfied: by (input, input), the lower first: share of the pairs with equal keys whose comparisons are satisfied;
            1 where not given.
        delays: by input, seconds its tuples arrive behind their event time; all 0 where empty.
        cut_seconds: time between cuts; tables are made once a cut.
        costs: of the work.
        densities: by input, new tuples that take part for each second of event time; as many as in a second where empty. A replay, or
            a backlog, goes through more event time in a second.
    """

    rates: tuple[float, ...]
    sizes: tuple[float, ...]
    equal: Mapping[tuple[int, int, int], float]
    satisfied: Mapping[tuple[int, int], float] = field(default_factory=dict)
    delays: tuple[float, ...] = ()
    cut_seconds: float = 1.0
    costs: UnitCosts = field(default_factory=UnitCosts)
    densities: tuple[float, ...] = ()

    def equal_share(self, key: int, left: int, right: int) -> float:
        """Selectivity of a key between two inputs, in either order."""
        return self.equal.get((key, min(left, right), max(left, right)), UNKNOWN_SELECTIVITY)

    def satisfied_share(self, left: int, right: int) -> float:
        """Selectivity of the comparisons between two inputs, in either order."""
        return self.satisfied.get((min(left, right), max(left, right)), 1.0)

    def density(self, stream: int) -> float:
        """Tuples of an input for each second of event time."""
        return self.densities[stream] if self.densities else self.rates[stream]

    def pace(self, stream: int) -> float:
        """Seconds of event time that an input goes through in a second; 1 of one that brings nothing."""
        density = self.density(stream)
        return self.rates[stream] / density if density and self.rates[stream] else 1.0

    def delay(self, stream: int) -> float:
        """Seconds the tuples of an input arrive behind their event time."""
        return self.delays[stream] if self.delays else 0.0
