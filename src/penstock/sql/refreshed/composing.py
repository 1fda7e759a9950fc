"""Queries that lanes refuse as a whole: their inner queries that lanes answer, and the rest, which Spark computes over the rows of these."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import UnsupportedError
from penstock.sql.joins.query import JoinQuery, joined_name
from penstock.sql.refreshed.parsing import names_of, refuse_unstable, sources_of_tree
from penstock.sql.refreshed.query import InnerQuery, RefreshedQuery
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import closing, outer, parse_whole_query, spelling, tokenize
from penstock.sql.text.query import SelectQuery
from penstock.sql.text.written import written
from penstock.sql.unions.query import UnionQuery, union_name
from penstock.sql.windows.query import WindowQuery, groups_name

Parse = Callable[[Sequence[Token]], Any]
#: kinds of tokens behind which a query in parentheses stands for rows
_BEFORE_ROWS = (TokenType.FROM, TokenType.JOIN, TokenType.COMMA)


def composed_query(
    script: str,
    tokens: Sequence[Token],
    parse: Parse,
    refused: UnsupportedError,
    views: Container[str] | None = None,
    aggregated: Container[str] = (),
) -> RefreshedQuery | None:
    """A query over the rows of its inner queries that lanes answer, and of views; None where it has none, or Spark is not to compute the rest.

    Where it is not known yet what is a view, a query that names several tables or views has some.

    Args:
        script: the text the tokens come from.
        tokens: those of the query, without WITH.
        parse: reads an inner query.
        refused: why lanes do not answer the query as a whole.
        views: the names of views, in upper case; None: they are not known yet.
        aggregated: the names of views over which an aggregation has no rows to be read: Spark computes inner ones, too.

    Raises:
        SqlError: a mistake in an inner query.
    """
    finder = _Finder(script, parse, aggregated)
    rest = finder.replaced(tokens)
    if any(token.token_type is TokenType.HINT for token in rest):
        return None
    text = written(script, rest)
    try:
        tree = parse_whole_query(text.text)
    except SqlglotError:
        return None
    if not isinstance(tree, exp.Query):
        return None
    inner = {each.name.upper() for each in finder.found.values()}
    if not inner and views is None and sum(1 for _ in tree.find_all(exp.Table)) < 2:
        return None
    sources = []
    try:
        refuse_unstable(script, rest, tree)
        for name, clause in sources_of_tree(tree, Clause.alone(text.text)):
            if name.upper() not in inner:
                start, end = text.span(clause.start, clause.start + len(clause.text))
                sources.append((name, Clause(script[start:end], script, start)))
    except UnsupportedError:
        if inner:
            raise
        return None
    if not inner and (
        not sources or (views is not None and all(name.upper() not in views for name, _ in sources))
    ):
        return None
    start, end = tokens[0].start, tokens[-1].end + 1
    whole = Clause(script[start:end], script, start)
    names = names_of(tree, tokenize(text.text))
    found = tuple(finder.found.values())
    return RefreshedQuery(
        whole, 0.0, tuple(sources), names, found, text, refused=refused, by_names=views is None and not found
    )


@dataclass(eq=False, slots=True)
class _Finder:
    """Finds the inner queries that lanes answer, the outermost ones.

    Attributes:
        script: the text the tokens come from.
        parse: reads an inner query.
        aggregated: see `composed_query`.
        found: the queries by their names.
    """

    script: str
    parse: Parse
    aggregated: Container[str]
    found: dict[str, InnerQuery] = field(default_factory=dict)
    _names: dict[tuple[str, ...], str] = field(default_factory=dict)

    def replaced(self, tokens: Sequence[Token]) -> list[Token]:
        """Some tokens with `SELECT * FROM name` in the place of each of these queries."""
        rest: list[Token] = []
        position = 0
        while position < len(tokens):
            token = tokens[position]
            position += 1
            rest.append(token)
            if token.token_type is not TokenType.L_PAREN:
                continue
            end = closing(tokens, position - 1)
            if end is None or tokens[position].token_type is not TokenType.SELECT:
                continue
            own = tokens[position:end]
            before = tokens[position - 2].token_type if position > 1 else None
            # rows without FROM are none of a stream
            reads = before in _BEFORE_ROWS and any(
                each.token_type is TokenType.FROM for _, each in outer(own)
            )
            name = self._answered(own) if reads else None
            rest += self.replaced(own) if name is None else _named(name, own[0])
            position = end
        return rest

    def _answered(self, tokens: Sequence[Token]) -> str | None:
        """The name of an inner query that lanes answer; None: they do not, as a whole."""
        try:
            query = self.parse(tokens)
        except UnsupportedError:
            return None
        if not is_answered(query) or self._is_aggregated(query):
            return None
        own = written(self.script, tokens)
        name = _name(query, own.text)
        # the same words in other lines are the same query
        name = self._names.setdefault(spelling(tokens), name)
        start, end = own.span(0, len(own.text))
        clause = Clause(self.script[start:end], self.script, start)
        self.found.setdefault(name, InnerQuery(name, query, own.text, clause))
        return name

    def _is_aggregated(self, query: object) -> bool:
        """Whether a query aggregates rows of a view, or selects from such a query."""
        while isinstance(query, SelectQuery) and query.inner is not None:
            query = query.inner
        if not isinstance(query, WindowQuery):
            return False
        read: SelectQuery | WindowQuery = query
        while isinstance(read.inner, SelectQuery):
            read = read.inner
        return read.source.upper() in self.aggregated


def is_answered(query: object) -> bool:
    """Whether lanes answer a query by itself, and others can read its rows."""
    if isinstance(query, SelectQuery):
        return query.inner is not None and is_answered(query.inner)
    if isinstance(query, WindowQuery):
        # a view over rows of another view has no log of its own rows
        is_plain = query.hints.deadline_seconds is None and query.hints.cumulate is None
        return is_plain and _is_selection(query.inner)
    if isinstance(query, JoinQuery):
        return all(_is_selection(each.inner) for each in query.sources)
    return isinstance(query, UnionQuery)


def _is_selection(query: object) -> bool:
    """Whether a query in FROM is a selection from a table or named view, or there is none."""
    return query is None or (isinstance(query, SelectQuery) and _is_selection(query.inner))


def _name(query: object, text: str) -> str:
    while isinstance(query, SelectQuery):
        query = query.inner
    if isinstance(query, JoinQuery):
        return joined_name(text)
    return union_name(text) if isinstance(query, UnionQuery) else groups_name(text)


def _named(name: str, place: Token) -> Iterator[Token]:
    around = (place.line, place.col, place.start, place.end)
    for kind, text in (
        (TokenType.SELECT, "SELECT"),
        (TokenType.STAR, "*"),
        (TokenType.FROM, "FROM"),
        (TokenType.VAR, name),
    ):
        yield Token(kind, text, *around)


def apart(query: RefreshedQuery, views: Mapping[str, str]) -> RefreshedQuery:
    """A query whose inner queries are views that are declared.

    Args:
        query: the query.
        views: the views that have the tuples of streams which it reads, by the name of the stream in upper case.
    """
    own = ((views.get(name.upper(), name), clause) for name, clause in query.sources)
    named = ((each.name, each.clause) for each in query.inner)
    streams = tuple((name, views[name.upper()]) for name, _ in query.sources if name.upper() in views)
    return replace(query, inner=(), sources=(*own, *named), streams=streams)
