"""Calls of `window(time, size[, slide[, start]])`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token

from penstock.errors import SqlError, UnsupportedError
from penstock.plan.windows import Windows
from penstock.sql.text.clauses import Clause
from penstock.sql.text.intervals import ALLOWED_LENGTHS, microseconds_of
from penstock.sql.text.lexing import arguments, is_call, spelling

_ARGUMENTS = ("size", "slide", "start time")


@dataclass(frozen=True, slots=True)
class WindowCall:
    """One call of `window`.

    Attributes:
        time: the event time, where it was written.
        windows: which windows.
        clause: the call.
        identity: what two calls for the same windows have in common.
    """

    time: Clause
    windows: Windows
    clause: Clause
    identity: tuple[object, ...]


def is_window(tokens: Sequence[Token], position: int) -> bool:
    """Whether `window` is called there."""
    return is_call(tokens, position) and tokens[position].text.lower() == "window"


def read_window(clause: Clause, tokens: Sequence[Token], position: int) -> tuple[WindowCall, int]:
    """Reads the call that begins there, for which `is_window` holds.

    Args:
        clause: the text the tokens come from.
        tokens: those of the clause.
        position: of the word `window`.

    Returns:
        The call, and the position after it.

    Raises:
        SqlError: a number of arguments, or a length of time, that `window` does not take.
    """
    found, end = arguments(tokens, position + 1)
    start = tokens[position].start
    call = Clause(clause.text[start : tokens[end - 1].end + 1], clause.script, clause.start + start)
    if not 2 <= len(found) <= 4:
        message = f"window takes (time, size[, slide[, start time]]), not {len(found)} arguments."
        raise call.error(SqlError, message, 0, len(call.text))
    first, last = found[0]
    offset = tokens[first].start
    time = Clause(clause.text[offset : tokens[last - 1].end + 1], clause.script, clause.start + offset)
    lengths: list[int] = []
    for what, (begin, stop) in zip(_ARGUMENTS, found[1:], strict=False):
        place = tokens[begin].start, tokens[stop - 1].end + 1
        length = microseconds_of(clause.text[slice(*place)])
        if length is None:
            raise clause.error(UnsupportedError, f"A window's {what} must be {ALLOWED_LENGTHS}.", *place)
        if what != "start time" and length <= 0:
            raise clause.error(SqlError, f"A window's {what} must be above 0.", *place)
        if what == "slide" and length > lengths[0]:
            raise clause.error(SqlError, "A window's slide must be at most its size.", *place)
        if what == "start time" and abs(length) >= lengths[1]:
            raise clause.error(SqlError, "A window's start time must be less than its slide.", *place)
        lengths.append(length)
    size, slide = lengths[0], (lengths[1:2] or lengths)[0]
    windows = Windows(size, slide, lengths[2] % slide if len(lengths) == 3 else 0)
    return WindowCall(time, windows, call, (*spelling(tokens[first:last]), windows)), end
