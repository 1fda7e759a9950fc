"""Reading tokens from left to right."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError
from penstock.sql.text.lexing import name_of, token_kinds
from penstock.sql.text.literals import string


class Cursor:
    """A place among the tokens of a text.

    Args:
        script: the text the tokens come from.
        tokens: those that are read.
    """

    def __init__(self, script: str, tokens: Sequence[Token]) -> None:
        self.script = script
        self.tokens = tokens
        self.kinds = token_kinds(tokens)
        self.position = 0

    def kind(self, ahead: int = 0) -> TokenType | None:
        """The kind of a token from here on; None behind the last one."""
        position = self.position + ahead
        return self.kinds[position] if position < len(self.kinds) else None

    def word(self) -> str:
        """The token here in upper case; nothing behind the last one."""
        return self.tokens[self.position].text.upper() if self.position < len(self.tokens) else ""

    def place(self) -> tuple[int, int]:
        """The offsets of the token here, or of the last one; of the whole text where there are none."""
        if not self.tokens:
            return 0, len(self.script)
        token = self.tokens[min(self.position, len(self.tokens) - 1)]
        return token.start, token.end + 1

    def accept(self, kind: TokenType) -> bool:
        """Moves past a token of a kind, if one is here."""
        is_here = self.kind() is kind
        self.position += is_here
        return is_here

    def accept_words(self, *words: str) -> bool:
        """Moves past words, if all of them follow."""
        following = self.tokens[self.position : self.position + len(words)]
        is_here = tuple(each.text.upper() for each in following) == words
        self.position += len(words) * is_here
        return is_here

    def name(self, what: str) -> str:
        """Moves past a name.

        Raises:
            SqlError: `what` was expected.
        """
        name = name_of(self.tokens[self.position]) if self.position < len(self.tokens) else None
        if name is None:
            raise self.expected(what)
        self.position += 1
        return name

    def string_value(self) -> str:
        """Moves past one string, and returns what it stands for; a doubled quote inside makes two tokens of it."""
        start, end = self.place()
        self.position += 1
        while self.kind() is TokenType.STRING and self.place()[0] == end:
            end = self.place()[1]
            self.position += 1
        return string(self.script[start:end])

    def fail(self, message: str, kind: type[SqlError] = SqlError) -> SqlError:
        """A mistake here."""
        return kind(message, self.script, *self.place())

    def expected(self, what: str) -> SqlError:
        """The mistake that something else stands here."""
        return self.fail(f"Expected {what} here.")
