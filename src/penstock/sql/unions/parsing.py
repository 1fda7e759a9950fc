"""From tokens to a UNION ALL: as a whole query, and in FROM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import UnsupportedError
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import in_parentheses, outer, parentheses_in_from
from penstock.sql.text.query import SelectQuery
from penstock.sql.text.written import written
from penstock.sql.unions.query import UnionQuery, union_name

ALLOWED_UNION = "Allowed in a UNION ALL: SELECT scalar expressions FROM one stream, selection or UNION ALL WHERE condition, in each branch."

#: the places of a query in FROM among tokens: of its parentheses
Place = tuple[int, int]


def is_union(tokens: Sequence[Token]) -> bool:
    """Whether a query unites others."""
    return next(_unions(bare_query(tokens)), None) is not None


def bare_query(tokens: Sequence[Token]) -> Sequence[Token]:
    """The tokens of a query without parentheses around all of it."""
    while in_parentheses(tokens) and _begins_query(tokens[1:]):
        tokens = tokens[1:-1]
    return tokens


def parse_union(
    script: str, tokens: Sequence[Token], parse: Callable[[str, Sequence[Token]], object]
) -> UnionQuery:
    """Reads a query for which `is_union` holds.

    Args:
        script: the text the tokens come from.
        tokens: those of the query.
        parse: reads the query of a branch.

    Raises:
        UnsupportedError: ALL is missing, or a branch is no selection.
        SqlError: a mistake in a branch.
    """
    tokens = bare_query(tokens)
    branches: list[SelectQuery | UnionQuery] = []
    begin = 0
    for place in (*_unions(tokens), len(tokens)):
        if place < len(tokens) and (
            place + 1 == len(tokens) or tokens[place + 1].token_type is not TokenType.ALL
        ):
            union = tokens[place]
            message = (
                "UNION without ALL is not supported yet, because it compares all rows so far. "
                f"Write UNION ALL, and SELECT DISTINCT columns FROM (...) around it. {ALLOWED_UNION}"
            )
            raise UnsupportedError(message, script, union.start, union.end + 1)
        own = bare_query(tokens[begin:place])
        if not own:
            before = tokens[min(begin, len(tokens)) - 1]
            message = f"A branch is missing here. {ALLOWED_UNION}"
            raise UnsupportedError(message, script, before.start, before.end + 1)
        branch = parse(script, own)
        if not isinstance(branch, SelectQuery | UnionQuery):
            message = (
                f"A branch of a UNION ALL that joins or aggregates is not supported yet. {ALLOWED_UNION}"
            )
            raise UnsupportedError(message, script, own[0].start, own[-1].end + 1)
        branches.append(branch)
        begin = place + 2
    return UnionQuery(tuple(branches), whole(script, tokens))


def union_in_from(tokens: Sequence[Token]) -> Place | None:
    """Where FROM has a UNION ALL in parentheses; None where it has something else."""
    place = parentheses_in_from(tokens)
    return place if place and is_union(tokens[place[0] + 1 : place[1]]) else None


def named_in_from(
    script: str, tokens: Sequence[Token], place: Place, named: Callable[[str], str] = union_name
) -> list[Token]:
    """The tokens of a query with a name in the place of a query in FROM.

    Args:
        script: the text the tokens come from.
        tokens: those of the query.
        place: see `union_in_from`.
        named: gives the name by the text.
    """
    first, last, own = tokens[place[0]], tokens[place[1]], tokens[place[0] + 1 : place[1]]
    name = named(written(script, own).text)
    token = Token(TokenType.VAR, name, first.line, first.col, first.start, last.end, [])
    return [*tokens[: place[0]], token, *tokens[place[1] + 1 :]]


def whole(script: str, tokens: Sequence[Token]) -> Clause:
    """The text of some tokens."""
    return Clause(script[tokens[0].start : tokens[-1].end + 1], script, tokens[0].start)


def _unions(tokens: Sequence[Token]) -> Iterator[int]:
    """Where UNION stands between the branches of a query."""
    if not _begins_query(tokens):
        return
    yield from (position for position, token in outer(tokens) if token.token_type is TokenType.UNION)


def _begins_query(tokens: Sequence[Token]) -> bool:
    """Whether a query begins here, behind parentheses."""
    kinds = (token.token_type for token in tokens if token.token_type is not TokenType.L_PAREN)
    return next(kinds, None) is TokenType.SELECT
