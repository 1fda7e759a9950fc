"""Statements that no script has: what to do instead."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import StatementError, nearest

ALLOWED = (
    "Allowed statements: CREATE TABLE name [(column type, ...)] USING source OPTIONS (key 'value', ...), "
    "CREATE [OR REPLACE] VIEW name [TBLPROPERTIES (retain '30 days')] AS SELECT ..., DROP VIEW [IF EXISTS] name, "
    "CREATE VIEWS FROM 'path' ON stream, INSERT INTO name SELECT ..., SET penstock.name = value, SHOW VIEWS, DESCRIBE name"
)

_AS_A_VIEW = "Write CREATE VIEW name AS SELECT ..."
_AS_AN_INPUT = "CREATE TABLE name (columns) USING source OPTIONS (...)."
_OWN_FUNCTIONS = "Register functions with `--functions FILE` or `Engine.function`."
_TEMPORARY = ("TEMPORARY", "TEMP", "GLOBAL TEMPORARY", "GLOBAL TEMP")
#: statements of other systems that declare an input or, if they have a query, a view
_OF_A_QUERY = ("CREATE STREAM", "CREATE STREAMING", *(f"CREATE {each} TABLE" for each in _TEMPORARY))
#: what to do instead of a statement of another kind, by how it begins
_INSTEAD = {
    **{
        f"CREATE {begin}{word} VIEW": f"Leave {word} out: write CREATE {begin}VIEW name AS SELECT ..."
        for word in _TEMPORARY
        for begin in ("", "OR REPLACE ")
    },
    **{f"CREATE {word} TABLE": f"Leave {word} out: write {_AS_AN_INPUT}" for word in _TEMPORARY},
    "CREATE OR REPLACE": "Only views can be replaced. Edit the script; `penstock run --watch` applies the change.",
    "DROP": "Remove the statement from the script; `penstock run --watch` applies the change.",
    "ALTER": "Edit the script; `penstock run --watch` applies the change.",
    "SHOW": "SHOW VIEWS lists the views, `penstock check SCRIPT` the streams.",
    **dict.fromkeys(
        ("CREATE FUNCTION", "CREATE TEMPORARY FUNCTION", "CREATE TEMPORARY SYSTEM FUNCTION"), _OWN_FUNCTIONS
    ),
    **dict.fromkeys(
        ("CREATE MATERIALIZED", "CREATE TEMPORARY", "CREATE TEMP", "CREATE GLOBAL", "CREATE LIVE"), _AS_A_VIEW
    ),
    **dict.fromkeys(
        ("CREATE STREAM", "CREATE STREAMING", "CREATE SOURCE", "CREATE EXTERNAL"), f"Write {_AS_AN_INPUT}"
    ),
    "CREATE SINK": "Write INSERT INTO table SELECT ...; declare the table first.",
    "SELECT": _AS_A_VIEW,
    "WITH": "Write a CREATE VIEW for each query.",
    "RESET": "Remove RESET, and the SET that it takes back: a setting applies to the whole script.",
    **dict.fromkeys(
        ("BEGIN", "EXECUTE"),
        "Write the INSERT INTO statements one after the other: one run answers the whole script.",
    ),
    "END": "Leave it out: one run answers the whole script.",
}
#: words at the beginning of statements
_WORDS = ("CREATE", "TABLE", "VIEW", "VIEWS", "DROP", "INSERT", "INTO", "SHOW", "DESCRIBE")


def refusal(script: str, tokens: Sequence[Token], position: int) -> StatementError:
    """Return the refusal of a statement by its first words.

    Args:
        script: the text the tokens come from.
        tokens: those of the statement.
        position: number of the first token that no statement has there.
    """
    end = tokens[min(position, len(tokens) - 1)].end + 1
    begin = " ".join(token.text.upper() for token in tokens[:6])
    word = next((each for each in _INSTEAD if f"{begin} ".startswith(f"{each} ")), "")
    instead = _INSTEAD.get(word, "")
    if word in _OF_A_QUERY and any(token.token_type is TokenType.SELECT for token in tokens):
        instead = _AS_A_VIEW
    if not instead:
        instead = next(filter(None, map(_near, (token.text for token in tokens[:2]))), "")
    message = f"This statement is not supported. {instead or ALLOWED}"
    return StatementError(message, script, tokens[0].start, end)


def _near(word: str) -> str:
    """The question whether a word is misspelt that a statement begins with; nothing of other words."""
    near = None if word.upper() in _WORDS else nearest(word, _WORDS)
    return "" if near is None else f"Did you mean {near}?"
