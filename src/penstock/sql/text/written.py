"""The text of tokens that do not stand behind one another in a script, and where its parts were written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError
from penstock.sql.text.lexing import tokenize

#: kinds of the tokens that are put into a query: names and what stands around an inner query
_PUT = frozenset(
    {
        TokenType.FROM,
        TokenType.L_PAREN,
        TokenType.R_PAREN,
        TokenType.SELECT,
        TokenType.STAR,
        TokenType.VAR,
    }
)


@dataclass(frozen=True, slots=True)
class Written:
    """A text made of pieces of a script.

    Attributes:
        text: the text.
        script: the script.
        places: (offset in the text, offset in the script) of each piece, and where the piece ends in the script.
    """

    text: str
    script: str
    places: tuple[tuple[int, int, int], ...]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where the script has what the text has between two offsets."""
        first, last = self._piece(start), self._piece(max(start, end - 1))
        begin = min(first[1] + start - first[0], first[2] - 1)
        until = min(last[1] + end - last[0], last[2])
        return (begin, until) if begin < until else (first[1], first[2])

    def placed(self, error: SqlError) -> SqlError:
        """An error whose place was given in the text, shown in the script."""
        return error.at(self.script, *self.span(error.start, error.end))

    def _piece(self, offset: int) -> tuple[int, int, int]:
        return self.places[max(0, bisect_right(self.places, offset, key=lambda each: each[0]) - 1)]


def written(script: str, tokens: Sequence[Token]) -> Written:
    """The text of some tokens; blanks and remarks between two that follow one another in the script are kept.

    Args:
        script: what they were written in.
        tokens: of the script, or put there with the place of another one.
    """
    text, places = "", list[tuple[int, int, int]]()
    #: where the script goes on behind the token before; -1: it was none of the script
    following = -1
    for token in tokens:
        end = token.end + 1
        own = script[token.start : end]
        is_own = token.text == own or token.token_type not in _PUT
        if places:
            text += _gap(script, following, token.start) if is_own else " "
        places.append((len(text), token.start, end))
        text += own if is_own else token.text
        following = end if is_own else -1
    return Written(text, script, tuple(places))


def _gap(script: str, begin: int, end: int) -> str:
    """What stands between two tokens: blanks and remarks; a blank where there is more."""
    if not 0 <= begin <= end:
        return " "
    between = script[begin:end]
    return between if not between.strip() or not tokenize(between) else " "
