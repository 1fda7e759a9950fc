"""Conditions of a join, taken apart into what must be true on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.errors import SqlError
from penstock.sql.conditions.nodes import Between, Compare, Condition, Junction, Not, Operand
from penstock.sql.conditions.parsing import parse_condition
from penstock.sql.joins.scope import Column, Expression, Scope
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import enclosed

_NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True)
class Conjunct:
    """A condition that must be true.

    Attributes:
        clause: where it was written.
        operands: both sides of a comparison, or the condition as a whole.
        operator: `=`, `<>`, `<`, `<=`, `>` or `>=`; None for any other condition.
    """

    clause: Clause
    operands: tuple[Expression, ...]
    operator: str | None = None

    @property
    def inputs(self) -> frozenset[int]:
        """The inputs it speaks of."""
        return frozenset().union(*(operand.inputs for operand in self.operands))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns it speaks of."""
        return tuple(dict.fromkeys(column for operand in self.operands for column in operand.columns))

    @property
    def sides(self) -> tuple[int, int] | None:
        """The inputs of the sides of a comparison, where each has one and they differ."""
        if self.operator is None or any(len(operand.inputs) != 1 for operand in self.operands):
            return None
        (left,), (right,) = (operand.inputs for operand in self.operands)
        return (left, right) if left != right else None

    def text(self, name: Callable[[Column], str]) -> str:
        """The condition with other names for its columns."""
        texts = [operand.text(name) for operand in self.operands]
        return texts[0] if self.operator is None else f" {self.operator} ".join(map(enclosed, texts))


def equality(clause: Clause, left: Expression, right: Expression) -> Conjunct:
    """What a name after USING says."""
    return Conjunct(clause, (left, right), "=")


def conjuncts(clause: Clause, scope: Scope) -> list[Conjunct]:
    """Takes a condition apart.

    Raises:
        UnknownNameError: a name that no column has, or several columns.
        SqlError: no condition.
    """
    try:
        condition = parse_condition(clause.text)
    except SqlError as error:
        raise clause.placed(error) from None
    return list(_parts(condition, scope.expression(clause)))


def _parts(condition: Condition, whole: Expression) -> Iterator[Conjunct]:
    def piece(operand: Operand) -> Expression:
        return whole.part(operand.start, operand.end)

    place = whole.part(condition.start, condition.end)
    match condition:
        case Junction(children=children, conjunctive=True):
            for child in children:
                yield from _parts(child, whole)
        case Compare(operator=operator, left=left, right=right) if operator in _NEGATED:
            yield Conjunct(place.clause, (piece(left), piece(right)), operator)
        case Not(child=Compare(operator=operator, left=left, right=right)) if operator in _NEGATED:
            yield Conjunct(place.clause, (piece(left), piece(right)), _NEGATED[operator])
        case Between(operand=operand, low=low, high=high):
            yield Conjunct(place.clause, (piece(operand), piece(low)), ">=")
            yield Conjunct(place.clause, (piece(operand), piece(high)), "<=")
        case _:
            yield Conjunct(place.clause, (place,))
