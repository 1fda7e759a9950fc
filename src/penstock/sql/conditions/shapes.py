"""Conditions that differ in their numbers and strings alone are parsed once.

Thousands of standing queries come from a few templates. The shape of a condition is its text with
every plain number as `?` and every plain string as `''`. Where a condition is made of columns, such constants, operators and
words only, texts of one shape have the same tokens but for the constants, hence the same tree.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from penstock.sql.conditions.nodes import Condition, Operand, operands
from penstock.sql.conditions.parsing import parse_condition
from penstock.sql.text.literals import Kind, Literal, number, string

#: no string stands beside a word or another string, which would make another literal of both
_STRING = r"(?<![\w'])'[^'\\]*'(?![\w'])"
#: a regular expression of the texts that may have a shape
PLAIN = rf"(?:[\w\s<>=!().,*+-]++|{_STRING})*+"
_PLAIN = re.compile(PLAIN, re.ASCII)
_CONSTANT = re.compile(rf"{_STRING}|(?<![\w.])\d+(?:\.\d+)?(?![\w.])", re.ASCII)
_ONE_STRING = re.compile(r"'[^'\\]*'")
#: may be more than Spark reads
_LONG_NUMBER = re.compile(r"\d{19}")
_MAX_SHAPES = 10_000


def shape(text: str) -> str | None:
    """The shape of a text; None where texts of its shape may have other tokens."""
    if not _PLAIN.fullmatch(text) or "--" in text:
        return None
    return _CONSTANT.sub(_mark, text)


def constants(text: str) -> list[int]:
    """Where the constants of a text that has a shape end."""
    return [match.end() for match in _CONSTANT.finditer(text)]


@dataclass(frozen=True, slots=True)
class _Template:
    """The tree of the first condition of a shape, and where its constants end."""

    condition: Condition
    ends: list[int]


class ConditionParser:
    """Parses conditions, remembering the shapes it has seen."""

    def __init__(self) -> None:
        self._templates: dict[str, _Template] = {}

    def parse(self, text: str) -> Condition:
        """As `parse_condition`."""
        key = shape(text)
        if key is None or _LONG_NUMBER.search(text):
            return parse_condition(text)
        template = self._templates.get(key)
        ends = constants(text)
        if template is None:
            condition = parse_condition(text)
            if len(self._templates) < _MAX_SHAPES and all(map(_is_plain, operands(condition))):
                self._templates[key] = _Template(condition, ends)
            return condition
        return _Filling(text, template.ends, ends).condition(template.condition)


def _mark(constant: re.Match[str]) -> str:
    return "''" if constant[0][0] == "'" else "?"


def _is_plain(operand: Operand) -> bool:
    """Whether an operand is a column, or a literal that its constant alone decides."""
    if operand.literal is None:
        return operand.column is not None
    return "'" not in operand.text or _ONE_STRING.fullmatch(operand.text) is not None


class _Filling:
    """Rebuilds a template's tree with the constants of another text."""

    def __init__(self, text: str, template_ends: list[int], ends: list[int]) -> None:
        self.text = text
        self.template_ends = template_ends
        self.shifts = [0] + [end - old for old, end in zip(template_ends, ends, strict=True)]

    def place(self, position: int) -> int:
        """Where a position outside of constants, or at the edge of one, is in the new text."""
        return position + self.shifts[bisect_right(self.template_ends, position)]

    def condition(self, node: Condition) -> Condition:
        """A part of the template's tree, whose fields are operands, parts, places, or the same for all texts."""
        fields = {name: self.field(name, getattr(node, name)) for name in node.__slots__}
        return type(node)(**fields)

    def field(self, name: str, value: Any) -> Any:
        if name in ("start", "end"):
            return self.place(value)
        if isinstance(value, Operand):
            return self.operand(value)
        if isinstance(value, tuple):
            return tuple(self.field("", each) for each in value)
        return self.condition(value) if hasattr(value, "start") else value

    def operand(self, node: Operand) -> Operand:
        start, end = self.place(node.start), self.place(node.end)
        text = self.text[start:end]
        if node.column is not None or node.literal is None:
            return Operand(text, start, end, None, node.column, node.names)
        if text[0] == "'":
            return Operand(text, start, end, Literal(Kind.STRING, string(text)))
        literal = number(text.strip("() \t\r\n")) or node.literal
        return Operand(text, start, end, literal)
