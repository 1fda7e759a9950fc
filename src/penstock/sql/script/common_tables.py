"""Queries of WITH, put where they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.text.cursor import Cursor
from penstock.sql.text.lexing import closing, name_of

#: tokens that a query of many names, each reading the one before twice, may become
_MOST_TOKENS = 50_000


def with_inlined(
    script: str, tokens: Sequence[Token], check: Callable[[Sequence[Token]], object]
) -> Sequence[Token]:
    """The tokens of a query without WITH: its queries stand in parentheses where FROM and JOIN name them.

    Each token keeps the place where it was written; what is put around a query has that of the name.

    Args:
        script: the text the tokens come from.
        tokens: those of a query.
        check: raises what is wrong with a query, for those that nothing reads.

    Raises:
        SqlError: WITH is not written as Spark reads it.
        UnsupportedError: RECURSIVE, names of columns behind that of a query, or queries that become too long.
    """
    cursor = Cursor(script, tokens)
    if not cursor.accept(TokenType.WITH):
        return tokens
    if cursor.word() == "RECURSIVE":
        raise UnsupportedError("WITH RECURSIVE is not supported.", script, *cursor.place())
    known: dict[str, Sequence[Token]] = {}
    read: set[str] = set()
    while True:
        place = cursor.place()
        name = cursor.name("the name of a query")
        if name.upper() in known:
            raise SqlError(f"WITH has two queries of the name {name}.", script, *place)
        if cursor.kind() is TokenType.L_PAREN:
            message = (
                f"Names of columns behind {name} are not supported. Name them in its SELECT list, with AS."
            )
            raise UnsupportedError(message, script, *cursor.place())
        cursor.accept(TokenType.ALIAS)
        end = closing(tokens, cursor.position) if cursor.kind() is TokenType.L_PAREN else None
        if end is None:
            raise SqlError(f"A query in parentheses is expected behind {name}.", script, *cursor.place())
        known[name.upper()] = _inlined(script, tokens[cursor.position + 1 : end], known, read)
        cursor.position = end + 1
        if not cursor.accept(TokenType.COMMA):
            break
    if cursor.kind() is not TokenType.SELECT:
        raise SqlError("SELECT is expected behind the queries of WITH.", script, *cursor.place())
    inlined = _inlined(script, tokens[cursor.position :], known, read)
    for name, query in known.items():
        if name not in read:
            check(query)
    return inlined


def refuse_inlined(script: str, tokens: Sequence[Token]) -> None:
    """Makes sure that a query which becomes a view of its own, known by its text, reads no query of WITH.

    Raises:
        UnsupportedError: it does.
    """
    if any(after.start < before.start for before, after in pairwise(tokens)):
        message = "A UNION ALL or aggregation in FROM that reads a query of WITH is not supported yet. Make that query a view."
        raise UnsupportedError(message, script, tokens[0].start, tokens[0].end + 1)


def _inlined(
    script: str, tokens: Sequence[Token], known: Mapping[str, Sequence[Token]], read: set[str]
) -> Sequence[Token]:
    """Some tokens with queries in the place of their names, which are added to those that are read."""
    found: list[Token] = []
    sources = set(_sources(tokens))
    for position, token in enumerate(tokens):
        name = name_of(token)
        query = known.get(name.upper()) if name is not None else None
        following = tokens[position + 1] if position + 1 < len(tokens) else None
        if (
            query is None
            or position not in sources
            or (following is not None and following.token_type is TokenType.DOT)
        ):
            found.append(token)
            continue
        assert name is not None, "it has a query"
        read.add(name.upper())
        around = (token.line, token.col, token.start, token.end)
        found += [Token(TokenType.L_PAREN, "(", *around), *query, Token(TokenType.R_PAREN, ")", *around)]
        if not _is_alias(following):
            found.append(Token(TokenType.IDENTIFIER, name, *around))
        if len(found) > _MOST_TOKENS:
            message = "The queries of WITH become too long. Make those that are read several times views of their own."
            raise UnsupportedError(message, script, token.start, token.end + 1)
    return found


def _is_alias(token: Token | None) -> bool:
    """Whether a token behind the name of a table is the name that the query calls it by, or AS."""
    if token is None or token.text.upper() == "MATCH_CONDITION":
        return False
    return token.token_type in (TokenType.ALIAS, TokenType.VAR, TokenType.IDENTIFIER)


def _sources(tokens: Sequence[Token]) -> Iterator[int]:
    """The places behind JOIN, and behind FROM where it is a clause: `extract(hour FROM ts)` and `IS DISTINCT FROM` have none."""
    #: of each open parenthesis, the innermost last: whether a SELECT is in it whose FROM is still to come
    awaits = [False]
    for position, token in enumerate(tokens):
        match token.token_type:
            case TokenType.L_PAREN:
                awaits.append(False)
            case TokenType.R_PAREN:
                awaits.pop()
            case TokenType.SELECT:
                awaits[-1] = True
            case TokenType.FROM if awaits[-1]:
                awaits[-1] = False
                yield position + 1
            case TokenType.JOIN:
                yield position + 1
