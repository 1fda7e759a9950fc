"""Calls of `window(time, size[, slide[, start]])` and `session_window(time, gap)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token

from penstock.errors import SqlError, UnsupportedError
from penstock.plan.windows import ALL_TIME, Windows
from penstock.sql.text.clauses import Clause
from penstock.sql.text.intervals import ALLOWED_GAPS, ALLOWED_LENGTHS, gap_of, length_of, microseconds_of
from penstock.sql.text.lexing import arguments, is_call, spelling

_FUNCTIONS = ("window", "session_window")
_ARGUMENTS = ("size", "slide", "start time")


@dataclass(frozen=True, slots=True)
class WindowCall:
    """One call of `window` or `session_window`.

    Attributes:
        name: that of the function, in lower case.
        time: the event time, where it was written.
        windows: which windows; `ALL_TIME` of sessions.
        clause: the call.
        identity: what two calls for the same windows have in common.
        gap: of sessions, microseconds.
    """

    name: str

    time: Clause
    windows: Windows
    clause: Clause
    identity: tuple[object, ...]
    gap: int | None = None


def is_window(tokens: Sequence[Token], position: int) -> bool:
    """Whether `window` or `session_window` is called there."""
    return is_call(tokens, position) and tokens[position].text.lower() in _FUNCTIONS


def read_window(clause: Clause, tokens: Sequence[Token], position: int) -> tuple[WindowCall, int]:
    """Reads the call that begins there, for which `is_window` holds.

    Args:
        clause: the text the tokens come from.
        tokens: those of the clause.
        position: of the function's name.

    Returns:
        The call, and the position after it.

    Raises:
        SqlError: a number of arguments, or a length of time, that the function does not take.
        UnsupportedError: a length of time that is computed.
    """
    found, end = arguments(tokens, position + 1)
    call = clause.part(tokens[position].start, tokens[end - 1].end + 1)
    if tokens[position].text.lower() == "session_window":
        return _sessions(clause, tokens, found, call), end
    if not 2 <= len(found) <= 4:
        message = f"window takes (time, size[, slide[, start time]]), not {len(found)} arguments."
        raise call.error(SqlError, message)
    first, last = found[0]
    time = _argument(clause, tokens, found[0])
    lengths: list[int] = []
    for what, (begin, stop) in zip(_ARGUMENTS, found[1:], strict=False):
        place = tokens[begin].start, tokens[stop - 1].end + 1
        given = _argument(clause, tokens, (begin, stop))
        length = _length(f"A window's {what}", tokens[begin], given, length_of, ALLOWED_LENGTHS)
        if what != "start time" and length <= 0:
            raise clause.error(SqlError, f"A window's {what} must be above 0.", *place)
        if what == "slide" and length > lengths[0]:
            raise clause.error(SqlError, "A window's slide must be at most its size.", *place)
        if what == "start time" and abs(length) >= lengths[1]:
            raise clause.error(SqlError, "A window's start time must be less than its slide.", *place)
        lengths.append(length)
    size, slide = lengths[0], (lengths[1:2] or lengths)[0]
    windows = Windows(size, slide, lengths[2] % slide if len(lengths) == 3 else 0)
    return WindowCall("window", time, windows, call, (*spelling(tokens[first:last]), windows)), end


def _sessions(
    clause: Clause, tokens: Sequence[Token], found: Sequence[tuple[int, int]], call: Clause
) -> WindowCall:
    """A call of `session_window` with some arguments."""
    if len(found) != 2:
        raise call.error(SqlError, f"session_window takes (time, gap), not {len(found)} arguments.")
    gap = _argument(clause, tokens, found[1])
    length = _length("A session window's gap", tokens[found[1][0]], gap, gap_of, ALLOWED_GAPS)
    identity = (*spelling(tokens[slice(*found[0])]), length)
    return WindowCall("session_window", _argument(clause, tokens, found[0]), ALL_TIME, call, identity, length)


def _length(what: str, first: Token, given: Clause, read: Callable[[str], int], allowed: str) -> int:
    """A length of time, in microseconds.

    Args:
        what: it is the length of.
        first: the first token of the argument.
        given: the argument.
        read: reads a literal.
        allowed: what may stand there.

    Raises:
        SqlError: it is another literal.
        UnsupportedError: it is computed.
    """
    try:
        if first.text.upper() == "INTERVAL":
            raise ValueError("must be a string such as '5 seconds', without INTERVAL")
        if given.text[-1:] in ("'", '"') or (read is length_of and microseconds_of(given.text) is not None):
            return read(given.text)
    except ValueError as error:
        raise given.error(SqlError, f"{what} {given.text} {error}.") from None
    raise given.error(UnsupportedError, f"{what} must be a constant: {allowed}.")


def _argument(clause: Clause, tokens: Sequence[Token], place: tuple[int, int]) -> Clause:
    """The text of an argument, where it was written."""
    return clause.part(tokens[place[0]].start, tokens[place[1] - 1].end + 1)
