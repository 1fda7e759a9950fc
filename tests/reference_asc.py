"""The shared selection of Lee & Lee, written literally: lists of bits, one tuple at a time.

Slow on purpose. `Asc.qrb[r][j]` is the paper's bit j of region r; regions are region codes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from penstock.operators.coding.regions import CodedSelections

Tuple = tuple[int, ...]


@dataclass
class Asc:
    qub: list[int]
    qrb: list[list[int]]


@dataclass
class Run:
    grb: list[int]
    evaluated: list[int]
    micro_arrows: int

    @property
    def cost(self) -> int:
        return len(self.evaluated)


class Reference:
    def __init__(self, ascs: list[Asc]) -> None:
        self.ascs = ascs
        self.k = len(ascs[0].qub)
        self.used = [a for a, asc in enumerate(ascs) if any(asc.qub)]

    @classmethod
    def of(cls, coded: CodedSelections) -> Reference:
        k = len(coded.term_query)
        ascs = [Asc([0] * k, [[1] * k for _ in range(c.codes)]) for c in coded.codings]
        for term in range(k):
            for p in range(coded.term_start[term], coded.term_start[term + 1]):
                asc = ascs[coded.predicate_attribute[p]]
                asc.qub[term] = 1
                ranges = range(coded.predicate_start[p], coded.predicate_start[p + 1])
                for code, qrb in enumerate(asc.qrb):
                    qrb[term] = int(any(coded.range_low[r] <= code <= coded.range_high[r] for r in ranges))
        return cls(ascs)

    def cab(self, attribute: int, region: int) -> list[int]:
        qrb = self.ascs[attribute].qrb[region]
        return [int(j != attribute and any(both(qrb, asc.qub))) for j, asc in enumerate(self.ascs)]

    def evaluate(
        self, row: Tuple, order: list[int], micro: dict[tuple[int, int], int], steps: int = 0
    ) -> Run:
        """Follows an arrangement until GRB = 0 or, where `steps` is given, that many ASCs are visited."""
        grb, geb = [1] * self.k, [0] * len(self.ascs)
        evaluated: list[int] = []
        micro_arrows = 0
        while any(grb) and len(evaluated) < (steps or len(order)):
            came_from = (evaluated[-1], row[evaluated[-1]]) if evaluated else None
            if came_from in micro and not geb[micro[came_from]]:
                here = micro[came_from]
                micro_arrows += 1
            else:
                here = next(a for a in order if not geb[a])
            geb[here] = 1
            evaluated.append(here)
            grb = both(grb, self.ascs[here].qrb[row[here]])
        return Run(grb, evaluated, micro_arrows)

    def covers(self, sequence: list[int]) -> bool:
        every = [any(asc.qub[j] for asc in self.ascs) for j in range(self.k)]
        return [any(self.ascs[a].qub[j] for a in sequence) for j in range(self.k)] == every

    def macro_sequence(self, periods: list[list[Tuple]]) -> tuple[list[int], list[float]]:
        """The order, and every ASC's individual selectivity (of the first period)."""
        order: list[int] = []
        individual = [1.0] * len(self.ascs)
        for period in periods:
            rest = [a for a in self.used if a not in order]
            uncovered = [j for j in range(self.k) if not any(self.ascs[a].qub[j] for a in order)]
            if not order:
                for a in rest:
                    passed = sum(sum(self.ascs[a].qrb[row[a]]) for row in period)
                    individual[a] = passed / (self.k * len(period))
            if not self.covers(order):
                measure = {
                    a: sum(self.grb(row, [*order, a])[j] for row in period for j in uncovered) for a in rest
                }
                best = min(rest, key=lambda a: (measure[a], individual[a], a))
            else:
                dropped = {a: sum(not any(self.grb(row, [*order, a])) for row in period) for a in rest}
                best = min(rest, key=lambda a: (-dropped[a], individual[a], a))
            order.append(best)
        order += [a for a in self.used if a not in order]
        return order, individual

    def grb(self, row: Tuple, sequence: list[int]) -> list[int]:
        bits = [1] * self.k
        for a in sequence:
            bits = both(bits, self.ascs[a].qrb[row[a]])
        return bits

    def hybrid_sequence(
        self, order: list[int], individual: list[float], periods: list[list[Tuple]]
    ) -> dict[tuple[int, int], int]:
        """Micro-arrows by (ASC, region): one step a period, tuples of one region pooled.

        A region reached in several periods is decided by the one in which most tuples reach it.

        A tuple that has evaluated a candidate already would take its macro-arrow instead, as it
        does when the sequence runs, and is measured so.
        """
        micro: dict[tuple[int, int], int] = {}
        decided_by: dict[tuple[int, int], int] = {}
        for depth, period in enumerate(periods, start=1):
            pools: dict[tuple[int, int], list[tuple[Tuple, list[int]]]] = defaultdict(list)
            for row in period:
                run = self.evaluate(row, order, micro, steps=depth)
                region = (run.evaluated[-1], row[run.evaluated[-1]])
                if any(run.grb):
                    pools[region].append((row, run.evaluated))
            for (attribute, region), pool in pools.items():
                if len(pool) <= decided_by.get((attribute, region), 0):
                    continue
                decided_by[attribute, region] = len(pool)
                micro.pop((attribute, region), None)
                covering = all(self.covers(path) for _, path in pool)

                def measure(candidate: int | None, pool=pool, covering=covering) -> float:
                    passed = alive = dropped = 0
                    for row, path in pool:
                        macro = next(a for a in order if a not in path)
                        grb = self.grb(row, path)
                        following = macro if candidate is None or candidate in path else candidate
                        left = both(grb, self.ascs[following].qrb[row[following]])
                        alive, passed = alive + sum(grb), passed + sum(left)
                        dropped += not any(left)
                    return -dropped / len(pool) if covering else passed / alive

                cab = self.cab(attribute, region)
                candidates = [a for a in self.used if cab[a] and any(a not in path for _, path in pool)]
                if candidates:
                    best = min(candidates, key=lambda a: (measure(a), individual[a], a))
                    if measure(best) <= measure(None):
                        micro[attribute, region] = best
        return micro


def both(left: list[int], right: list[int]) -> list[int]:
    return [x & y for x, y in zip(left, right, strict=True)]
