"""Ranking calls: `ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...)`, and what stands in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, UnsupportedError
from penstock.plan.rankings import RANKINGS
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import arguments, is_call, outer, query_beneath, ranges, spelling, tokenize
from penstock.sql.text.ordering import OrderEntry, order_entry

ALLOWED_RANKING = (
    "Allowed: SELECT expressions FROM (SELECT ..., ROW_NUMBER() OVER (PARTITION BY keys ORDER BY columns) AS place FROM one table or view "
    "WHERE condition) WHERE place <= 10; or QUALIFY; also RANK and DENSE_RANK."
)
#: in the place of the place, until it is known whether it is a key
PLACE = "__penstock_place"


@dataclass(frozen=True, slots=True)
class RankingCall:
    """A ranking call: `ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...)`.

    Attributes:
        function: in lower case.
        partition: the expressions of PARTITION BY.
        order: the items of ORDER BY.
        spelled: the whole call, blanks, case and quotes apart.
        clause: the whole call.
    """

    function: str
    partition: tuple[Clause, ...]
    order: tuple[OrderEntry, ...]
    spelled: tuple[str, ...]
    clause: Clause


def without_calls(clause: Clause) -> tuple[Clause, list[RankingCall]]:
    """A clause with `PLACE` for its ranking calls, and these."""
    tokens = tokenize(clause.text, clause.start, clause.script)
    calls: list[tuple[int, int, RankingCall]] = []
    position = 0
    while position < len(tokens):
        if tokens[position].token_type is TokenType.OVER:
            message = "Of functions with OVER, ROW_NUMBER, RANK and DENSE_RANK are supported."
            token = tokens[position]
            raise clause.error(UnsupportedError, f"{message} {ALLOWED_RANKING}", token.start, token.end + 1)
        if not is_call(tokens, position) or tokens[position].text.lower() not in RANKINGS:
            position += 1
            continue
        first = tokens[position]
        _, end = arguments(tokens, position + 1)
        call, position = _read_call(clause, tokens, position, end)
        calls.append((first.start, tokens[position - 1].end + 1, call))
    text = clause.text
    for start, stop, _ in reversed(calls):
        # as long as the call, so that what is behind it stays where it was written
        text = text[:start] + PLACE.rjust(stop - start) + text[stop:]
    return (Clause(text, clause.script, clause.start) if calls else clause), [call for _, _, call in calls]


def _read_call(clause: Clause, tokens: Sequence[Token], position: int, end: int) -> tuple[RankingCall, int]:
    """The call at a position, whose arguments end at `end`, and the position behind it."""

    def written(first: int, last: int) -> Clause:
        return clause.part(tokens[first].start, tokens[last - 1].end + 1)

    function = tokens[position].text.lower()
    whole = written(position, end)
    if end - position != 3:
        raise refused(whole, f"{function.upper()} has no arguments.")
    if end + 1 >= len(tokens) or tokens[end].token_type is not TokenType.OVER:
        raise refused(whole, f"{function.upper()}() needs OVER (PARTITION BY ... ORDER BY ...).")
    if tokens[end + 1].token_type is not TokenType.L_PAREN:
        raise refused(written(end, end + 2), "A named window is not supported. Write what it is made of.")
    _, last = arguments(tokens, end + 1)
    whole = written(position, last)
    kinds = [token.token_type for token in tokens[end + 2 : last - 1]]
    if TokenType.ORDER_BY not in kinds:
        raise refused(whole, "A ranking needs ORDER BY.")
    order = end + 2 + kinds.index(TokenType.ORDER_BY)
    if kinds[0] not in (TokenType.PARTITION_BY, TokenType.ORDER_BY):
        raise refused(written(end + 2, last - 1), "Expected PARTITION BY or ORDER BY here.")
    for number in range(order + 2, last - 1):
        if _begins_a_frame(tokens, number):
            raise refused(written(number, last - 1), "A ranking has no frame. Remove this.")
    partition = _entries(tokens, end + 3, order, whole) if order > end + 2 else []
    ordered = _entries(tokens, order + 1, last - 1, whole)
    return (
        RankingCall(
            function,
            tuple(written(*entry) for entry in partition),
            tuple(order_entry(clause, tokens, entry) for entry in ordered),
            spelling(tokens[position:last]),
            whole,
        ),
        last,
    )


def _begins_a_frame(tokens: Sequence[Token], position: int) -> bool:
    """Whether ROWS or RANGE there is no name of a column."""
    following = tokens[position + 1]
    return (
        tokens[position].token_type in (TokenType.ROWS, TokenType.RANGE)
        and tokens[position - 1].token_type is not TokenType.COMMA
        and (
            following.token_type in (TokenType.BETWEEN, TokenType.NUMBER, TokenType.INTERVAL)
            or following.text.upper() in ("UNBOUNDED", "CURRENT")
        )
    )


def _entries(tokens: Sequence[Token], first: int, last: int, whole: Clause) -> list[tuple[int, int]]:
    """Token ranges between commas."""
    found = ranges(tokens, first, last)
    if any(begin == end for begin, end in found):
        raise whole.error(SqlError, "An expression is missing between commas, or before the end.")
    return found


def refused(clause: Clause, message: str) -> UnsupportedError:
    """A refusal that says what is allowed."""
    return clause.error(UnsupportedError, f"{message} {ALLOWED_RANKING}")


def groups_in_from(tokens: Sequence[Token]) -> tuple[int, int] | None:
    """The places of the parentheses of a query in FROM that groups; see `query_beneath`."""
    return query_beneath(
        tokens, lambda own: _kinds(own) & {TokenType.GROUP_BY, TokenType.JOIN} == {TokenType.GROUP_BY}
    )


def _kinds(tokens: Sequence[Token]) -> set[TokenType]:
    return {token.token_type for _, token in outer(tokens)}
