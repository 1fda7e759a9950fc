"""`WHERE [NOT] EXISTS (SELECT ...)` and `WHERE x [NOT] IN (SELECT ...)`, which are LEFT SEMI or LEFT ANTI JOINs: where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import TokenType

from penstock.sql.joins.query import JoinWord
from penstock.sql.text.lexing import NESTING
from penstock.sql.text.parts import UNSUPPORTED

#: what may stand behind an EXISTS that is a condition of its own
_BEHIND = frozenset((TokenType.AND, TokenType.R_PAREN, TokenType.GROUP_BY, TokenType.HAVING, *UNSUPPORTED))
#: by whether the test is negated
_WORDS = {False: JoinWord.SEMI, True: JoinWord.ANTI}


@dataclass(frozen=True, slots=True)
class ExistenceTest:
    """The first such test of a condition, which everything else is conjoined with.

    Attributes:
        word: the join that it is.
        first, last: numbers of its first token and of that behind it.
        inner: number of the first token of its query, whose last one is before `last - 1`.
        operand: of IN the numbers of the first token of what it tests and of that behind it; None of EXISTS.
    """

    word: JoinWord
    first: int
    last: int
    inner: int
    operand: tuple[int, int] | None = None


def existence_test(kinds: Sequence[TokenType], position: int) -> ExistenceTest | None:
    """Finds the test.

    Args:
        kinds: the tokens of a query.
        position: of the first one behind WHERE.
    """
    depth, found, opened, begun, between = 0, None, None, position, False
    for number in range(position, len(kinds)):
        kind = kinds[number]
        if depth == 0 and kind is TokenType.OR:
            return None
        if depth == 0 and kind is TokenType.AND and opened is None:
            begun, between = (begun if between else number + 1), False
        is_name = number > 0 and kinds[number - 1] is TokenType.DOT
        between = between or (depth == 0 and kind is TokenType.BETWEEN and not is_name)
        if depth == 0 and found is None and _begins(kinds, begun, number):
            opened = number + 1
        depth += NESTING.get(kind, 0)
        if depth == 0 and opened is not None and number > opened:
            if number + 1 < len(kinds) and kinds[number + 1] not in _BEHIND:
                return None
            found = _test(kinds, begun, opened, number + 1)
            opened = None
    return found


def _begins(kinds: Sequence[TokenType], begun: int, number: int) -> bool:
    """Whether EXISTS or IN with a query is there, in a condition that begins at a token.

    Nothing stands before EXISTS but NOT; Spark has a function of arrays of that name too.
    """
    kind, behind = kinds[number], kinds[number + 1 : number + 3]
    if kind is TokenType.IN:
        return behind == [TokenType.L_PAREN, TokenType.SELECT] and TokenType.FROM in kinds[number:]
    if kind is not TokenType.EXISTS or behind[:1] != [TokenType.L_PAREN]:
        return False
    first = next((each for each in kinds[number + 1 :] if each is not TokenType.L_PAREN), None)
    return first is TokenType.SELECT and number - begun == (kinds[begun] is TokenType.NOT)


def _test(kinds: Sequence[TokenType], begun: int, opened: int, last: int) -> ExistenceTest | None:
    """The test of a condition that begins at a token, with the parenthesis of its query; None: IN tests nothing."""
    word = opened - 1
    start = begun
    while kinds[start] is TokenType.NOT:
        start += 1
    is_negated = (start - begun) % 2 == 1
    if kinds[word] is TokenType.EXISTS:
        return ExistenceTest(_WORDS[is_negated], begun, last, opened + 1)
    is_within = kinds[word - 1] is TokenType.NOT
    operand = start, word - is_within
    if operand[0] >= operand[1]:
        return None
    return ExistenceTest(_WORDS[is_negated is not is_within], begun, last, opened + 1, operand)
