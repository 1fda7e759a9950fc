"""Trees of conditions: predicates over operands that stay text, under AND, OR, NOT and IS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as OneOf

from penstock.sql.text.literals import Literal

#: the operator that says the same with its sides exchanged
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}


@dataclass(frozen=True, slots=True)
class Call:
    """A function of operands.

    Attributes:
        function: its name in upper case.
        arguments: what it is called with; those of `position(a IN b)` are a and b.
    """

    function: str
    arguments: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A side of a predicate: a literal, a column, or text that only Spark reads.

    Attributes:
        text: Spark SQL.
        start, end: where it is, as offsets in the condition's text.
        literal: its value if it is a literal that needs no session to be read.
        column: the column's name if it is a bare name.
        names: upper-cased words in it, quoted names apart from their quotes; () for a literal.
        call: what it is where it is one call of a function by a bare name.
    """

    text: str
    start: int
    end: int
    literal: Literal | None = None
    column: str | None = None
    names: tuple[str, ...] = ()
    call: Call | None = None


@dataclass(frozen=True, slots=True)
class Compare:
    """`left operator right`; the operator is one of `= < <= > >= <=>`."""

    operator: str
    left: Operand
    right: Operand
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Between:
    """`operand BETWEEN low AND high`."""

    operand: Operand
    low: Operand
    high: Operand
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Member:
    """`operand IN (items)`."""

    operand: Operand
    items: tuple[Operand, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Like:
    """`operand LIKE pattern [ESCAPE escape]`, or the same with ILIKE or RLIKE."""

    operand: Operand
    pattern: Operand
    escape: Operand | None
    start: int
    end: int
    word: OneOf["LIKE", "ILIKE", "RLIKE"] = "LIKE"


@dataclass(frozen=True, slots=True)
class IsNull:
    """`operand IS NULL`."""

    operand: Operand
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Holds:
    """A boolean operand, or a predicate that only Spark evaluates."""

    operand: Operand
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Is:
    """`child IS TRUE`, `FALSE` or `UNKNOWN` (None)."""

    child: Condition
    truth: bool | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT child`."""

    child: Condition
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Junction:
    """A conjunction or a disjunction."""

    children: tuple[Condition, ...]
    conjunctive: bool
    start: int
    end: int


Predicate = Compare | Between | Member | Like | IsNull | Holds
Condition = Predicate | Is | Not | Junction


def predicates(condition: Condition) -> Iterator[Predicate]:
    """The leaves of a condition, from left to right."""
    match condition:
        case Junction(children=children):
            for child in children:
                yield from predicates(child)
        case Not(child=child) | Is(child=child):
            yield from predicates(child)
        case _:
            yield condition


def operands(condition: Condition) -> Iterator[Operand]:
    """The operands of a condition's predicates, from left to right."""
    for predicate in predicates(condition):
        match predicate:
            case Compare(left=left, right=right):
                yield from (left, right)
            case Between(operand=operand, low=low, high=high):
                yield from (operand, low, high)
            case Member(operand=operand, items=items):
                yield from (operand, *items)
            case Like(operand=operand, pattern=pattern, escape=escape):
                yield from (operand, pattern) if escape is None else (operand, pattern, escape)
            case IsNull(operand=operand) | Holds(operand=operand):
                yield operand


def parts(operand: Operand) -> Iterator[Operand]:
    """An operand and, of calls, their arguments."""
    yield operand
    for argument in operand.call.arguments if operand.call is not None else ():
        yield from parts(argument)


def render(condition: Condition) -> str:
    """The condition as SQL with every part in parentheses, operands as they were written."""
    match condition:
        case Junction(children=children, conjunctive=conjunctive):
            return (" AND " if conjunctive else " OR ").join(f"({render(child)})" for child in children)
        case Not(child=child):
            return f"NOT ({render(child)})"
        case Is(child=child, truth=truth):
            word = "UNKNOWN" if truth is None else str(truth).upper()
            return f"({render(child)}) IS {word}"
        case Compare(operator=operator, left=left, right=right):
            return f"{left.text} {operator} {right.text}"
        case Between(operand=operand, low=low, high=high):
            return f"{operand.text} BETWEEN {low.text} AND {high.text}"
        case Member(operand=operand, items=items):
            return f"{operand.text} IN ({', '.join(item.text for item in items)})"
        case Like(operand=operand, pattern=pattern, escape=escape, word=word):
            return f"{operand.text} {word} {pattern.text}" + (f" ESCAPE {escape.text}" if escape else "")
        case IsNull(operand=operand):
            return f"{operand.text} IS NULL"
        case Holds(operand=operand):
            return operand.text
