"""Binding: conditions against a stream's columns, to selections in normal form.

A predicate that compares a column with literals in the column's own order becomes a value set. One
that tests text, behind functions too, becomes a test of the column's own values. One that compares
another expression with constants becomes a value set over a column that Spark derives. All other
predicates become derived boolean columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import pyarrow as pa

from penstock.errors import SqlError, TypeMismatchError, UnsupportedError
from penstock.plan import trees
from penstock.plan.calls import Branch, UserCall
from penstock.plan.expressions import Derived, ExpressionHost
from penstock.plan.java_regex import UnprovenError, parse, tests_words
from penstock.plan.names import free_name
from penstock.plan.patterns import TextPattern, holds
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.spark_types import spark_name
from penstock.plan.trees import Tree
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
from penstock.sql.conditions.branches import TooManyBranchesError, divided, replaced
from penstock.sql.conditions.calls import Calls
from penstock.sql.conditions.comparisons import MismatchedError, compare, like, member
from penstock.sql.conditions.dropped_escapes import pattern_warnings
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
from penstock.sql.conditions.normal_form import NormalForm, Resolved, TooManyTermsError, Truth, every, terms
from penstock.sql.conditions.operands import Compared, Operands
from penstock.sql.conditions.raising import raised_tree, renumbered, unraised
from penstock.sql.conditions.shapes import ConditionParser
from penstock.sql.conditions.text_tests import EqualTest, NullTest, PatternTest, TextTests, escape_mark
from penstock.sql.conditions.verdicts import NEVER, NEVER_NULL, refuse_zero_division, warning
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import quote
from penstock.sql.text.literals import Kind, Literal
from penstock.sql.text.query import SelectQuery

#: the first Java whose `\\b` is another
_NEW_WORDS = 19
#: conjunctions that a part of a condition over ordered values may need before the condition stays a tree
MAX_TERMS = 4096


@dataclass(frozen=True, slots=True)
class BoundSelections:
    """Conditions in normal form over columns and derived columns.

    Attributes:
        selections: the queries. A tuple for which one of a query's expressions raises is no match
            by the terms that use the expression. The attributes are columns of the stream, derived
            columns and their error columns.
        derived: the columns that have to be computed.
        error_queries: for each query that uses an expression that may raise, the query of the same
            name for the tuples where it raises while the other predicates of a term hold. Over the
            attributes of `selections`.
        warnings: (query, text) of what is allowed and seldom meant; none unless `declaring`.
        columns: the stream's columns that conditions compare, also where none depends on them in the end.
        places: a number for each attribute, the same in all that one binder binds.
        branches: for each query with calls of users' functions the ways in which these decide; `selections` have
            where it is satisfied without one.
        calls: the calls that branches test, each behind those that are its arguments.
        arguments: columns that have to be computed for calls.
    """

    selections: SelectionSet
    derived: tuple[Derived, ...]
    error_queries: tuple[Query, ...]
    warnings: tuple[tuple[str, str], ...] = ()
    columns: tuple[Attribute, ...] = ()
    places: tuple[int, ...] = ()
    branches: tuple[Branch, ...] = ()
    calls: tuple[UserCall, ...] = ()
    arguments: tuple[Derived, ...] = ()

    @property
    def computed(self) -> tuple[Derived, ...]:
        """All columns that have to be computed."""
        return (*self.derived, *self.arguments)

    @property
    def shown(self) -> tuple[str, ...]:
        """What each attribute is for a reader: a column's name, a computed column's text, `error in TEXT` of its error column."""
        texts = {each.name: each.expression for each in self.derived}
        texts |= {
            each.error_column: f"error in {each.expression}" for each in self.derived if each.error_column
        }
        return tuple(texts.get(each.name, each.name) for each in self.selections.attributes)


def bind_selections(
    views: Mapping[str, SelectQuery | str],
    schema: pa.Schema,
    host: ExpressionHost | None,
    timezone: str = "UTC",
    *,
    declaring: bool = False,
) -> BoundSelections:
    """Binds selection views, or the texts of WHERE clauses, to a stream's columns.

    Args:
        views: by name; a query's source is taken to be the stream.
        schema: the stream's columns.
        host: Spark's analysis of expressions; None where there is no Spark.
        timezone: the session's time zone.
        declaring: whether the views are new. What an earlier run bound is bound again as it was; new
            ones are refused where a comparison can only raise.

    Raises:
        SqlError: with the place underlined: no condition, an unknown column, values that do not
            compare, or, without a host, an expression that only Spark can compute.
    """
    return SelectionBinder(schema, host, timezone, declaring=declaring).bind(views)


def _clauses(view: SelectQuery | str) -> Sequence[Clause]:
    return (Clause.alone(view),) if isinstance(view, str) else view.conditions


#: a clause and its tree; None where the whole clause is computed as one boolean
_Parsed = tuple[Clause, Condition | None]


class _LeftToSparkError(Exception):
    """A clause that is no composition of predicates."""


class _CallLeftToSparkError(Exception):
    """A predicate on a call's value that only Spark judges."""


