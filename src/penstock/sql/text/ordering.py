"""Items of ORDER BY: expressions, and in which direction they order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import arguments


@dataclass(frozen=True, slots=True)
class OrderEntry:
    """An item of `ORDER BY`.

    Attributes:
        expression: Spark SQL text over the source's columns.
        is_descending, nulls_first: see `penstock.plan.rankings.OrderKey`.
        clause: where the expression was written.
    """

    expression: str
    is_descending: bool
    nulls_first: bool
    clause: Clause


def order_entry(clause: Clause, tokens: Sequence[Token], entry: tuple[int, int]) -> OrderEntry:
    """An item of ORDER BY.

    Args:
        clause: the text the tokens come from.
        tokens: those of the clause.
        entry: the range of those of the item, at least one.

    Raises:
        SqlError: no expression.
    """
    first, last = entry
    nulls: bool | None = None
    if last - first > 2 and tokens[last - 2].text.upper() == "NULLS":
        nulls = tokens[last - 1].text.upper() == "FIRST"
        last -= 2
    is_descending = tokens[last - 1].token_type is TokenType.DESC
    if tokens[last - 1].token_type in (TokenType.ASC, TokenType.DESC):
        last -= 1
    end = last if last > first else entry[1]
    written = clause.part(tokens[first].start, tokens[end - 1].end + 1)
    if last == first:
        raise written.error(SqlError, "Expected an expression here.")
    return OrderEntry(written.text, is_descending, not is_descending if nulls is None else nulls, written)


def within_group(
    clause: Clause, tokens: Sequence[Token], position: int
) -> tuple[tuple[OrderEntry, ...], int]:
    """The items of `WITHIN GROUP (ORDER BY ...)` if that begins there, and the position behind it.

    Raises:
        SqlError: WITHIN GROUP without ORDER BY in parentheses.
    """
    if [token.text.upper() for token in tokens[position : position + 2]] != ["WITHIN", "GROUP"]:
        return (), position
    opening = position + 2
    kinds = [token.token_type for token in tokens[opening : opening + 2]]
    if kinds != [TokenType.L_PAREN, TokenType.ORDER_BY]:
        start, end = tokens[position].start, tokens[min(opening, len(tokens) - 1)].end + 1
        raise clause.error(SqlError, "Expected WITHIN GROUP (ORDER BY expression) here.", start, end)
    entries, end = arguments(tokens, opening)
    (first, last), *rest = entries
    if last - first == 1:
        start = tokens[first].start
        raise clause.error(SqlError, "Expected an expression here.", start, tokens[first].end + 1)
    return tuple(order_entry(clause, tokens, each) for each in ((first + 1, last), *rest)), end
