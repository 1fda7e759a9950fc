"""Java's regular expressions as RE2 writes them, for what a group captures.

Both prefer the earlier branch of a choice and, of a quantifier, more or less as it says, so that they find the same match of what `java_regex` parses.
Every character is written by ranges of numbers. Refused are `$`, `\\b`, lookahead, more than a thousand repetitions, and a group within a
repetition: Java leaves there what was captured on a way that it gave up.

Source: RE2, `Syntax`; Java SE 17, `java.util.regex.Pattern`.
"""

from __future__ import annotations

from functools import lru_cache

from penstock.plan.java_regex import (
    Characters,
    Choice,
    Group,
    Node,
    Place,
    Position,
    Ranges,
    Repeat,
    Sequence,
    UnprovenError,
    parse,
)

#: RE2's own bound
_MOST = 1_000
_CAPTURED = "?P<found>"


@lru_cache(maxsize=1024)
def re2_pattern(text: str, group: int) -> str:
    """A pattern of RE2 with one group, which captures what a group of a pattern of Java does.

    Args:
        text: the pattern.
        group: number of the group; 0: the whole match.

    Raises:
        UnprovenError: the pattern is outside the subset, or has no such group.
    """
    written = _written(Group(parse(text), 0), group)
    if _CAPTURED not in written:
        raise UnprovenError("no such group, or one within a repetition")
    return written


def _written(node: Node, group: int | None) -> str:
    match node:
        case Characters(ranges):
            return _class(ranges)
        case Position(Place.BEGIN):
            return r"\A"
        case Sequence(parts):
            return "".join(_written(part, group) for part in parts)
        case Choice(branches):
            return f"(?:{'|'.join(_written(branch, group) for branch in branches)})"
        case Group(part, number):
            return f"({_CAPTURED if number == group else '?:'}{_written(part, group)})"
        case Repeat(part, least, most):
            if max(least, most or 0) > _MOST:
                raise UnprovenError("more repetitions than RE2 takes")
            return f"(?:{_written(part, None)}){node.quantifier}"
        case _:
            raise UnprovenError("what RE2 has not")


def _class(ranges: Ranges) -> str:
    if not ranges:
        raise UnprovenError("a class of no character")
    return "[" + "".join(rf"\x{{{low:x}}}-\x{{{high:x}}}" for low, high in ranges) + "]"
