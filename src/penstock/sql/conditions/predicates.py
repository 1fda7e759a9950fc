"""Predicates as sets of values of attributes.

A predicate that compares a column with literals in the column's own order becomes a value set. One
that tests text, behind functions too, becomes a test of the column's own values. One that compares
another expression with constants becomes a value set over a column that Spark derives. All other
predicates become derived boolean columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.errors import TypeMismatchError
from penstock.plan import trees
from penstock.plan.java_regex import UnprovenError, parse, tests_words
from penstock.plan.patterns import TextPattern, holds
from penstock.plan.spark_types import spark_name
from penstock.plan.value_sets import (
    EVERYTHING,
    FALSE,
    NOT_NULL,
    NOTHING,
    NULL,
    TRUE,
    ValueSet,
    complement,
    intersect,
    union,
    without_null,
)
from penstock.sql.conditions.attributes import Attributes
from penstock.sql.conditions.calls import Calls
from penstock.sql.conditions.comparisons import MismatchedError, compare, like, member
from penstock.sql.conditions.implicit_casts import refuse_raising, warning_of_cast
from penstock.sql.conditions.nodes import (
    MIRRORED,
    Between,
    Compare,
    Condition,
    Holds,
    IsNull,
    Like,
    Member,
    Operand,
    Predicate,
    render,
)
from penstock.sql.conditions.normal_form import Resolved, Truth
from penstock.sql.conditions.operands import Compared, Operands
from penstock.sql.conditions.text_tests import EqualTest, NullTest, PatternTest, TextTests, escape_mark
from penstock.sql.conditions.verdicts import NEVER_NULL, warning
from penstock.sql.text.clauses import Clause
from penstock.sql.text.literals import Kind, Literal

#: the first Java whose `\\b` is another
_NEW_WORDS = 19


class LeftToSparkError(Exception):
    """A clause that is no composition of predicates."""


class _CallLeftToSparkError(Exception):
    """A predicate on a call's value that only Spark judges."""


