"""Tokens of Spark SQL text, with the places they come from."""

from __future__ import annotations

from sqlglot.dialects import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError

_SPARK = Spark()
_QUOTES = {"'": "string", '"': "string", "`": "quoted name"}


def tokenize(text: str, offset: int = 0, whole: str | None = None) -> list[Token]:
    """Splits Spark SQL text into tokens whose `start` and `end` (inclusive) are offsets in `text`.

    Args:
        text: what to split.
        offset: where `text` begins in `whole`.
        whole: the text in which a mistake is shown.

    Raises:
        SqlError: a string, name or comment that does not end.
    """
    try:
        tokens: list[Token] = _SPARK.tokenize(text)
        return tokens
    except TokenError as error:
        start, what = _unterminated(text)
        raise SqlError(
            f"The {what} that begins here does not end.",
            text if whole is None else whole,
            offset + start,
            offset + len(text),
        ) from error


def _unterminated(text: str) -> tuple[int, str]:
    """Where the quotation or comment begins that runs to the end of the text."""
    position = 0
    while position < len(text):
        character = text[position]
        if text.startswith("--", position):
            end = text.find("\n", position)
        elif text.startswith("/*", position):
            end = text.find("*/", position + 2)
            if end < 0:
                return position, "comment"
        elif character in _QUOTES:
            end = position + 1
            while end < len(text) and text[end] != character:
                end += 2 if text[end] == "\\" and character != "`" else 1
            if end >= len(text):
                return position, _QUOTES[character]
        else:
            end = position
        position = len(text) if end < 0 else end + 1
    return 0, "text"


def name_of(token: Token) -> str | None:
    """The name a token spells where a name may stand, or None."""
    if token.token_type is TokenType.IDENTIFIER or token.token_type is TokenType.VAR:
        return token.text
    if token.text and (token.text[0].isalpha() or token.text[0] == "_") and token.text.isidentifier():
        return token.text if token.token_type is not TokenType.STRING else None
    return None


def quote(name: str) -> str:
    """A name in backquotes."""
    return "`" + name.replace("`", "``") + "`"
