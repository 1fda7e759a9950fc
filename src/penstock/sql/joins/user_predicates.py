"""Conditions on what one call of a user's function makes of joined rows: they need no Spark but for its arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.errors import SqlError
from penstock.plan.calls import Argument
from penstock.plan.joins import UserPredicate
from penstock.sql.conditions.bind import bind_selections
from penstock.sql.joins.conjuncts import Conjunct
from penstock.sql.joins.inputs import KeptColumns, row_text
from penstock.sql.joins.scope import Column, Expression
from penstock.sql.text.lexing import arguments, enclosed, is_call, name_of, quote, tokenize

#: what conditions call the value of the function
VALUE = "_value"


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a function in a piece of a query, at two offsets of its text."""

    function: str
    whole: Expression
    arguments: tuple[Expression, ...]
    start: int
    end: int


@dataclass(slots=True)
class UserPredicates:
    """Takes the conditions that users' functions judge.

    Attributes:
        kept: the columns that are kept; those that arguments need are added.
        functions: names of the functions that take arrays and return one.
        time_zone: the session's.
        predicates: what was taken, conditions on one call as one.
    """

    kept: KeptColumns
    functions: Collection[str]
    time_zone: str
    predicates: list[UserPredicate] = field(default_factory=list)

    def take(self, conjunct: Conjunct) -> bool:
        """Takes a condition where it is one on a single call, all of whose columns are the call's.

        Every argument is a constant, a column or, of one input, what cannot raise; anything else is left to Spark.
        """
        found = self._read(conjunct)
        if found is None:
            return False
        for number, known in enumerate(self.predicates):
            if (known.function, known.arguments) == (found.function, found.arguments):
                text = known.text if found.text == known.text else f"{known.text} AND {found.text}"
                both = f"{enclosed(known.condition)} AND {enclosed(found.condition)}"
                self.predicates[number] = replace(known, condition=both, text=text)
                return True
        if any(found.text == known.text for known in self.predicates):
            # two calls in one BETWEEN
            found = replace(found, text=conjunct.text(self._told))
        self.predicates.append(found)
        return True

    def _read(self, conjunct: Conjunct) -> UserPredicate | None:
        calls = [list(_calls(operand, self.functions)) for operand in conjunct.operands]
        if not all(map(_is_inside, conjunct.operands, calls)):
            return None
        pieces = list(map(_with_value, conjunct.operands, calls))
        condition = (
            pieces[0] if conjunct.operator is None else f" {conjunct.operator} ".join(map(enclosed, pieces))
        )
        try:
            found = {
                (call.function, self._arguments(call), self._type(call)) for own in calls for call in own
            }
            if len(found) != 1:
                return None
            ((function, given, kind),) = found
            bind_selections({"": condition}, pa.schema([(VALUE, kind)]), None, self.time_zone)
        except SqlError:
            return None
        text = " ".join(conjunct.clause.text.split())
        return UserPredicate(text, function, given, kind, condition) if given else None

    def _type(self, call: _Call) -> pa.DataType:
        (kind,) = self.kept.host.types([call.whole.text(row_text)])
        return kind

    def _arguments(self, call: _Call) -> tuple[Argument, ...]:
        """What the function is given; none where only Spark computes it."""
        found = [self._argument(each) for each in call.arguments]
        return tuple(each for each in found if each is not None) if None not in found else ()

    def _argument(self, expression: Expression) -> Argument | None:
        if expression.column is not None:
            return Argument(self.kept.column(expression.column), None)
        if len(expression.inputs) > 1 or self.kept.host.may_raise([expression.text(row_text)])[0]:
            return None
        if not expression.columns:
            return Argument(None, expression.clause.text)
        return Argument(self.kept.computed(expression), None)

    def _told(self, column: Column) -> str:
        return f"{self.kept.inputs[column.input].source.alias}.{column.name}"


def _calls(operand: Expression, functions: Collection[str]) -> Iterator[_Call]:
    """The outermost calls of functions."""
    text = operand.clause.text
    tokens = tokenize(text)
    names = {name.upper(): name for name in functions}
    position = 0
    while position < len(tokens):
        name = (name_of(tokens[position]) or "").upper() if is_call(tokens, position) else ""
        if name in names:
            spans, behind = arguments(tokens, position + 1)
            pieces = tuple(
                operand.part(tokens[first].start, tokens[last - 1].end + 1) for first, last in spans
            )
            start, end = tokens[position].start, tokens[behind - 1].end + 1
            yield _Call(names[name], operand.part(start, end), pieces, start, end)
            position = behind
        else:
            position += 1


def _is_inside(operand: Expression, calls: Sequence[_Call]) -> bool:
    """Whether all columns are those of calls."""
    return all(
        any(call.start <= each.start and each.end <= call.end for call in calls)
        for each in operand.references
    )


def _with_value(operand: Expression, calls: Sequence[_Call]) -> str:
    """The text with the value in the place of each call."""
    text = operand.clause.text
    for call in reversed(calls):
        text = text[: call.start] + quote(VALUE) + text[call.end :]
    return text
