"""Statements that no script has: what to do instead."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token

from penstock.errors import UnsupportedError

ALLOWED = (
    "Allowed statements: CREATE TABLE name [(column type, ...)] USING source OPTIONS (key 'value', ...), "
    "CREATE [OR REPLACE] VIEW name [TBLPROPERTIES (retain '30 days')] AS SELECT ..., DROP VIEW [IF EXISTS] name, "
    "CREATE VIEWS FROM 'path' ON stream, INSERT INTO name SELECT ..."
)

_DESCRIBED = (
    "`penstock check SCRIPT` tests a script; `penstock explain SCRIPT` shows what each view computes."
)
#: what to do instead of a statement of another kind, by how it begins
_INSTEAD = {
    "CREATE OR REPLACE": "Only views can be replaced. Edit the script; `penstock run --watch` applies the change.",
    "DROP": "Remove the statement from the script; `penstock run --watch` applies the change.",
    "ALTER": "Edit the script; `penstock run --watch` applies the change.",
    "SHOW": "`penstock status DIR` lists the streams and views of a run.",
    "DESCRIBE": _DESCRIBED,
    "DESC": _DESCRIBED,
    "CREATE FUNCTION": "Register functions with `--functions FILE` or `Engine.function`.",
    "CREATE TEMPORARY": "Write CREATE VIEW name AS SELECT ...",
    "SELECT": "Write CREATE VIEW name AS SELECT ...",
    "WITH": "Write a CREATE VIEW for each query.",
}


def refusal(script: str, tokens: Sequence[Token], position: int) -> UnsupportedError:
    """Return the refusal of a statement by its first words.

    Args:
        script: the text the tokens come from.
        tokens: those of the statement.
        position: number of the first token that no statement has there.
    """
    end = tokens[min(position, len(tokens) - 1)].end + 1
    begin = " ".join(token.text.upper() for token in tokens[:3])
    instead = next((told for word, told in _INSTEAD.items() if f"{begin} ".startswith(f"{word} ")), "")
    message = " ".join(("This statement is not supported.", *filter(None, (instead,)), ALLOWED))
    return UnsupportedError(message, script, tokens[0].start, end)
