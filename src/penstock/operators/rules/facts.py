"""Rules over facts: trees compiled for tuples whose values are known by number.

A *fact* is what may hold of one attribute's value: it lies in a set of regions, it matches a pattern, it equals another
attribute's, it is NULL. A
tree of tests becomes a tree over facts, and what a value is worth to all rules is the set of facts that hold of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.coding.regions import RegionCoding, region_coding, region_ranges
from penstock.plan.patterns import Form, TextPattern, escaped
from penstock.plan.selection import Attribute, SelectionSet
from penstock.plan.trees import EqualTexts, Every, Test, TextSet, Tree, tests
from penstock.plan.value_sets import ValueSet, complement

Facts = AbstractSet[int]
#: estimated cost of looking for a rule by a fact: the more tuples have it, the dearer
_NULL_COST, _REGION_COST, _POINT_COST, _REGEX_COST, _TEXT_COST = 50.0, 10.0, 1.0, 0.5, 20.0


class Node(NamedTuple):
    """A tree over facts.

    Attributes:
        is_every: whether all of it has to hold; otherwise a part is enough.
        held: facts that are to hold.
        failing: facts that are not to hold.
        parts: trees.
    """

    is_every: bool
    held: frozenset[int]
    failing: frozenset[int]
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class EqualColumns:
    """How an attribute's strings are compared with those of another column; see `EqualTexts`."""

    other: str
    forms: tuple[Form, Form]
    if_null: tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, eq=False)
