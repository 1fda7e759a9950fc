"""Binding: conditions against a stream's columns, to selections in normal form.

See `predicates` for what becomes of the predicates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import pyarrow as pa

from penstock.errors import SqlError, TypeMismatchError, UnsupportedError
from penstock.plan import trees
from penstock.plan.calls import Branch, UserCall
from penstock.plan.expressions import Derived, ExpressionHost
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.spark_types import spark_name
from penstock.plan.trees import Tree
from penstock.sql.conditions.attributes import Attributes
from penstock.sql.conditions.branches import TooManyBranchesError, divided, replaced
from penstock.sql.conditions.calls import Calls
from penstock.sql.conditions.dropped_escapes import pattern_warnings
from penstock.sql.conditions.nodes import Condition, render
from penstock.sql.conditions.normal_form import NormalForm, TooManyTermsError, every, terms
from penstock.sql.conditions.operands import Operands
from penstock.sql.conditions.predicates import LeftToSparkError, Predicates
from penstock.sql.conditions.raising import raised_tree, renumbered, unraised
from penstock.sql.conditions.shapes import ConditionParser
from penstock.sql.conditions.verdicts import NEVER, refuse_zero_division
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import quote
from penstock.sql.text.query import SelectQuery

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
        self._attributes = Attributes(schema.names)
        self._calls = Calls({each.upper() for each in functions}, self.operands, self._attributes.unused)
        self._predicates = Predicates(
            self.operands, self._attributes, self._calls, timezone, declaring=declaring
        )
        self._normal_form = NormalForm(self._predicates.resolve)
        self._parser = ConditionParser()
        #: clauses that only Spark may be able to read -> what we found wrong
        self._unread: dict[str, SqlError] = {}
        self._last_clauses: dict[str, Clause] = {}

    def bind(self, views: Mapping[str, SelectQuery | str]) -> BoundSelections:
        """See `bind_selections`."""
        self._predicates.warnings, self._last_clauses = {}, {}
        clauses = {name: _clauses(view) for name, view in views.items()}
        parsed = {name: [self._parse(clause) for clause in parts] for name, parts in clauses.items()}
        pairs = [pair for parts in parsed.values() for pair in parts]
        self.operands.analyse(pairs, self._predicates.is_text_test)
        parsed.update(self._misread(parsed))
        return self._bound({name: self._tree(name, parts) for name, parts in parsed.items()})

    def settled(self, host: ExpressionHost) -> bool:
        """Binds from now on as what an earlier run bound is bound, with another host.

        Returns:
            False, and nothing changes, where that host's answers so far might have been others.
        """
        if not self.operands.moved(host):
            return False
        self._predicates.declaring = False
        return True

    @property
    def _host(self) -> ExpressionHost | None:
        return self.operands.host

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

    def _tree(self, query: str, parts: Sequence[_Parsed]) -> Tree:
        """The conjunction of some clauses of a query as a tree."""
        tree = self._conjoined(query, parts)
        called = self._called
        if called and any(test.attribute in called for test in trees.tests(tree)):
            try:
                divided(tree, called)
            except TooManyBranchesError:
                self._predicates.leaves_calls = True
                tree = self._conjoined(query, parts)
                self._predicates.leaves_calls = False
        return tree

    @property
    def _called(self) -> set[int]:
        """The attributes that are values of calls."""
        named = self._calls.by_name
        return {place for place, each in enumerate(self._attributes.all) if named and each.name in named}

    def _conjoined(self, query: str, parts: Sequence[_Parsed]) -> Tree:
        at_hand = self._predicates
        at_hand.query = query
        found: list[Tree] = []
        for clause, condition in parts:
            at_hand.clause = clause
            if at_hand.declaring and condition is not None:
                refuse_zero_division(clause, condition)
                for told in pattern_warnings(clause, condition):
                    at_hand.note(told)
            try:
                if condition is None:
                    raise LeftToSparkError
                found.append(self._normal_form.tree(condition))
            except LeftToSparkError:
                text = clause.text.strip()
                start = clause.text.index(text)
                whole = at_hand.boolean(text, start, start + len(text))
                found.append(trees.Test(whole.attribute, whole.true))
        self._last_clauses[query] = at_hand.clause
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
        columns = {
            self._attributes[position].name: position for position in reversed(self._attributes.derived)
        }
        positions = [position for position in self._attributes.derived if position in used]
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
        derived_places = {*self._attributes.derived, *called}
        return BoundSelections(
            SelectionSet(tuple(attributes), tuple(selections)),
            tuple(derived),
            tuple(error_queries),
            tuple(self._predicates.warnings),
            tuple(
                {
                    column.name: column
                    for place, column in enumerate(self._attributes.all)
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
        at_hand = self._predicates
        said = {name for name, _ in at_hand.warnings}
        for query in queries:
            if not query.terms and query.tree is None and query.name not in said.union(branching):
                at_hand.query, at_hand.clause = query.name, self._last_clauses[query.name]
                at_hand.warn(NEVER, 0, len(at_hand.clause.text))

    def _raising(self, computed: Sequence[Attribute]) -> list[bool]:
        """Whether each derived column may raise; checks that Spark gives it the type assumed."""
        if self._host is None or not self._attributes.derived:
            return []
        every = [self._attributes[position] for position in self._attributes.derived]
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


def _query(name: str, tree: Tree) -> Query:
    """A query in normal form, or as a tree where it has none that is short."""
    try:
        found = terms(tree, MAX_TERMS)
    except TooManyTermsError:
        return Query(name, (), tree)
    return Query(name, tuple(Term(tuple(sorted(term.items(), key=itemgetter(0)))) for term in found))
