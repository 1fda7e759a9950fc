"""Reading queries with the hint `REFRESH`: Spark answers them, so that only what they read is looked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.refreshed.query import RefreshedQuery
from penstock.sql.text.clauses import Clause
from penstock.sql.text.hints import Hints, parse_hints
from penstock.sql.text.lexing import name_of, parse_expression, tokenize

_REFRESH = re.compile(r"\bREFRESH\b", re.IGNORECASE)
#: what a refused query may be given instead
REMEDY = "or add the hint /*+ REFRESH('1 minute') */ behind SELECT: Spark then answers the whole query every minute"


def is_refreshed(tokens: Sequence[Token]) -> bool:
    """Whether a query has the hint, in whichever of its SELECTs."""
    return any(_is_refresh(token) for token in tokens)


def parse_refreshed_query(script: str, tokens: Sequence[Token]) -> RefreshedQuery:
    """Reads a query for which `is_refreshed` holds.

    Raises:
        SqlError: it is no query, the hint is wrong, or beside others.
        UnsupportedError: it names a table of a database, or none.
    """
    start, end = tokens[0].start, tokens[-1].end + 1
    clause = Clause(script[start:end], script, start)
    hints = [parse_hints(script, token) for token in tokens if token.token_type is TokenType.HINT]
    seconds = _only(script, hints)
    try:
        tree = parse_expression(clause.text)
    except SqlglotError:
        tree = None
    if not isinstance(tree, exp.Query):
        message = "This is no query that can be refreshed. Write SELECT /*+ REFRESH('1 minute') */ ..."
        raise clause.error(SqlError, message, 0, len(clause.text))
    sources = tuple(_sources(tree, clause))
    if not sources:
        message = "A view needs a stream. Name one in FROM."
        raise clause.error(UnsupportedError, message, 0, len(clause.text))
    return RefreshedQuery(clause, seconds, sources, _names(tree, tokens))


def _is_refresh(token: Token) -> bool:
    return token.token_type is TokenType.HINT and _REFRESH.search(token.text) is not None


def _only(script: str, hints: Sequence[Hints]) -> float:
    """The interval of the only hint of ours.

    Raises:
        SqlError: there are others beside it.
    """
    first, *others = (each for each in hints if each.refresh_seconds is not None)
    for each in others:
        raise SqlError("REFRESH is given twice.", script, *each.places["REFRESH"])
    for each in hints:
        for name, place in each.places.items():
            if name != "REFRESH":
                message = f"A refreshed view is answered as a whole, so {name} means nothing there. Remove it, or REFRESH."
                raise SqlError(message, script, *place)
    assert first.refresh_seconds is not None, "it is the one that has it"
    return first.refresh_seconds


def _sources(tree: exp.Query, clause: Clause) -> Iterator[tuple[str, Clause]]:
    """The tables that are no common table expressions, each once."""
    seen: set[str] = set()
    for scope in traverse_scope(tree):
        for source in scope.sources.values():
            if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
                continue
            start, end = source.this.meta["start"], source.this.meta["end"] + 1
            if source.db:
                message = "Names of tables and views have one part, without dots."
                raise clause.error(UnsupportedError, message, start, end)
            if source.name.upper() not in seen:
                seen.add(source.name.upper())
                text = clause.text[start:end]
                yield source.name, Clause(text, clause.script, clause.start + start)


def _reads_all(tree: exp.Expression) -> bool:
    """Whether columns are read that are not named: by a star, or by the names that two tables share."""
    stars = (star for star in tree.find_all(exp.Star) if not isinstance(star.parent, exp.Count))
    natural = (join for join in tree.find_all(exp.Join) if join.args.get("method") == "NATURAL")
    return next(stars, None) is not None or next(natural, None) is not None


def names_read(text: str) -> frozenset[str] | None:
    """Every name in a query, in upper case, among which are those of all columns that it reads; None: it may read all columns.

    Args:
        text: the text of a view, which has been parsed.
    """
    return _names(parse_expression(text), tokenize(text))


def _names(tree: exp.Expression, tokens: Sequence[Token]) -> frozenset[str] | None:
    if _reads_all(tree):
        return None
    return frozenset(name.upper() for token in tokens if (name := name_of(token)) is not None)