class FactAttribute:
    """An attribute of rules and the facts of its values.

    Attributes:
        name: the column.
        coding: its regions; None for text.
        ranges: of each fact of regions the closed ranges of codes it holds for.
        patterns: what text is matched against.
        facts: the numbers of the facts, in the order of `ranges` or `patterns`.
        null_fact: the number of "it is NULL" for text, -1 where no rule asks.
        equal: the other column and how both are compared, where its fact is that they are equal.
    """

    name: str
    coding: RegionCoding | None
    ranges: tuple[tuple[tuple[int, int], ...], ...]
    patterns: tuple[TextPattern, ...]
    facts: tuple[int, ...]
    null_fact: int = -1
    equal: EqualColumns | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose values it needs."""
        return (self.name,) if self.equal is None else (self.name, self.equal.other)

    @property
    def is_text(self) -> bool:
        """Whether its values are looked at as distinct strings."""
        return self.coding is None


@dataclass(frozen=True, slots=True, eq=False)
class RulePlan:
    """Rules compiled for matching: immutable and picklable.

    Attributes:
        attributes: the attributes, in the order columns are handed over.
        queries: int32[rules], the number of each rule's query, ascending.
        nodes: the rules' trees.
        costs: float64[facts], how dear it is to look for rules by a fact.
        fact_attribute: int32[facts].
    """

    attributes: tuple[FactAttribute, ...]
    queries: npt.NDArray[np.int32]
    nodes: tuple[Node, ...]
    costs: npt.NDArray[np.float64]
    fact_attribute: npt.NDArray[np.int32]

    @property
    def columns(self) -> list[str]:
        """The columns to hand over: those of each attribute behind each other."""
        return [column for attribute in self.attributes for column in attribute.columns]


def compile_rules(selections: SelectionSet) -> RulePlan | None:
    """Compiles the queries of a selection set that are trees; None where none is."""
    rules = [
        (number, query.tree) for number, query in enumerate(selections.queries) if query.tree is not None
    ]
    if not rules:
        return None
    compiler = _Compiler(selections.attributes, [tree for _, tree in rules])
    nodes = tuple(compiler.node(tree) for _, tree in rules)
    queries = np.asarray([number for number, _ in rules], np.int32)
    costs, owners = np.asarray(compiler.costs), np.asarray(compiler.owners, np.int32)
    return RulePlan(compiler.attributes(), queries, nodes, costs, owners)


#: what may hold of a value; None: it is NULL
_What = TextPattern | ValueSet | EqualColumns | None


class _Compiler:
    """Numbers the facts of some trees."""

    def __init__(self, attributes: Sequence[Attribute], trees: Sequence[Tree]) -> None:
        self.costs: list[float] = []
        self.owners: list[int] = []
        self._attributes = attributes
        sets: dict[int, set[ValueSet]] = {}
        for tree in trees:
            for test in tests(tree):
                if isinstance(test.values, ValueSet):
                    sets.setdefault(test.attribute, set()).add(test.values)
        #: attributes whose sets are all of single strings: matched as patterns
        self._worded = {
            each
            for each, values in sets.items()
            if _is_text(attributes[each].type) and all(_strings(one) is not None for one in values)
        }
        self._codings = {
            each: region_coding(attributes[each], values)
            for each, values in sets.items()
            if each not in self._worded
        }
        #: place of a column's regions, of its text, and of its comparison with another column
        self._places: dict[tuple[str, bool | EqualColumns], int] = {}
        self._found: list[dict[_What, int]] = []
        self._of_place: list[tuple[int, EqualColumns | None]] = []

    def attributes(self) -> tuple[FactAttribute, ...]:
        """The attributes of the facts so far."""
        return tuple(map(self._attribute, range(len(self._found))))

    def _attribute(self, place: int) -> FactAttribute:
        (attribute, equal), found = self._of_place[place], self._found[place]
        name = self._attributes[attribute].name
        if equal is not None:
            return FactAttribute(name, None, (), (), (found[equal],), found.get(None, -1), equal)
        coding = self._codings.get(attribute)
        if coding is not None and (name, False) in self._places and self._places[name, False] == place:
            ranges = tuple(
                tuple(region_ranges(values, coding)) for values in found if isinstance(values, ValueSet)
            )
            return FactAttribute(name, coding, ranges, (), tuple(found.values()))
        patterns = {each: fact for each, fact in found.items() if isinstance(each, TextPattern)}
        return FactAttribute(name, None, (), tuple(patterns), tuple(patterns.values()), found.get(None, -1))

    def node(self, tree: Tree) -> Node:
        """A tree over facts."""
        if isinstance(tree, Test):
            return self._test(tree)
        is_every = isinstance(tree, Every)
        held: set[int] = set()
        failing: set[int] = set()
        parts: list[Node] = []
        for part in map(self.node, tree.parts):
            facts = len(part.held) + len(part.failing)
            if part.is_every is is_every or (facts == 1 and not part.parts):
                held |= part.held
                failing |= part.failing
                parts.extend(part.parts)
            else:
                parts.append(part)
        return Node(is_every, frozenset(held), frozenset(failing), tuple(parts))

    def _test(self, test: Test) -> Node:
        values = test.values
        if not isinstance(values, ValueSet):
            equal = self._equal_columns(values) if isinstance(values, EqualTexts) else None
            match = self._fact(
                test.attribute, values.pattern if isinstance(values, TextSet) else equal, equal
            )
            fact = frozenset((match,))
            if values.is_match is values.null:  # NULL has to be told apart
                null = frozenset((self._fact(test.attribute, None, equal),))
                return (
                    Node(False, fact | null, frozenset(), ())
                    if values.null
                    else Node(True, frozenset(), fact | null, ())
                )
            return Node(True, fact, frozenset(), ()) if values.is_match else Node(True, frozenset(), fact, ())
        if test.attribute not in self._worded:
            return Node(True, frozenset((self._fact(test.attribute, values),)), frozenset(), ())
        strings = _strings(values)
        assert strings is not None, "the others are regions"
        texts, is_member = strings
        facts = frozenset(self._fact(test.attribute, TextPattern("like", escaped(text))) for text in texts)
        if is_member is values.null:
            facts |= {self._fact(test.attribute, None)}
        return Node(False, facts, frozenset(), ()) if is_member else Node(True, frozenset(), facts, ())

    def _equal_columns(self, values: EqualTexts) -> EqualColumns:
        return EqualColumns(self._attributes[values.other].name, values.forms, values.if_null)

    def _fact(self, attribute: int, what: _What, equal: EqualColumns | None = None) -> int:
        name = self._attributes[attribute].name, equal or not isinstance(what, ValueSet)
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = len(self._found)
            # the fact of a comparison is numbered with its attribute
            self._found.append({} if equal is None else {equal: self._new(equal, place)})
            self._of_place.append((attribute, equal))
        found = self._found[place]
        if what not in found:
            found[what] = self._new(what, place)
        return found[what]

    def _new(self, what: _What, place: int) -> int:
        self.costs.append(_cost(what))
        self.owners.append(place)
        return len(self.costs) - 1


def _cost(what: _What) -> float:
    if what is None:
        return _NULL_COST
    if isinstance(what, EqualColumns):
        return _REGION_COST
    if isinstance(what, ValueSet):
        is_few = (
            all(each.low == each.high and each.low is not None for each in what.intervals) and not what.null
        )
        return _POINT_COST * len(what.intervals) if is_few else _REGION_COST
    if what.kind == "regex":
        return _REGEX_COST
    if what.kind == "length":
        return _TEXT_COST
    return _TEXT_COST / (1 + len(what.text.strip("%")))


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)  # type: ignore[no-any-return]


def _strings(values: ValueSet) -> tuple[list[str], bool] | None:
    """The strings a set consists of and True, or those that it leaves out and False; None: it is neither."""
    for each, is_member in ((values, True), (complement(values), False)):
        if all(one.low == one.high and isinstance(one.low, bytes) for one in each.intervals):
            texts = [one.low for one in each.intervals if isinstance(one.low, bytes)]
            try:
                return [text.decode() for text in texts], is_member
            except UnicodeDecodeError:
                return None
    return None


# What is known of some facts can be put into a tree.


def put_in(node: Node, known: Facts, held: Facts) -> Node | bool:
    """A tree where some facts are known.

    Args:
        node: the tree.
        known: facts that are known.
        held: those of them that hold.

    Returns:
        What is left of it, or whether it holds.
    """
    ends = not node.is_every
    if node.is_every:
        if not held.isdisjoint(node.failing) or not (node.held & known) <= held:
            return False
    elif not held.isdisjoint(node.held) or not (node.failing & known) <= held:
        return True
    parts: list[Node] = []
    for part in node.parts:
        left = put_in(part, known, held)
        if left is ends:
            return ends
        if not isinstance(left, bool):
            parts.append(left)
    own, failing = node.held - known, node.failing - known
    if not own and not failing:
        if not parts:
            return not ends
        if len(parts) == 1:
            return parts[0]
    return Node(node.is_every, own, failing, tuple(parts))


def holds(node: Node, held: Facts) -> bool:
    """Whether a tree holds of a tuple.

    Args:
        node: the tree.
        held: all facts that hold of the tuple.
    """
    if node.is_every:
        return (
            node.held <= held
            and node.failing.isdisjoint(held)
            and all(holds(part, held) for part in node.parts)
        )
    return (
        not node.held.isdisjoint(held)
        or not node.failing <= held
        or any(holds(part, held) for part in node.parts)
    )


def facts_of(node: Node) -> set[int]:
    """All facts that a tree names."""
    found = set(node.held | node.failing)
    for part in node.parts:
        found |= facts_of(part)
    return found


def cover(node: Node, costs: Sequence[float]) -> tuple[list[int], float] | None:
    """Facts one of which holds wherever a tree does, the cheapest such, with their cost; None: there are none.

    Args:
        node: the tree.
        costs: of each fact.
    """
    if node.is_every:
        found = [([fact], costs[fact]) for fact in node.held]
        found += [each for each in (cover(part, costs) for part in node.parts) if each is not None]
        return min(found, key=lambda each: each[1], default=None)
    if node.failing:
        return None
    covers = [cover(part, costs) for part in node.parts]
    if any(each is None for each in covers):
        return None
    facts = [*node.held, *(fact for each in covers if each is not None for fact in each[0])]
    return facts, sum(costs[fact] for fact in facts)
