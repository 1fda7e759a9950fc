"""Conditions that cannot be what was meant: comparisons that are never true, or that can only raise."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.conditions.nodes import Condition, operands
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import name_of, tokenize

NEVER_NULL = "A comparison with NULL is never true. Use IS NULL or IS NOT NULL."
NEVER = "This condition is never true: it matches no row."
_DIVISIONS = (TokenType.SLASH, TokenType.MOD, TokenType.DIV)
_ZERO = re.compile(r"(?=\.?0)0*\.?0*(?:[eE][+-]?\d+)?[a-zA-Z]*")
#: text without it divides by no zero
_MAY_DIVIDE = re.compile(r"(?:[/%]|\bdiv\b)[\s(]*\.?0", re.IGNORECASE)


def refuse_zero_division(clause: Clause, condition: Condition) -> None:
    """Makes sure that no side of a comparison divides by a literal zero; what is computed in some rows only may.

    Raises:
        UnsupportedError: one does, so that it raises for every row in which the dividend is not NULL.
    """
    if _MAY_DIVIDE.search(clause.text) is None:
        return
    for operand in operands(condition):
        if operand.literal is None and _divides_by_zero(operand.text):
            raise clause.error(
                UnsupportedError,
                "This divides by zero and fails for every row. Use another divisor, or try_divide.",
                operand.start,
                operand.end,
            )


def warning(clause: Clause, message: str, start: int, end: int) -> str:
    """What is said of a place in a condition."""
    return clause.error(SqlError, message, start, end).render()


def _divides_by_zero(text: str) -> bool:
    tokens = tokenize(text)
    #: of each open parenthesis, whether what is in it is computed for every row
    opened: list[bool] = []
    for place, token in enumerate(tokens):
        kind = token.token_type
        if kind is TokenType.CASE:
            return False
        if kind is TokenType.L_PAREN:
            opened.append(not place or name_of(tokens[place - 1]) is None)
        elif kind is TokenType.R_PAREN and opened:
            opened.pop()
        elif kind in _DIVISIONS and all(opened) and _is_zero(tokens[place + 1 :]):
            return True
    return False


def _is_zero(divisor: Sequence[Token]) -> bool:
    """Whether what begins with some tokens is a literal zero, in parentheses or not."""
    kinds = [each.token_type for each in divisor]
    depth = next((place for place, kind in enumerate(kinds) if kind is not TokenType.L_PAREN), len(kinds))
    return (
        kinds[depth : 2 * depth + 1] == [TokenType.NUMBER, *[TokenType.R_PAREN] * depth]
        and _ZERO.fullmatch(divisor[depth].text) is not None
    )