class Predicates:
    """Resolves the predicates of one clause after the other.

    Args:
        operands: tells what operands are.
        attributes: those in use so far; what predicates test is added.
        calls: reads predicates on calls.
        timezone: the session's time zone.
        declaring: whether queries are new; of others nothing is noted.

    Attributes:
        query, clause: those at hand.
        leaves_calls: whether calls of the query at hand are left to Spark.
        warnings: (query, text), in order.
    """

    def __init__(
        self, operands: Operands, attributes: Attributes, calls: Calls, timezone: str, *, declaring: bool
    ) -> None:
        self.operands, self.attributes, self.calls = operands, attributes, calls
        self.declaring = declaring
        self.query, self.clause = "", Clause.alone("")
        self.leaves_calls = False
        self.warnings: dict[tuple[str, str], None] = {}
        #: whether the predicate at hand is one on a call's value
        self._is_of_call = False
        self._texts = TextTests(operands.column, operands.literal, operands.is_built_in, self._reads_words)
        self._timezone = timezone

    def is_text_test(self, predicate: Predicate) -> bool:
        """Whether a predicate tests the text of columns, and needs nothing else of its operands."""
        return self._texts.read(predicate) is not None

    def resolve(self, predicate: Predicate) -> Resolved:
        """Where a predicate of the clause at hand is true and where it is false.

        Raises:
            SqlError: with the place underlined: values that do not compare, or what only Spark can compute where there is none.
            LeftToSparkError: the clause is left to Spark as a whole.
        """
        over_value = None if self.leaves_calls else self.calls.over_value(predicate)
        if over_value is None:
            return self._resolved(predicate)
        self._is_of_call = True
        try:
            return self._resolved(over_value)
        except _CallLeftToSparkError:
            pass
        finally:
            self._is_of_call = False
        return self._resolved(predicate)

    def boolean(self, text: str, start: int, end: int) -> Truth:
        """A condition, at a place of the clause at hand, as a boolean column that Spark computes.

        Raises:
            UnsupportedError: there is no Spark.
        """
        self.operands.require_spark(self.clause, text, start, end)
        return Truth(self.attributes.place(Compared(text, None, pa.bool_(), ordered=True)), TRUE, FALSE)

    def warn(self, message: str, start: int, end: int) -> None:
        """Notes what is allowed at a place of the clause at hand and seldom meant, of a query that is new."""
        if self.declaring:
            self.note(warning(self.clause, message, start, end))

    def note(self, text: str) -> None:
        """Notes a warning of the query at hand."""
        self.warnings[self.query, text] = None

    def _reads_words(self, regex: str) -> bool:
        """Whether a regular expression has no `\\b`, or Spark's Java reads it as the kernel does."""
        try:
            return (
                not tests_words(parse(regex))
                or self.operands.host is None
                or self.operands.host.java < _NEW_WORDS
            )
        except (UnprovenError, RecursionError):
            return False

    def _derive(self, condition: Condition) -> Truth:
        """The condition as a boolean column."""
        if self._is_of_call:
            raise _CallLeftToSparkError
        return self.boolean(render(condition), condition.start, condition.end)

    def _resolved(self, predicate: Predicate) -> Resolved:
        test = self._texts.read(predicate)
        if test is not None:
            return self._tested(test)
        if isinstance(predicate, Holds):
            return self._holds(predicate)
        if isinstance(predicate, Compare):
            return self._compare(predicate)
        column = self.operands.compared(predicate.operand)
        if column is None and isinstance(predicate, IsNull):
            literal = self.operands.literal(predicate.operand)
            return literal.kind is Kind.NULL if literal is not None else self._derive(predicate)
        if column is None or not column.ordered:
            return self._derive(predicate)
        found: Truth | bool | None
        match predicate:
            case IsNull():
                return Truth(self.attributes.place(column), NULL, NOT_NULL)
            case Between():
                found = self._between(predicate, column)
            case Member():
                return self._member(predicate, column)
            case Like():
                found = self._like(predicate, column)
        return found if found is not None else self._derive(predicate)

    def _holds(self, predicate: Holds) -> Truth | bool | None:
        literal = self.operands.literal(predicate.operand)
        if literal is not None and literal.kind in (Kind.BOOLEAN, Kind.NULL):
            return None if literal.value is None else bool(literal.value)
        column = self.operands.compared(predicate.operand)
        if column is not None and pa.types.is_boolean(column.type):
            return Truth(self.attributes.place(column), TRUE, FALSE)
        if self.operands.host is not None:
            raise LeftToSparkError
        kind = spark_name(column.type) if column is not None else literal.kind if literal is not None else "?"
        raise self.clause.error(
            TypeMismatchError,
            f"A condition must be BOOLEAN; `{predicate.operand.text}` is {kind}. Compare it with a value.",
            predicate.start,
            predicate.end,
        )

    def _compare(self, predicate: Compare) -> Truth | bool | None:
        left, right = self.operands.compared(predicate.left), self.operands.compared(predicate.right)
        column, operand, operator = left, predicate.right, predicate.operator
        if left is None:
            column, operand, operator = right, predicate.left, MIRRORED[predicate.operator]
        literal = self.operands.literal(operand)
        if column is None or literal is None or not column.ordered:
            return self._derive(predicate)
        null_safe = operator == "<=>"
        if literal.kind is Kind.NULL:
            if null_safe:
                return Truth(self.attributes.place(column), NULL, NOT_NULL)
            self.warn(NEVER_NULL, predicate.start, predicate.end)
            return None
        found = self._values("=" if null_safe else operator, column, operand, literal)
        if found is None:
            return self._derive(predicate)
        if isinstance(found, bool):
            return found
        return Truth(self.attributes.place(column), found, complement(found) if null_safe else None)

    def _values(
        self, operator: str, column: Compared, operand: Operand, literal: Literal
    ) -> ValueSet | bool | None:
        try:
            found = compare(operator, column.type, literal, self._timezone)
            if found is None and (moment := self._moment(operand, literal, column.type)) is not None:
                found = compare(operator, column.type, moment, self._timezone)
        except MismatchedError:
            raise self._mismatch(column, operand, literal) from None
        if found is None:
            self._judge(column, [(operand, literal)])
        return found

    def _judge(self, column: Compared, compared: Sequence[tuple[Operand, Literal]]) -> None:
        """Refuses a comparison left to Spark that can only raise, warns of one that may for most rows."""
        if self.operands.host is None or not self.declaring:
            return
        refuse_raising(self.operands.host, self.clause, column, compared)
        for operand, literal in compared:
            told = warning_of_cast(self.clause, column, operand, literal)
            if told is not None:
                self.note(told)

    def _moment(self, operand: Operand, literal: Literal, kind: pa.DataType) -> Literal | None:
        """A string that only Spark reads as a date or timestamp."""
        if literal.kind is not Kind.STRING or not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return None
        return self.operands.as_moment(operand, kind)

    def _mismatch(self, column: Compared, operand: Operand, literal: Literal) -> TypeMismatchError:
        return self.clause.error(
            TypeMismatchError,
            f"{column.expression} is of type {spark_name(column.type)}, which does not compare with a literal "
            f"of type {literal.kind}. CAST one of them.",
            operand.start,
            operand.end,
        )

    def _between(self, predicate: Between, column: Compared) -> Truth | None:
        """`>=` and `<=` conjoined: true where both are, false where one is."""
        sides: list[ValueSet | bool | None] = []
        for operator, bound in ((">=", predicate.low), ("<=", predicate.high)):
            literal = self.operands.literal(bound)
            if literal is None:
                return None
            found = None
            if literal.kind is not Kind.NULL:
                found = self._values(operator, column, bound, literal)
                if found is None:
                    return None
            sides.append(found)
        low, high = sides
        if isinstance(low, ValueSet) and isinstance(high, ValueSet):
            return Truth(self.attributes.place(column), intersect(low, high))
        true, false = EVERYTHING, NOTHING
        for side in sides:
            if isinstance(side, ValueSet):
                true, false = intersect(true, side), union(false, without_null(complement(side)))
            elif side is None:
                true = NOTHING
            elif side is False:
                true, false = NOTHING, EVERYTHING
        return Truth(self.attributes.place(column), true, false)

    def _member(self, predicate: Member, column: Compared) -> Truth | None:
        literals = [self.operands.literal(item) for item in predicate.items]
        known = [
            (item, literal)
            for item, literal in zip(predicate.items, literals, strict=True)
            if literal is not None and literal.kind is not Kind.NULL
        ]
        if None in literals:
            return self._derive(predicate)
        if not known:
            self.warn(NEVER_NULL, predicate.start, predicate.end)
            return None
        try:
            found = member(column.type, [literal for _, literal in known], self._timezone)
            if found is None:
                moments = [self._moment(item, literal, column.type) or literal for item, literal in known]
                found = member(column.type, moments, self._timezone)
        except MismatchedError:
            item, literal = known[0]
            raise self._mismatch(column, item, literal) from None
        if found is None:
            self._judge(column, known)
            return self._derive(predicate)
        has_null = len(known) < len(predicate.items)
        return Truth(self.attributes.place(column), found, NOTHING if has_null else None)

    def _like(self, predicate: Like, column: Compared) -> Truth | None:
        """A LIKE of a prefix, as a range; other patterns are tests of text."""
        pattern = self.operands.literal(predicate.pattern)
        if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
            return None
        if predicate.word != "LIKE" or pattern is None or not isinstance(pattern.value, str):
            return None
        mark = "\\" if predicate.escape is None else escape_mark(predicate.escape)
        found = None if mark is None else like(pattern.value, mark)
        return None if found is None else Truth(self.attributes.place(column), found)

    def _tested(self, test: PatternTest | EqualTest | NullTest) -> Resolved:
        """A test of text over its columns' own values."""
        if isinstance(test, NullTest):
            return (
                False
                if test.value.if_null is not None
                else Truth(self.attributes.place(test.value.column), NULL, NOT_NULL)
            )
        if isinstance(test, EqualTest):
            left, right = test.left, test.right
            pair = trees.EqualTexts(
                self.attributes.place(right.column, is_text=True),
                (left.form, right.form),
                (left.if_null, right.if_null),
            )
            return Truth(self.attributes.place(left.column, is_text=True), pair)
        found: list[Truth | None] = [self._of_pattern(pattern, test) for pattern in test.patterns]
        return (*found, None) if test.has_null else tuple(found)

    def _of_pattern(self, pattern: TextPattern, test: PatternTest) -> Truth:
        value = test.value
        matching = trees.TextSet(replace(pattern, form=value.form))
        others = replace(matching, is_match=False)
        if value.if_null is not None:
            is_match = holds(pattern, value.if_null)
            matching, others = replace(matching, null=is_match), replace(others, null=not is_match)
        if test.negated:
            matching, others = others, matching
        if test.null_safe and value.if_null is None:
            others = replace(others, null=True)
        return Truth(self.attributes.place(value.column, is_text=True), matching, others)
