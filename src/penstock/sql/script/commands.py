"""Statements that declare nothing: SET, SHOW VIEWS and DESCRIBE."""

from __future__ import annotations

import re
from functools import partial

from sqlglot.tokenizer_core import TokenType

from penstock.errors import UnsupportedError
from penstock.sql.script.statements import Asking, Describe, SetValue, ShowViews
from penstock.sql.text.cursor import Cursor

#: the first words of these statements
COMMANDS = ("SET", "SHOW", "DESCRIBE", "DESC")
_STRINGS = (TokenType.STRING, TokenType.RAW_STRING)
_FORM = "Write SET penstock.name = value or SET spark.name = value."
#: the tokenizer leaves the rest of a SHOW whole, with its comments
_VIEWS = re.compile(r"VIEWS\b\s*(?:--[^\n]*\s*|/\*.*?\*/\s*)*", re.IGNORECASE | re.DOTALL)
_WIDER = ("EXTENDED", "FORMATTED")
_OF_QUERIES = ("SELECT", "WITH", "QUERY", "FROM", "VALUES")


def parse_command(cursor: Cursor) -> SetValue | Asking | None:
    """Parse SET, SHOW VIEWS or DESCRIBE from the first token on.

    Args:
        cursor: stands before the first token of a statement.

    Returns:
        What the statement is; None of another one, and of a SHOW of anything else: the cursor has not moved.

    Raises:
        SqlError: the statement is not complete, or goes on.
        UnsupportedError: a form that Penstock does not have.
    """
    word = cursor.word()
    if word == "SET":
        return _set(cursor)
    if word == "SHOW" and len(cursor.tokens) == 2 and (views := _VIEWS.match(cursor.tokens[1].text)):
        if views.end() < len(cursor.tokens[1].text):
            raise cursor.fail("SHOW VIEWS takes no other words. End it with ;")
        return ShowViews()
    if word in ("DESCRIBE", "DESC"):
        return _describe(cursor)
    return None


def _set(cursor: Cursor) -> SetValue:
    """`SET name = value`; name and value with or without quotes."""
    start = cursor.place()[0]
    cursor.position += 1
    if cursor.accept_words("TIME", "ZONE"):
        message = "SET TIME ZONE is not supported. Write SET spark.sql.session.timeZone = 'Europe/Berlin'."
        raise cursor.fail(message, UnsupportedError)
    sign = next(filter(partial(_is_sign, cursor), range(2, len(cursor.tokens))), len(cursor.tokens))
    name, place = _word(cursor, sign, "the name of a setting", "=")
    if sign == len(cursor.tokens):
        raise cursor.fail(f"Expected = and a value here. {_FORM}")
    cursor.position = sign + 1
    value, value_place = _word(cursor, len(cursor.tokens), "a value", "the end of the statement")
    return SetValue(name, value, start, value_place[1], cursor.script, {"": place, "value": value_place})


def _is_sign(cursor: Cursor, position: int) -> bool:
    """Whether a token is the `=` or TO of a SET; TO may be a part of a name."""
    before, token = cursor.tokens[position - 1], cursor.tokens[position]
    is_apart = before.end + 1 < token.start
    return cursor.kinds[position] is TokenType.EQ or (is_apart and token.text.upper() == "TO")


def _word(cursor: Cursor, end: int, what: str, behind: str) -> tuple[str, tuple[int, int]]:
    """A name or value, without its quotes, and its place.

    Args:
        cursor: stands before it.
        end: number of the first token behind it.
        what: names it in messages.
        behind: names what follows it.
    """
    if cursor.position >= end:
        raise cursor.expected(what)
    first = cursor.position
    begin, last = cursor.place()[0], cursor.tokens[end - 1].end + 1
    if cursor.kind() in _STRINGS:
        text = cursor.string_value()
    elif cursor.kind() is TokenType.IDENTIFIER:
        text = cursor.tokens[first].text
        cursor.position += 1
    else:
        text = cursor.script[begin:last]
        blanks = (n for n in range(first + 1, end) if cursor.tokens[n].start > cursor.tokens[n - 1].end + 1)
        cursor.position = next(blanks, end)
    if cursor.position < end:
        raise cursor.fail(f"Expected {behind} here. A text with blanks needs quotes.")
    return text, (begin, last)


def _describe(cursor: Cursor) -> Describe:
    """`DESCRIBE [TABLE | VIEW] name`."""
    cursor.position += 1
    if cursor.word() in ("TABLE", "VIEW") and cursor.kind(1) is not None:
        cursor.position += 1
    if cursor.word() in _WIDER and cursor.kind(1) is not None:
        message = f"Leave {cursor.word()} out: DESCRIBE shows columns and their types."
        raise cursor.fail(message, UnsupportedError)
    if cursor.word() in _OF_QUERIES and cursor.kind(1) is not None:
        message = "DESCRIBE takes a name. Write CREATE VIEW name AS SELECT ..., then DESCRIBE name."
        raise cursor.fail(message, UnsupportedError)
    place = cursor.place()
    name = cursor.name("the name of a stream, static table or view")
    if cursor.kind() is not None:
        raise cursor.expected("the end of the statement")
    return Describe(name, *place, cursor.script)
