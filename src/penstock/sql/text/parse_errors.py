"""What is wrong with an expression that sqlglot does not parse."""

from __future__ import annotations

from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import TokenType

from penstock.errors import SqlError
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import closing, is_call, tokenize

#: how sqlglot begins to say that a function has another number of arguments
_OF_ARGUMENTS = ("Required keyword", "The number of provided arguments")


def parse_mistake(error: ParseError, clause: Clause) -> SqlError:
    """Return the mistake in an expression, at its place.

    Args:
        error: sqlglot's.
        clause: the expression.
    """
    start, end = _place_of(error, clause.text)
    described = (error.errors[0].get("description") if error.errors else None) or ""
    # operators lack an operand, functions an argument
    is_operator = ".expressions.core." in described
    call = _call_that_ends(clause.text, end)
    if is_operator or call is None or not described.startswith(_OF_ARGUMENTS):
        return clause.error(SqlError, "This is not an expression.", start, end)
    name, start, has_arguments, is_distinct = call
    message = f"{name} needs arguments. Write them in its parentheses, such as the name of a column."
    if has_arguments:
        message = f"{name} takes another number of arguments."
        if is_distinct:
            message = f"{message[:-1]}; DISTINCT of several is not supported."
    return clause.error(SqlError, message, start, end)


def _call_that_ends(text: str, end: int) -> tuple[str, int, bool, bool] | None:
    """The call of a function that ends at a place: its name, where it begins, whether it has arguments, and DISTINCT ones; None: no call does."""
    tokens = tokenize(text)
    for opening in range(1, len(tokens)):
        if tokens[opening].token_type is not TokenType.L_PAREN or not is_call(tokens, opening - 1):
            continue
        last = closing(tokens, opening)
        if last is not None and tokens[last].end + 1 == end:
            name, first = tokens[opening - 1], tokens[opening + 1]
            is_distinct = first.token_type is TokenType.DISTINCT
            return name.text.upper(), name.start, last > opening + 1, is_distinct
    return None


def _place_of(error: ParseError, text: str) -> tuple[int, int]:
    """Where sqlglot found a mistake."""
    if not error.errors or error.errors[0].get("col") is None:
        return 0, len(text)
    found = error.errors[0]
    lines = text.splitlines(keepends=True)
    end = sum(map(len, lines[: found["line"] - 1])) + found["col"]
    return max(0, min(end, len(text)) - len(found["highlight"] or " ")), min(end, len(text))
