"""Rules matched: tuples split into types by gates, types into classes by what holds of their values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.rules.classes import TupleType
from penstock.operators.rules.coder import FactCoder
from penstock.operators.rules.facts import Node, RulePlan, cover, facts_of

#: an attribute is a gate where this share of the rules needs something of it alone
GATE_SHARE = 0.5
MOST_GATES = 3
#: types that are kept; with more they are found anew
MOST_TYPES = 1 << 12


class RuleMatcher:
    """Matches batches against rules. Keeps types, classes and the numbers of values: one a thread.

    Args:
        plan: the rules.
    """

    def __init__(self, plan: RulePlan) -> None:
        self._plan = plan
        self._coders = [FactCoder(attribute) for attribute in plan.attributes]
        self._gates = gates(plan)
        self._known = frozenset(
            fact for fact, owner in enumerate(plan.fact_attribute.tolist()) if owner in self._gates
        )
        self._free: list[int] = []
        self._by_gate: dict[int, list[int]] = {}
        for rule, node in enumerate(plan.nodes):
            led = _gate_cover(node, plan, self._gates)
            if led is None:
                self._free.append(rule)
            else:
                for fact in led:
                    self._by_gate.setdefault(fact, []).append(rule)
        self._types: dict[tuple[int, ...], TupleType] = {}

    def match(
        self, columns: Sequence[pa.Array | pa.ChunkedArray], rows: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """The queries each tuple satisfies.

        Args:
            columns: one an attribute of the plan, `rows` values each.
            rows: number of tuples.

        Returns:
            offsets, int64[rows + 1], and the numbers of queries, int32: tuple i satisfies
            queries[offsets[i]:offsets[i + 1]], ascending.

        Raises:
            TypeError: a column's type does not fit its attribute.
        """
        split = self._split(columns, rows)
        numbers = self._numbers(columns, rows, split)
        degrees = np.zeros(rows, np.int64)
        found: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32]]] = []
        for kind, chosen in split:
            matrix = np.empty((len(kind.attributes), len(chosen)), np.uint32)
            for place, attribute in enumerate(kind.attributes):
                np.take(numbers[attribute], chosen, out=matrix[place])
            sizes, queries = kind.answer(matrix)
            if len(queries):
                hot = np.flatnonzero(sizes)
                degrees[chosen[hot]] = sizes[hot]
                found.append((chosen[hot], sizes[hot], queries))
        offsets = np.zeros(rows + 1, np.int64)
        np.cumsum(degrees, out=offsets[1:])
        answer = np.empty(int(offsets[-1]), np.int32)
        for hot_rows, sizes, queries in found:
            ends = np.cumsum(sizes)
            within = np.arange(len(queries)) - np.repeat(ends - sizes, sizes)
            answer[np.repeat(offsets[hot_rows], sizes) + within] = queries
        return offsets, answer

    def _split(
        self, columns: Sequence[pa.Array | pa.ChunkedArray], rows: int
    ) -> list[tuple[TupleType, npt.NDArray[np.int64]]]:
        """The types of the tuples that some rule may hold of, each with its tuples."""
        if not self._gates:
            return self._kept([((), np.arange(rows))])
        codes = [self._coders[gate].numbers(columns[gate], None) for gate in self._gates]
        key = codes[0].astype(np.int64)
        for each in codes[1:]:
            key = key * (int(each.max(initial=0)) + 1) + each
        order = np.argsort(key, kind="stable")
        starts = np.flatnonzero(np.diff(key[order], prepend=-1))
        parts = np.split(order, starts[1:])
        return self._kept(
            [(tuple(int(each[part[0]]) for each in codes), part) for part in parts if len(part)]
        )

    def _kept(
        self, parts: Sequence[tuple[tuple[int, ...], npt.NDArray[np.int64]]]
    ) -> list[tuple[TupleType, npt.NDArray[np.int64]]]:
        if len(self._types) > MOST_TYPES:
            self._types.clear()
        typed = [(self._type(key), part) for key, part in parts]
        return [(kind, part) for kind, part in typed if not kind.is_idle]

    def _type(self, key: tuple[int, ...]) -> TupleType:
        found = self._types.get(key)
        if found is None:
            held = frozenset().union(
                *(self._coders[gate].held(number) for gate, number in zip(self._gates, key, strict=True))
            )
            rules = set(self._free)
            for fact in held:
                rules.update(self._by_gate.get(fact, ()))
            found = TupleType(self._plan, self._coders, sorted(rules), self._known, held)
            self._types[key] = found
        return found

    def _numbers(
        self,
        columns: Sequence[pa.Array | pa.ChunkedArray],
        rows: int,
        split: Sequence[tuple[TupleType, npt.NDArray[np.int64]]],
    ) -> dict[int, npt.NDArray[np.uint32]]:
        """The numbers of the values that the types need, by attribute; others are not set."""
        needed: dict[int, list[npt.NDArray[np.int64]]] = {}
        for kind, chosen in split:
            for attribute in kind.attributes:
                needed.setdefault(attribute, []).append(chosen)
        numbers: dict[int, npt.NDArray[np.uint32]] = {}
        for attribute, parts in needed.items():
            coder, column = self._coders[attribute], columns[attribute]
            if sum(map(len, parts)) == rows:
                numbers[attribute] = coder.numbers(column, None)
                continue
            chosen = np.sort(np.concatenate(parts))
            numbers[attribute] = np.empty(rows, np.uint32)
            numbers[attribute][chosen] = coder.numbers(column, chosen)
        return numbers


def gates(plan: RulePlan) -> list[int]:
    """The attributes that split tuples into types: of which alone many rules need something.

    Args:
        plan: the rules.
    """
    counts = np.zeros(len(plan.attributes), np.int64)
    for node in plan.nodes:
        counts[list(_needed(node, plan))] += 1
    order = np.argsort(-counts, kind="stable")[:MOST_GATES].tolist()
    return [each for each in order if counts[each] >= max(2, GATE_SHARE * len(plan.nodes))]


def _needed(node: Node, plan: RulePlan) -> set[int]:
    """The attributes of which alone a rule needs something."""
    if not node.is_every:
        owners = {int(plan.fact_attribute[fact]) for fact in facts_of(node)}
        return owners if len(owners) == 1 else set()
    found = {int(plan.fact_attribute[fact]) for fact in node.held | node.failing}
    for part in node.parts:
        found |= _needed(part, plan)
    return found


def _gate_cover(node: Node, plan: RulePlan, chosen: Sequence[int]) -> list[int] | None:
    """Facts of the gates one of which holds wherever a rule does; None: there are none."""
    costs = np.where(np.isin(plan.fact_attribute, chosen), plan.costs, np.inf)
    found = cover(node, costs)
    return found[0] if found is not None and np.isfinite(found[1]) else None
