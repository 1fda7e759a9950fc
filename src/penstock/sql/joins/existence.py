"""`WHERE [NOT] EXISTS (SELECT ...)`, which is a LEFT SEMI or LEFT ANTI JOIN: where it stands among other conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import TokenType

from penstock.sql.joins.query import JoinWord
from penstock.sql.text.parts import UNSUPPORTED

_OPENING = (TokenType.L_PAREN, TokenType.CASE)
_CLOSING = (TokenType.R_PAREN, TokenType.END)
#: what may stand behind an EXISTS that is a condition of its own
_BEHIND = frozenset((TokenType.AND, TokenType.R_PAREN, TokenType.GROUP_BY, TokenType.HAVING, *UNSUPPORTED))


@dataclass(frozen=True, slots=True)
class ExistenceTest:
    """The first such test of a condition, which everything else is conjoined with.

    Attributes:
        word: the join that it is.
        first, last: numbers of its first token and of that behind it.
        inner: number of the first token of its query, whose last one is before `last - 1`.
    """

    word: JoinWord
    first: int
    last: int
    inner: int


def existence_test(kinds: Sequence[TokenType], position: int) -> ExistenceTest | None:
    """Finds the test.

    Args:
        kinds: the tokens of a query.
        position: of the first one behind WHERE.
    """
    depth, found, opened = 0, None, None
    for number in range(position, len(kinds)):
        kind = kinds[number]
        if depth == 0 and kind is TokenType.OR:
            return None
        if depth == 0 and found is None and _begins(kinds, position, number):
            opened = number + 1
        depth += (kind in _OPENING) - (kind in _CLOSING)
        if depth == 0 and opened is not None and number > opened:
            if number + 1 < len(kinds) and kinds[number + 1] not in _BEHIND:
                return None
            is_negated = opened - 2 >= position and kinds[opened - 2] is TokenType.NOT
            word = JoinWord.ANTI if is_negated else JoinWord.SEMI
            found = ExistenceTest(word, opened - 1 - is_negated, number + 1, opened + 1)
            opened = None
    return found


def _begins(kinds: Sequence[TokenType], position: int, number: int) -> bool:
    """Whether EXISTS with a query is there, which nothing stands before but NOT; Spark has a function of arrays of that name too."""
    if kinds[number] is not TokenType.EXISTS or kinds[number + 1 : number + 2] != [TokenType.L_PAREN]:
        return False
    behind = next((kind for kind in kinds[number + 1 :] if kind is not TokenType.L_PAREN), None)
    if behind is not TokenType.SELECT:
        return False
    before = number - 1
    if before >= position and kinds[before] is TokenType.NOT:
        before -= 1
    return before < position or kinds[before] is TokenType.AND