class SelectionBinder:
    """Binds conditions some at a time: an expression is the same derived column in all of them, and is analysed once.

    It has the attributes in use so far, and knows how predicates become value sets over them. Arguments as of
    `bind_selections`, and `functions`: names of the users' functions that the worker calls itself.
    """

    def __init__(
        self,
        schema: pa.Schema,
        host: ExpressionHost | None,
        timezone: str = "UTC",
        *,
        declaring: bool = False,
        functions: Collection[str] = (),
    ) -> None:
        self.operands = Operands(schema, host)
        self._calls = Calls({each.upper() for each in functions}, self.operands, self._unused)
        #: whether the predicate at hand is one on a call's value; whether calls of the query at hand are left to Spark
        self._is_of_call = self._leaves_calls = False
        self._texts = TextTests(
            self.operands.column, self.operands.literal, self.operands.is_built_in, self._reads_words
        )
        self._host = host
        self._declaring = declaring
        self._query = ""
        self._warnings: dict[tuple[str, str], None] = {}
        self._parser = ConditionParser()
        #: clauses that only Spark may be able to read -> what we found wrong
        self._unread: dict[str, SqlError] = {}
        self._timezone = timezone
        self._taken = set(schema.names)
        self._attributes: list[Attribute] = []
        self._positions: dict[tuple[str, bool], int] = {}
        self._derived: list[int] = []
        self._clause = Clause.alone("")
        self._last_clauses: dict[str, Clause] = {}
        self._normal_form = NormalForm(self._resolve)

    def bind(self, views: Mapping[str, SelectQuery | str]) -> BoundSelections:
        """See `bind_selections`."""
        self._warnings, self._last_clauses = {}, {}
        clauses = {name: _clauses(view) for name, view in views.items()}
        parsed = {name: [self._parse(clause) for clause in parts] for name, parts in clauses.items()}
        pairs = [pair for parts in parsed.values() for pair in parts]
        self.operands.analyse(pairs, lambda predicate: self._texts.read(predicate) is not None)
        parsed.update(self._misread(parsed))
        return self._bound({name: self._tree(name, parts) for name, parts in parsed.items()})

    def settled(self, host: ExpressionHost) -> bool:
        """Binds from now on as what an earlier run bound is bound, with another host.

        Returns:
            False, and nothing changes, where that host's answers so far might have been others.
        """
        if not self.operands.moved(host):
            return False
        self._host, self._declaring = host, False
        return True

    def _parse(self, clause: Clause) -> _Parsed:
        """The tree of a clause."""
        try:
            return clause, self._parser.parse(clause.text)
        except SqlError as error:
            placed = clause.placed(error)
            if self._host is None or isinstance(error, UnsupportedError) or not clause.text.strip():
                raise placed from None
            self._unread[clause.text.strip()] = placed
            return clause, None

    def _reads_words(self, regex: str) -> bool:
        """Whether a regular expression has no `\\b`, or Spark's Java reads it as the kernel does."""
        try:
            return not tests_words(parse(regex)) or self._host is None or self._host.java < _NEW_WORDS
        except (UnprovenError, RecursionError):
            return False

    def _tree(self, query: str, parts: Sequence[_Parsed]) -> Tree:
        """The conjunction of some clauses of a query as a tree."""
        tree = self._conjoined(query, parts)
        called = self._called
        if called and any(test.attribute in called for test in trees.tests(tree)):
            try:
                divided(tree, called)
            except TooManyBranchesError:
                self._leaves_calls = True
                tree = self._conjoined(query, parts)
                self._leaves_calls = False
        return tree

    @property
    def _called(self) -> set[int]:
        """The attributes that are values of calls."""
        named = self._calls.by_name
        return (
            {place for place, each in enumerate(self._attributes) if each.name in named} if named else set()
        )

    def _conjoined(self, query: str, parts: Sequence[_Parsed]) -> Tree:
        self._query = query
        found: list[Tree] = []
        for clause, condition in parts:
            self._clause = clause
            if self._declaring and condition is not None:
                refuse_zero_division(clause, condition)
                self._warnings.update(((query, told), None) for told in pattern_warnings(clause, condition))
            try:
                if condition is None:
                    raise _LeftToSparkError
                found.append(self._normal_form.tree(condition))
            except _LeftToSparkError:
                text = clause.text.strip()
                start = clause.text.index(text)
                found.append(self._boolean(text, start, start + len(text)))
        self._last_clauses[query] = self._clause
        return every(found)

    def _misread(self, parsed: Mapping[str, list[_Parsed]]) -> dict[str, list[_Parsed]]:
        """Queries with clauses that Spark reads otherwise than we do; those left to it as a whole.

        Only clauses with more than columns and literals are in doubt.
        """
        doubtful = [
            (name, number, clause, render(condition))
            for name, parts in parsed.items()
            for number, (clause, condition) in enumerate(parts)
            if condition is not None and self.operands.has_expression(condition)
        ]
        if self._host is None or not doubtful:
            return {}
        same = self._host.equivalent([(clause.text, rendered) for _, _, clause, rendered in doubtful])
        reread: dict[str, list[_Parsed]] = {}
        for (name, number, clause, _), agreed in zip(doubtful, same, strict=True):
            if not agreed:
                reread.setdefault(name, list(parsed[name]))[number] = (clause, None)
        return reread

    def _bound(self, queries: Mapping[str, Tree]) -> BoundSelections:
        """The queries over all attributes, with an error column for what may raise."""
        called = self._called
        used = {
            each for tree in queries.values() for test in trees.tests(tree) for each in trees.tested(test)
        } - called
        order = {position: number for number, position in enumerate(sorted(used))}
        places = list(order)
        attributes = [self._attributes[position] for position in order]
        columns = {self._attributes[position].name: position for position in reversed(self._derived)}
        positions = [position for position in self._derived if position in used]
        computed = list(
            {self._attributes[position].name: self._attributes[position] for position in positions}.values()
        )
        raising = {
            each.name for each, raises in zip(computed, self._raising(computed), strict=False) if raises
        }
        derived: list[Derived] = []
        names: dict[str, int] = {}
        for column in computed:
            error = f"{column.name}_error" if column.name in raising else None
            derived.append(Derived(column.name, column.expression, column.type, error))
            if error is not None:
                names[column.name] = len(attributes)
                places.append(-1 - columns[column.name])
                attributes.append(Attribute(error, pa.bool_(), quote(error)))
        errors = {
            order[position]: names[self._attributes[position].name]
            for position in positions
            if self._attributes[position].name in names
        }
        selections: list[Query] = []
        error_queries: list[Query] = []
        branches: list[Branch] = []
        for name, tree in queries.items():
            sure, before = tree, tree
            if called and any(test.attribute in called for test in trees.tests(tree)):
                sure, before = replaced(tree, called, trees.NEVER), replaced(tree, called, trees.ALWAYS)
                for held, tests in divided(tree, called):
                    if tests and held != trees.NEVER:
                        query = _query(name, unraised(renumbered(held, order), errors))
                        pairs = ((self._attributes[test.attribute].name, test.values) for test in tests)
                        branches.append(Branch(query, tuple(pairs)))
            selections.append(_query(name, unraised(renumbered(sure, order), errors)))
            raised = raised_tree(renumbered(before, order), errors)
            if raised != trees.NEVER:
                error_queries.append(_query(name, raised))
        self._warn_of_never(selections, {each.query.name for each in branches})
        calls, arguments = self._calls.needed(
            dict.fromkeys(name for each in branches for name, _ in each.tests)
        )
        derived_places = {*self._derived, *called}
        return BoundSelections(
            SelectionSet(tuple(attributes), tuple(selections)),
            tuple(derived),
            tuple(error_queries),
            tuple(self._warnings),
            tuple(
                {
                    column.name: column
                    for place, column in enumerate(self._attributes)
                    if place not in derived_places
                }.values()
            ),
            tuple(places),
            tuple(branches),
            calls,
            arguments,
        )

    def _warn_of_never(self, queries: Sequence[Query], branching: Collection[str]) -> None:
        """Notes a warning of each query that is never true where nothing says why."""
        said = {name for name, _ in self._warnings}
        for query in queries:
            if not query.terms and query.tree is None and query.name not in said.union(branching):
                self._query, self._clause = query.name, self._last_clauses[query.name]
                self._warn(NEVER, 0, len(self._clause.text))

    def _raising(self, computed: Sequence[Attribute]) -> list[bool]:
        """Whether each derived column may raise; checks that Spark gives it the type assumed."""
        if self._host is None or not self._derived:
            return []
        every = [self._attributes[position] for position in self._derived]
        try:
            types = self._host.types([column.expression for column in every])
            for column, kind in zip(every, types, strict=True):
                if pa.types.is_boolean(column.type) and kind not in (pa.bool_(), pa.null()):
                    text = column.expression
                    message = (
                        f"A condition must be BOOLEAN; this is {spark_name(kind)}. Compare it with a value."
                    )
                    raise TypeMismatchError(message, text, 0, len(text))
            return self._host.may_raise([column.expression for column in computed])
        except SqlError as error:
            if type(error) is SqlError and error.text in self._unread:
                raise self._unread[error.text] from None
            raise self.operands.placed(error) from None

    def _attribute(self, compared: Compared, *, is_text: bool = False) -> int:
        """The index of an attribute; text that is matched against patterns is one apart from ordered values."""
        key = compared.expression, is_text
        position = self._positions.get(key)
        if position is None:
            other = self._positions.get((compared.expression, not is_text))
            position = self._positions[key] = len(self._attributes)
            name = compared.name
            if name is None:
                name = self._free_name() if other is None else self._attributes[other].name
                self._derived.append(position)
            self._attributes.append(Attribute(name, compared.type, compared.expression))
        return position

    def _free_name(self) -> str:
        return self._unused(f"__d{len(self._derived)}")

    def _unused(self, name: str) -> str:
        return free_name(name, self._taken, also="_error")

    def _boolean(self, text: str, start: int, end: int) -> Tree:
        self.operands.require_spark(self._clause, text, start, end)
        return trees.Test(self._attribute(Compared(text, None, pa.bool_(), ordered=True)), TRUE)

    def _derive(self, condition: Condition) -> Truth:
        """The condition as a boolean column."""
        if self._is_of_call:
            raise _CallLeftToSparkError
        text = render(condition)
        self.operands.require_spark(self._clause, text, condition.start, condition.end)
        return Truth(self._attribute(Compared(text, None, pa.bool_(), ordered=True)), TRUE, FALSE)

    def _resolve(self, predicate: Predicate) -> Resolved:
        over_value = None if self._leaves_calls else self._calls.over_value(predicate)
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
                return Truth(self._attribute(column), NULL, NOT_NULL)
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
            return Truth(self._attribute(column), TRUE, FALSE)
        if self._host is not None:
            raise _LeftToSparkError
        kind = spark_name(column.type) if column is not None else literal.kind if literal is not None else "?"
        raise self._clause.error(
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
                return Truth(self._attribute(column), NULL, NOT_NULL)
            self._warn(NEVER_NULL, predicate.start, predicate.end)
            return None
        found = self._values("=" if null_safe else operator, column, operand, literal)
        if found is None:
            return self._derive(predicate)
        if isinstance(found, bool):
            return found
        return Truth(self._attribute(column), found, complement(found) if null_safe else None)

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
        if self._host is None or not self._declaring:
            return
        refuse_raising(self._host, self._clause, column, compared)
        for operand, literal in compared:
            told = warning_of_cast(self._clause, column, operand, literal)
            if told is not None:
                self._warnings[self._query, told] = None

    def _warn(self, message: str, start: int, end: int) -> None:
        """Notes what is allowed at a place of the clause at hand and seldom meant."""
        if self._declaring:
            self._warnings[self._query, warning(self._clause, message, start, end)] = None

    def _moment(self, operand: Operand, literal: Literal, kind: pa.DataType) -> Literal | None:
        """A string that only Spark reads as a date or timestamp."""
        if literal.kind is not Kind.STRING or not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return None
        return self.operands.as_moment(operand, kind)

    def _mismatch(self, column: Compared, operand: Operand, literal: Literal) -> TypeMismatchError:
        return self._clause.error(
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
            return Truth(self._attribute(column), intersect(low, high))
        true, false = EVERYTHING, NOTHING
        for side in sides:
            if isinstance(side, ValueSet):
                true, false = intersect(true, side), union(false, without_null(complement(side)))
            elif side is None:
                true = NOTHING
            elif side is False:
                true, false = NOTHING, EVERYTHING
        return Truth(self._attribute(column), true, false)

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
            self._warn(NEVER_NULL, predicate.start, predicate.end)
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
        return Truth(self._attribute(column), found, NOTHING if has_null else None)

    def _like(self, predicate: Like, column: Compared) -> Truth | None:
        """A LIKE of a prefix, as a range; other patterns are tests of text."""
        pattern = self.operands.literal(predicate.pattern)
        if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
            return None
        if predicate.word != "LIKE" or pattern is None or not isinstance(pattern.value, str):
            return None
        mark = "\\" if predicate.escape is None else escape_mark(predicate.escape)
        found = None if mark is None else like(pattern.value, mark)
        return None if found is None else Truth(self._attribute(column), found)

    def _tested(self, test: PatternTest | EqualTest | NullTest) -> Resolved:
        """A test of text over its columns' own values."""
        if isinstance(test, NullTest):
            return (
                False
                if test.value.if_null is not None
                else Truth(self._attribute(test.value.column), NULL, NOT_NULL)
            )
        if isinstance(test, EqualTest):
            left, right = test.left, test.right
            pair = trees.EqualTexts(
                self._attribute(right.column, is_text=True),
                (left.form, right.form),
                (left.if_null, right.if_null),
            )
            return Truth(self._attribute(left.column, is_text=True), pair)
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
        return Truth(self._attribute(value.column, is_text=True), matching, others)


def _query(name: str, tree: Tree) -> Query:
    """A query in normal form, or as a tree where it has none that is short."""
    try:
        found = terms(tree, MAX_TERMS)
    except TooManyTermsError:
        return Query(name, (), tree)
    return Query(name, tuple(Term(tuple(sorted(term.items(), key=itemgetter(0)))) for term in found))
