"""The conditions of window views judged once for each class of tuples: those with equal region codes.

Conditions over the same attributes are a *block*. Which of them a tuple satisfies depends on its codes there alone, so each
class is matched once and kept. Where too many tuples of a batch are of new classes, tuples are matched one by one
for some batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.classes import number_classes
from penstock.operators.ingest.outcomes import Kind, Outcomes
from penstock.operators.selection.selector import SelectionPlan, Selector
from penstock.operators.windows.satisfied import Part, Satisfied

#: a tuple is aggregated once for each block: with more of them tuples are matched one by one
_MOST_BLOCKS = 4
#: of a batch at most this share of the tuples, or so many, are of new classes
_NEW_SHARE, _NEW_CLASSES = 1 / 8, 4_096
#: classes of a block are forgotten when there are so many
_MOST_CLASSES = 1 << 17
#: batches that are matched tuple by tuple before classes are tried again
_REST = 64

Ints = npt.NDArray[np.int32]


class ConditionClasses:
    """Classes of tuples that are kept from batch to batch.

    Args:
        plan: queries that are conditions of windows alone, without trees.
        outcomes: which condition each is.
        selector: matches the tuples of new classes.
    """

    def __init__(self, plan: SelectionPlan, outcomes: Outcomes, selector: Selector) -> None:
        coded = plan.coded
        self._selector = selector
        self._numbers = outcomes.numbers
        self._count = outcomes.conditions
        attributes: list[set[int]] = [set() for _ in coded.names]
        for term, query in enumerate(coded.term_query.tolist()):
            own = coded.predicate_attribute[coded.term_start[term] : coded.term_start[term + 1]]
            attributes[query].update(own.tolist())
        blocks: dict[tuple[int, ...], list[int]] = {}
        for query, own_attributes in enumerate(attributes):
            blocks.setdefault(tuple(sorted(own_attributes)), []).append(query)
        self._blocks = [_Block(own, queries, len(coded.names)) for own, queries in blocks.items()]
        self._resting = 0

    @classmethod
    def of(cls, plan: SelectionPlan, outcomes: Outcomes, selector: Selector) -> ConditionClasses | None:
        """Those of a program; None where it asks for more than the conditions of windows, or conditions name too many
        combinations of attributes."""
        if plan.rules is not None or not len(outcomes.kinds) or (outcomes.kinds != Kind.CONDITION).any():
            return None
        found = cls(plan, outcomes, selector)
        return found if len(found._blocks) <= _MOST_BLOCKS else None

    def match(self, columns: Sequence[pa.Array], rows: int) -> Satisfied | None:
        """The conditions that each tuple satisfies; None where they are to be matched one by one.

        Args:
            columns: as `Selector.match` takes them.
            rows: number of tuples.
        """
        if self._resting:
            self._resting -= 1
            return None
        codes, _ = self._selector.encode(columns)
        most = max(_NEW_CLASSES, int(rows * _NEW_SHARE))
        parts = []
        for block in self._blocks:
            own = [codes[attribute].astype(np.uint32) for attribute in block.attributes]
            classes = block.classify(np.stack(own) if own else np.zeros((0, rows), np.uint32), most)
            if classes is None:
                self._resting = _REST
                return None
            fresh = np.flatnonzero(classes >= block.judged)
            if len(fresh):
                _, first = np.unique(classes[fresh], return_index=True)
                places = pa.array(fresh[first])
                found = self._selector.match([column.take(places) for column in columns], len(places))
                block.judge(found.offsets, found.queries, self._numbers)
            parts.append(Part(block.offsets, block.conditions, classes, block.family))
        return Satisfied(rows, parts, self._count)


class _Block:
    """The classes of one block.

    Args:
        attributes: their numbers.
        queries: the queries over them.
        count: queries are below it.
    """

    def __init__(self, attributes: tuple[int, ...], queries: Sequence[int], count: int) -> None:
        self.attributes = attributes
        self._is_own = np.zeros(count, np.bool_)
        self._is_own[list(queries)] = True
        self._known: int
        self._members: npt.NDArray[np.uint32]
        self._slots: Ints
        #: class c satisfies conditions[offsets[c]:offsets[c + 1]]
        self.offsets: npt.NDArray[np.int64]
        self.conditions: Ints
        #: another one when classes are forgotten
        self.family: object
        self._forget()

    @property
    def judged(self) -> int:
        """How many classes have been matched."""
        return len(self.offsets) - 1

    def classify(self, codes: npt.NDArray[np.uint32], most: int) -> Ints | None:
        """The class of each tuple, int32[rows]; None where more than so many classes are new.

        Args:
            codes: uint32[attributes, rows].
            most: see above.
        """
        if self.judged > _MOST_CLASSES:
            self._forget()
        classes = np.empty(codes.shape[1], np.int32)
        while True:
            count = number_classes(codes, self._slots, self._members, self._known, classes)
            if count >= 0:
                break
            if len(self._members) > 4 * (self.judged + most):
                self._forget()
                return None
            self._make_room()
        if count - self.judged > most:
            self._forget()
            return None
        self._known = count
        return classes

    def judge(self, offsets: npt.NDArray[np.int64], queries: Ints, numbers: Ints) -> None:
        """Keeps what the new classes satisfy.

        Args:
            offsets, queries: of one tuple of each, as in `Matches`.
            numbers: int32[queries], the condition of each.
        """
        is_own = self._is_own[queries]
        ends = np.append(0, np.cumsum(is_own))[offsets[1:]]
        self.offsets = np.concatenate([self.offsets, self.offsets[-1] + ends])
        self.conditions = np.concatenate([self.conditions, numbers[queries[is_own]]])

    def _make_room(self) -> None:
        members = np.zeros((4 * len(self._members), len(self.attributes)), np.uint32)
        members[: self._known] = self._members[: self._known]
        self._slots, self._members = np.full(2 * len(members), -1, np.int32), members
        known = np.ascontiguousarray(members[: self._known].T)
        number_classes(known, self._slots, members, 0, np.empty(self._known, np.int32))

    def _forget(self) -> None:
        self._known, self.family = 0, object()
        self._members = np.zeros((1 << 10, len(self.attributes)), np.uint32)
        self._slots = np.full(1 << 11, -1, np.int32)
        self.offsets, self.conditions = np.zeros(1, np.int64), np.zeros(0, np.int32)
