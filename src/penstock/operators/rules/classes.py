"""The rules that one type of tuple leaves, and what they answer for each class of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from penstock.kernels.classes import number_classes
from penstock.operators.rules.coder import FactCoder
from penstock.operators.rules.facts import Facts, Node, RulePlan, cover, facts_of, holds, put_in

#: slots of the first table of classes
_SLOTS = 1 << 10


class TupleType:
    """The rules that are left where the values of the gates are known, and the classes of tuples seen so far.

    Tuples with equal numbers in all attributes that are left are one class. Each class is judged once.

    Args:
        plan: the rules.
        costs: of each fact, as the plan has them.
        coders: one an attribute.
        rules: the rules that may hold.
        known: the facts of the gates.
        held: those of them that hold.
    """

    def __init__(
        self,
        plan: RulePlan,
        costs: Sequence[float],
        coders: Sequence[FactCoder],
        rules: Iterable[int],
        known: Facts,
        held: Facts,
    ) -> None:
        self._coders = coders
        #: numbers of queries that hold whatever the other attributes are
        self._given: list[int] = []
        self._rules: list[tuple[int, Node]] = []
        for rule in rules:
            left = put_in(plan.nodes[rule], known, held)
            if left is True:
                self._given.append(int(plan.queries[rule]))
            elif left is not False:
                self._rules.append((int(plan.queries[rule]), left))
        self._unled: list[int] = []
        self._by_fact: dict[int, list[int]] = {}
        used: set[int] = set()
        for place, (_, node) in enumerate(self._rules):
            used |= facts_of(node)
            covered = cover(node, costs)
            if covered is None:
                self._unled.append(place)
                continue
            for fact in covered[0]:
                self._by_fact.setdefault(fact, []).append(place)
        #: attributes that the rules left name
        self.attributes: list[int] = sorted({int(plan.fact_attribute[fact]) for fact in used})
        #: the queries of class c are queries[starts[c]:starts[c + 1]], ascending
        self.starts = np.zeros(1, np.int64)
        self.queries = np.zeros(0, np.int32)
        self._count = 0
        self._slots = np.full(_SLOTS, -1, np.int32)
        self._members = np.zeros((_SLOTS // 2, len(self.attributes)), np.uint32)

    @property
    def is_idle(self) -> bool:
        """Whether no rule can hold of such tuples."""
        return not self._rules and not self._given

    @property
    def classes(self) -> int:
        """How many classes are known."""
        return self._count

    def classify(self, numbers: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
        """The class of each tuple, int32[tuples]; new classes are judged.

        Args:
            numbers: uint32[attributes, tuples].
        """
        classes = np.empty(numbers.shape[1], np.int32)
        while True:
            count = number_classes(numbers, self._slots, self._members, self._count, classes)
            if count >= 0:
                break
            size = 4 * len(self._slots)
            members = np.zeros((size // 2, len(self.attributes)), np.uint32)
            members[: self._count] = self._members[: self._count]
            self._slots, self._members = np.full(size, -1, np.int32), members
            known = np.ascontiguousarray(members[: self._count].T)
            number_classes(known, self._slots, members, 0, np.empty(self._count, np.int32))
        if count > self._count:
            answers = [self._judge(member) for member in self._members[self._count : count].tolist()]
            ends = self.starts[-1] + np.cumsum([len(each) for each in answers])
            self.starts = np.concatenate([self.starts, ends])
            self.queries = np.concatenate([self.queries, *answers])
            self._count = count
        return classes

    def _judge(self, member: Sequence[int]) -> npt.NDArray[np.int32]:
        held: set[int] = set()
        for attribute, number in zip(self.attributes, member, strict=True):
            held |= self._coders[attribute].held(number)
        places = set(self._unled)
        for fact in held:
            places.update(self._by_fact.get(fact, ()))
        found = [self._rules[place][0] for place in places if holds(self._rules[place][1], held)]
        return np.asarray(sorted([*found, *self._given]), np.int32)
