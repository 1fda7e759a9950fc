"""Reading queries with the hint `REFRESH`: Spark answers them, so that only what they read is looked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import InputError, SqlError, UnsupportedError
from penstock.sql.joins.version_clauses import LATERAL
from penstock.sql.refreshed.query import RefreshedQuery
from penstock.sql.text.clauses import Clause
from penstock.sql.text.hints import Hints, parse_hints
from penstock.sql.text.lexing import name_of, parse_whole_query, tokenize

#: how queries begin
_BEGINNINGS = (TokenType.SELECT, TokenType.WITH)
_REFRESH = re.compile(r"\bREFRESH\b", re.IGNORECASE)
#: the hint that a refused query may be given
_HINT = " /*+ REFRESH('1 minute') */"
#: by its first two words a join with the newest row
_NEWEST = {"FOR SYSTEM_TIME": "FOR SYSTEM_TIME AS OF", "ASOF JOIN": "ASOF JOIN"}
REMEDY = f"Or add the hint{_HINT} behind SELECT: Spark then answers the whole query once a minute."


def is_refreshed(tokens: Sequence[Token]) -> bool:
    """Whether a query has the hint, in whichever of its SELECTs."""
    return any(_is_refresh(token) for token in tokens)


def parse_refreshed_query(script: str, tokens: Sequence[Token]) -> RefreshedQuery:
    """Reads a query for which `is_refreshed` holds.

    Raises:
        SqlError: it is no query, the hint is wrong, or beside others.
        UnsupportedError: it names a table of a database, or none, or what it reads is not said by its text.
    """
    start, end = tokens[0].start, tokens[-1].end + 1
    clause = Clause(script[start:end], script, start)
    hints = [parse_hints(script, token) for token in tokens if token.token_type is TokenType.HINT]
    seconds = _only(script, hints)
    _refuse_newest(script, tokens)
    try:
        tree = parse_whole_query(clause.text)
    except SqlglotError:
        tree = None
    if not isinstance(tree, exp.Query):
        message = (
            "This cannot be refreshed, because it is not a query. Write SELECT /*+ REFRESH('1 minute') */ ..."
        )
        raise clause.error(SqlError, message)
    refuse_unstable(script, tokens, tree)
    sources = tuple(sources_of_tree(tree, clause))
    if not sources:
        raise clause.error(UnsupportedError, "A view needs a stream. Name one in FROM.")
    return RefreshedQuery(clause, seconds, sources, names_of(tree, tokens))


def refreshable(text: str, place: int) -> RefreshedQuery | None:
    """The query of a statement as it would be with the hint; None where there is none, or it has hints.

    Args:
        text: statements, or a query alone.
        place: a place in the statement.

    Raises:
        SqlError: it is no query.
    """
    tokens = _tokens_around(text, place)
    ends = [token.start for token in tokens if token.token_type is TokenType.SEMICOLON]
    begin = max((end for end in ends if end < place), default=-1)
    until = min((end for end in ends if end > place), default=len(text))
    own = [token for token in tokens if begin < token.start < until]
    first = next((number for number, token in enumerate(own) if token.token_type in _BEGINNINGS), None)
    if first is None or any(token.token_type is TokenType.HINT for token in own):
        return None
    query = text[own[first].start : own[-1].end + 1]
    select = next((token.end + 1 for token in own[first:] if token.token_type is TokenType.SELECT), None)
    if select is None:
        return None
    hinted = query[: select - own[first].start] + _HINT + query[select - own[first].start :]
    return parse_refreshed_query(hinted, tokenize(hinted))


def _tokens_around(text: str, place: int) -> Sequence[Token]:
    """The tokens of statements, up to what is not closed where that is behind a place.

    Raises:
        SqlError: what is not closed is before the place.
    """
    try:
        return tokenize(text)
    except SqlError as error:
        if error.start <= place:
            raise
        return tokenize(text[: error.start])


def may_be_refreshed(error: InputError) -> bool:
    """Whether a mistake is the refusal of a query that Spark might answer as a refreshed view."""
    if type(error) is not UnsupportedError or not error.text:
        return False
    try:
        return refreshable(error.text, error.start) is not None
    except SqlError:
        return False


def ended(message: str) -> str:
    """A message with a full stop at its end."""
    return message if message.endswith((".", "...")) else f"{message}."


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


def refuse_unstable(script: str, tokens: Sequence[Token], tree: exp.Query) -> None:
    """Refuse what reads other rows each time, or does not say which.

    Raises:
        UnsupportedError: it is in the query.
    """
    _refuse_newest(script, tokens)
    for token, after in pairwise(tokens):
        what = token.text.upper()
        if what == "IDENTIFIER" and after.token_type is TokenType.L_PAREN:
            message = "IDENTIFIER does not say what is read before it runs. Write the name."
        elif token.token_type is TokenType.TABLE_SAMPLE:
            message = (
                "A sample would have other rows at each refresh. Filter by the hash of a column instead."
            )
        elif what in ("VERSION", "TIMESTAMP") and after.text.upper() == "AS" and tree.find(exp.Version):
            message = "A stream has no versions. Remove AS OF."
        else:
            continue
        raise UnsupportedError(message, script, token.start, token.end + 1)


def _refuse_newest(script: str, tokens: Sequence[Token]) -> None:
    """Refuse joins with the newest row, which only lanes answer in these words.

    Raises:
        UnsupportedError: one is in the query.
    """
    for token, after in pairwise(tokens):
        words = f"{token.text} {after.text}".upper()
        if words in _NEWEST:
            message = (
                f"Spark answers this query, and {_NEWEST[words]} is not supported there. Write {LATERAL}."
            )
            raise UnsupportedError(message, script, token.start, after.end + 1)


def sources_of_tree(tree: exp.Query, clause: Clause) -> Iterator[tuple[str, Clause]]:
    """Yield the tables that are no common table expressions, each once, and where they are in the query's text."""
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
                yield source.name, clause.part(start, end)


def _reads_all(tree: exp.Expression) -> bool:
    """Whether columns are read that are not named: by a star, by the names that two tables share, or by PIVOT, which groups by the rest."""
    stars = (star for star in tree.find_all(exp.Star) if not isinstance(star.parent, exp.Count))
    natural = (join for join in tree.find_all(exp.Join) if join.args.get("method") == "NATURAL")
    return any(next(each, None) is not None for each in (stars, natural, tree.find_all(exp.Pivot)))


def names_read(text: str) -> frozenset[str] | None:
    """Every name in a query, in upper case, among which are those of all columns that it reads; None: it may read all columns.

    Args:
        text: the text of a view, which has been parsed.
    """
    return names_of(parse_whole_query(text), tokenize(text))


def names_of(tree: exp.Expression, tokens: Sequence[Token]) -> frozenset[str] | None:
    """Every name in a query, see `RefreshedQuery.names`."""
    if _reads_all(tree):
        return None
    return frozenset(name.upper() for token in tokens if (name := name_of(token)) is not None)
