"""Queries of WITH, put where they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
    if all(token.token_type is not TokenType.WITH for token in tokens):
        return tokens
    return _Inliner(script, check).inlined(tokens, {})


@dataclass(eq=False, slots=True)
class _Named:
    """A query of WITH.

    Attributes:
        tokens: those of the query, without WITH.
        is_read: whether something has read it.
    """

    tokens: Sequence[Token]
    is_read: bool = False


class _Inliner:
    """Puts queries of WITH where they are read, also those of WITH within a query in parentheses.

    Args: `script` and `check` of `with_inlined`.
    """

    def __init__(self, script: str, check: Callable[[Sequence[Token]], object]) -> None:
        self._script = script
        self._check = check

    def inlined(self, tokens: Sequence[Token], around: Mapping[str, _Named]) -> Sequence[Token]:
        """A query without WITH.

        Args:
            tokens: those of the query.
            around: queries of WITH around it, by name in upper case.
        """
        script, cursor = self._script, Cursor(self._script, tokens)
        if not cursor.accept(TokenType.WITH):
            return self._read(tokens, around)
        if cursor.word() == "RECURSIVE":
            raise UnsupportedError("WITH RECURSIVE is not supported.", script, *cursor.place())
        own: dict[str, _Named] = {}
        while True:
            place = cursor.place()
            name = cursor.name("the name of a query")
            if name.upper() in own:
                raise SqlError(f"WITH has two queries of the name {name}.", script, *place)
            if cursor.kind() is TokenType.L_PAREN:
                message = f"Names of columns behind {name} are not supported. Name them in its SELECT list, with AS."
                raise UnsupportedError(message, script, *cursor.place())
            cursor.accept(TokenType.ALIAS)
            end = closing(tokens, cursor.position) if cursor.kind() is TokenType.L_PAREN else None
            if end is None:
                raise SqlError(f"A query in parentheses is expected behind {name}.", script, *cursor.place())
            query = self.inlined(tokens[cursor.position + 1 : end], {**around, **own})
            own[name.upper()] = _Named(query)
            cursor.position = end + 1
            if not cursor.accept(TokenType.COMMA):
                break
        if cursor.kind() is not TokenType.SELECT:
            raise SqlError("SELECT is expected behind the queries of WITH.", script, *cursor.place())
        inlined = self._read(tokens[cursor.position :], {**around, **own})
        for each in own.values():
            if not each.is_read:
                self._check(each.tokens)
        return inlined

    def _read(self, tokens: Sequence[Token], known: Mapping[str, _Named]) -> Sequence[Token]:
        """Some tokens with queries in the place of their names."""
        found: list[Token] = []
        sources = set(sources_in(tokens))
        position = 0
        while position < len(tokens):
            token = tokens[position]
            following = tokens[position + 1] if position + 1 < len(tokens) else None
            kind = None if following is None else following.token_type
            if token.token_type is TokenType.L_PAREN and kind is TokenType.WITH:
                end = closing(tokens, position) or len(tokens)
                found += [token, *self.inlined(tokens[position + 1 : end], known)]
                position = end
                continue
            name = name_of(token)
            query = known.get(name.upper()) if name is not None else None
            position += 1
            if query is None or position - 1 not in sources or kind is TokenType.DOT:
                found.append(token)
                continue
            assert name is not None, "it has a query"
            query.is_read = True
            around = (token.line, token.col, token.start, token.end)
            found += [
                Token(TokenType.L_PAREN, "(", *around),
                *query.tokens,
                Token(TokenType.R_PAREN, ")", *around),
            ]
            if not _is_alias(following):
                found.append(Token(TokenType.IDENTIFIER, name, *around))
            if len(found) > _MOST_TOKENS:
                message = "The queries of WITH become too long. Make those that are read several times views of their own."
                raise UnsupportedError(message, self._script, token.start, token.end + 1)
        return found


def _is_alias(token: Token | None) -> bool:
    """Whether a token behind the name of a table is the name that the query calls it by, or AS."""
    if token is None or token.text.upper() == "MATCH_CONDITION":
        return False
    return token.token_type in (TokenType.ALIAS, TokenType.VAR, TokenType.IDENTIFIER)


def sources_in(tokens: Sequence[Token]) -> Iterator[int]:
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
