"""Rules matched: tuples split into types by gates, types into classes by what holds of their values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.classes import spread
from penstock.kernels.compiled import filling
from penstock.operators.coding.encode import ColumnEncoder
from penstock.operators.rules.classes import TupleType
from penstock.operators.rules.coder import FactCoder
from penstock.operators.rules.facts import Node, RulePlan, compile_rules, cover, facts_of
from penstock.plan.patterns import TextPattern
from penstock.plan.selection import Attribute, Query, SelectionSet
from penstock.plan.trees import Some, Test, TextSet

#: an attribute is a gate where this share of the rules needs something of it alone
GATE_SHARE = 0.5
MOST_GATES = 3
#: types that gates may split tuples into: each looks at all rules once, 3 us a rule
MOST_TYPES = 1 << 8
#: signatures of all attributes, and classes of all types, that are kept
MOST_SIGNATURES = MOST_CLASSES = 1 << 18

_NO_LIMIT = 2**62


class RuleMatcher:
    """Matches batches against rules. Keeps types, classes and the numbers of values: one a thread.

    Args:
        plan: the rules.
        before: the matcher of other rules, which is used no more: known values of columns with the same patterns are kept.
    """

    def __init__(self, plan: RulePlan, before: RuleMatcher | None = None) -> None:
        self._plan = plan
        self._costs: list[float] = plan.costs.tolist()
        known = {} if before is None else {each.patterns: each.signature_encoder for each in before._coders}
        self._coders: list[FactCoder] = [
            FactCoder(attribute, known.pop((attribute.name, attribute.patterns), None))
            for attribute in plan.attributes
        ]
        ends = np.cumsum([len(attribute.columns) for attribute in plan.attributes]).tolist()
        #: which columns are each attribute's
        self._columns = [slice(*pair) for pair in pairwise([0, *ends])]
        self._arrange(gates(plan))

    @property
    def encoders(self) -> list[ColumnEncoder | None]:
        """What codes the values of each attribute of the plan; None for text."""
        return [coder.encoder for coder in self._coders]

    def match(
        self, columns: Sequence[pa.Array | pa.ChunkedArray], rows: int, most: int = _NO_LIMIT
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]] | None:
        """The queries each tuple satisfies.

        Args:
            columns: those of the plan, `rows` values each.
            rows: number of tuples.
            most: matches that two or more tuples may have.

        Returns:
            offsets, int64[rows + 1], and the numbers of queries, int32: tuple i satisfies
            queries[offsets[i]:offsets[i + 1]], ascending. None where there are more than `most`.

        Raises:
            TypeError: a column's type does not fit its attribute.
        """
        self._make_room()
        split = self._split(columns, rows)
        numbers = self._numbers(columns, rows, split)
        degrees = np.zeros(rows, np.int64)
        classified: list[tuple[TupleType, npt.NDArray[np.int64], npt.NDArray[np.int32]]] = []
        for kind, chosen in split:
            matrix = np.empty((len(kind.attributes), len(chosen)), np.uint32)
            for place, attribute in enumerate(kind.attributes):
                np.take(numbers[attribute], chosen, out=matrix[place])
            classes = kind.classify(matrix)
            degrees[chosen] = np.diff(kind.starts)[classes]
            classified.append((kind, chosen, classes))
        offsets = np.zeros(rows + 1, np.int64)
        np.cumsum(degrees, out=offsets[1:])
        if offsets[-1] > most and rows > 1:
            return None
        answer = np.empty(int(offsets[-1]), np.int32)
        for kind, chosen, classes in classified:
            spread(chosen, classes, kind.starts, kind.queries, offsets, answer)
        return offsets, answer

    def _arrange(self, chosen: Sequence[int]) -> None:
        """Takes some attributes as gates."""
        self._gates = list(chosen)
        is_gate = np.isin(self._plan.fact_attribute, self._gates)
        self._known = frozenset(np.flatnonzero(is_gate).tolist())
        costs = np.where(is_gate, self._plan.costs, np.inf).tolist()
        self._free: list[int] = []
        self._by_gate: dict[int, list[int]] = {}
        for rule, node in enumerate(self._plan.nodes):
            led = cover(node, costs) if self._gates else None
            if led is None or led[1] == np.inf:
                self._free.append(rule)
            else:
                for fact in led[0]:
                    self._by_gate.setdefault(fact, []).append(rule)
        self._types: dict[tuple[int, ...], TupleType] = {}

    def _make_room(self) -> None:
        """Forgets what is known where it is too much; what is needed again is found again."""
        if sum(coder.signatures for coder in self._coders) > MOST_SIGNATURES:
            for coder in self._coders:
                coder.forget()
            self._types.clear()
        if sum(kind.classes for kind in self._types.values()) > MOST_CLASSES:
            self._types.clear()

    def _split(
        self, columns: Sequence[pa.Array | pa.ChunkedArray], rows: int
    ) -> list[tuple[TupleType, npt.NDArray[np.int64]]]:
        """The types of the tuples that some rule may hold of, each with its tuples.

        A gate whose values split the tuples of a batch into too many types is a gate no more. Types of earlier batches are
        forgotten where they are many.
        """
        codes = {gate: self._coders[gate].numbers(columns[self._columns[gate]], None) for gate in self._gates}
        dense = {gate: np.unique(codes[gate], return_inverse=True)[1] for gate in self._gates}
        distinct = {gate: int(each.max(initial=-1)) + 1 for gate, each in dense.items()}
        while self._gates:
            key = np.zeros(rows, np.int64)
            for gate in self._gates:
                key = key * distinct[gate] + dense[gate]
            order = np.argsort(key, kind="stable")
            starts = np.flatnonzero(np.diff(key[order], prepend=-1))
            if len(starts) <= MOST_TYPES:
                if len(self._types) + len(starts) > 2 * MOST_TYPES:
                    self._types.clear()
                parts = np.split(order, starts[1:]) if rows else []
                typed = [
                    (self._type(tuple(int(codes[gate][part[0]]) for gate in self._gates)), part)
                    for part in parts
                ]
                return [(kind, part) for kind, part in typed if not kind.is_idle]
            widest = max(self._gates, key=lambda gate: distinct[gate])
            self._arrange([gate for gate in self._gates if gate != widest])
        kind = self._type(())
        return [] if kind.is_idle else [(kind, np.arange(rows))]

    def _type(self, key: tuple[int, ...]) -> TupleType:
        found = self._types.get(key)
        if found is None:
            held = frozenset().union(
                *(self._coders[gate].held(number) for gate, number in zip(self._gates, key, strict=True))
            )
            rules = set(self._free)
            for fact in held:
                rules.update(self._by_gate.get(fact, ()))
            found = TupleType(self._plan, self._costs, self._coders, sorted(rules), self._known, held)
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
            coder, own = self._coders[attribute], columns[self._columns[attribute]]
            if sum(map(len, parts)) == rows:
                numbers[attribute] = coder.numbers(own, None)
                continue
            chosen = np.sort(np.concatenate(parts))
            numbers[attribute] = np.empty(rows, np.uint32)
            numbers[attribute][chosen] = coder.numbers(own, chosen)
        return numbers


@filling()
def warm_up() -> None:
    """Compiles or loads the kernels, before a process forks or is timed."""
    attributes = tuple(Attribute(name, pa.string(), f"`{name}`") for name in ("a", "b"))
    patterns = [TextPattern("like", text, ("lower",)) for text in ("%a_b%", "%c%", "d%")]
    patterns += [TextPattern("like", "%e"), TextPattern("length", "3..")]
    tests = [Test(place, TextSet(each)) for place in (0, 1) for each in patterns]
    queries = tuple(Query(str(number), (), Some((one, tests[-number]))) for number, one in enumerate(tests))
    plan = compile_rules(SelectionSet(attributes, queries))
    assert plan is not None, "all queries are trees"
    values = [f"a{number}b" for number in range(4_096)]
    for column in (pa.array([*values, "a\u0130b", None]), pa.array([*values, *values]).dictionary_encode()):
        RuleMatcher(plan).match([column] * len(plan.columns), len(column))


def gates(plan: RulePlan) -> list[int]:
    """The attributes that split tuples into types: of which alone many rules need something.

    Args:
        plan: the rules.
    """
    counts = np.zeros(len(plan.attributes), np.int64)
    owners = plan.fact_attribute.tolist()
    for node in plan.nodes:
        counts[list(_needed(node, owners))] += 1
    order = np.argsort(-counts, kind="stable")[:MOST_GATES].tolist()
    return [each for each in order if counts[each] >= max(2, GATE_SHARE * len(plan.nodes))]


def _needed(node: Node, owners: Sequence[int]) -> set[int]:
    """The attributes of which alone a rule needs something; `owners` has that of each fact."""
    if not node.is_every:
        named = {owners[fact] for fact in facts_of(node)}
        return named if len(named) == 1 else set()
    found = {owners[fact] for fact in node.held | node.failing}
    for part in node.parts:
        found |= _needed(part, owners)
    return found
