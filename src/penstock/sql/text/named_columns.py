"""The columns that SELECT lists name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.sql.text.lexing import name_of, tokenize

#: words without which no text stands for columns that it does not name
_ANY_COLUMN = re.compile(r"\*|\bidentifier\b", re.IGNORECASE)
_OPERANDS = (TokenType.NUMBER, TokenType.STRING, TokenType.R_PAREN, TokenType.R_BRACKET)
_ENDS = (TokenType.R_PAREN, TokenType.COMMA)
_WORD = re.compile(r"\w+", re.ASCII)


def named_columns(expressions: Iterable[str], columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that expressions may read: those whose name is a word of one, in whatever case, also of a string or a function's name.

    Args:
        expressions: texts of a SELECT list, `*` written out.
        columns: all columns.

    Raises:
        SqlError: a text has something that is not closed.

    Returns:
        Some of `columns`, in their order, each that an expression reads among them.
    """
    texts = list(expressions)
    if any(_ANY_COLUMN.search(text) and _may_be_any(tokenize(text)) for text in texts):
        return tuple(columns)
    text = "\n".join(texts)
    lowered = text.lower()
    words = set(_WORD.findall(lowered))
    return tuple(name for name in columns if _may_be_named(name, lowered, words))


def _may_be_any(tokens: Sequence[Token]) -> bool:
    """Whether a `*` is there that has not a factor on either side, or Spark's IDENTIFIER('name')."""
    for position, token in enumerate(tokens):
        if token.text.upper() == "IDENTIFIER":
            return True
        if token.token_type is not TokenType.STAR:
            continue
        before = tokens[position - 1] if position else None
        after = tokens[position + 1] if position + 1 < len(tokens) else None
        if before is None or after is None or after.token_type in _ENDS:
            return True
        is_factor = before.token_type in _OPERANDS or (name_of(before) or "ALL").upper() not in (
            "ALL",
            "DISTINCT",
        )
        if not is_factor:
            return True
    return False


def _may_be_named(name: str, text: str, words: set[str]) -> bool:
    # which letters are equal in other cases is Spark's to say
    if not name.isascii():
        return True
    lowered = name.lower()
    if _WORD.fullmatch(lowered):
        return lowered in words
    return lowered.replace("`", "``") in text
