"""Conditions that differ in their numbers alone are parsed once.

Thousands of standing queries come from a few templates. The shape of a condition is its text with
every plain number as `?`. Where a condition is made of columns, numbers, operators and words only,
texts of one shape have the same tokens but for the numbers, hence the same tree.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from penstock.sql.conditions.nodes import (
    Between,
    Compare,
    Condition,
    Holds,
    Is,
    IsNull,
    Junction,
    Like,
    Member,
    Not,
    Operand,
    operands,
)
from penstock.sql.conditions.parsing import parse_condition
from penstock.sql.text.literals import number

_PLAIN = re.compile(r"[\w\s<>=!().,-]*", re.ASCII)
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", re.ASCII)
#: may be more than Spark reads
_LONG_NUMBER = re.compile(r"\d{19}")
_MAX_SHAPES = 10_000


@dataclass(frozen=True, slots=True)
class _Template:
    """The tree of the first condition of a shape, and where its numbers end."""

    condition: Condition
    ends: list[int]


class ConditionParser:
    """Parses conditions, remembering the shapes it has seen."""

    def __init__(self) -> None:
        self._templates: dict[str, _Template] = {}

    def parse(self, text: str) -> Condition:
        """As `parse_condition`."""
        if not _PLAIN.fullmatch(text) or "--" in text or _LONG_NUMBER.search(text):
            return parse_condition(text)
        shape = _NUMBER.sub("?", text)
        template = self._templates.get(shape)
        ends = [match.end() for match in _NUMBER.finditer(text)]
        if template is None:
            condition = parse_condition(text)
            if len(self._templates) < _MAX_SHAPES and all(
                operand.literal is not None or operand.column is not None for operand in operands(condition)
            ):
                self._templates[shape] = _Template(condition, ends)
            return condition
        return _Filling(text, template.ends, ends).condition(template.condition)


class _Filling:
    """Rebuilds a template's tree with the numbers of another text."""

    def __init__(self, text: str, template_ends: list[int], ends: list[int]) -> None:
        self.text = text
        self.template_ends = template_ends
        self.shifts = [0] + [end - old for old, end in zip(template_ends, ends, strict=True)]

    def place(self, position: int) -> int:
        """Where a position outside of numbers, or at the edge of one, is in the new text."""
        return position + self.shifts[bisect_right(self.template_ends, position)]

    def condition(self, node: Condition) -> Condition:
        start, end = self.place(node.start), self.place(node.end)
        match node:
            case Compare():
                return Compare(node.operator, self.operand(node.left), self.operand(node.right), start, end)
            case Between():
                low, high = self.operand(node.low), self.operand(node.high)
                return Between(self.operand(node.operand), low, high, start, end)
            case Member():
                items = tuple(self.operand(item) for item in node.items)
                return Member(self.operand(node.operand), items, start, end)
            case Like():
                escape = None if node.escape is None else self.operand(node.escape)
                return Like(
                    self.operand(node.operand), self.operand(node.pattern), escape, start, end, node.word
                )
            case IsNull():
                return IsNull(self.operand(node.operand), start, end)
            case Holds():
                return Holds(self.operand(node.operand), start, end)
            case Is():
                return Is(self.condition(node.child), node.truth, start, end)
            case Not():
                return Not(self.condition(node.child), start, end)
            case Junction():
                children = tuple(self.condition(child) for child in node.children)
                return Junction(children, node.conjunctive, start, end)

    def operand(self, node: Operand) -> Operand:
        start, end = self.place(node.start), self.place(node.end)
        text = self.text[start:end]
        if node.column is not None or node.literal is None:
            return Operand(text, start, end, None, node.column, node.names)
        literal = number(text.strip("() \t\r\n")) or node.literal
        return Operand(text, start, end, literal)
