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
    parse_groups,
)

#: RE2's own bound
_MOST = 1_000


@lru_cache(maxsize=1024)
def re2_pattern(text: str, group: int) -> str:
    """A pattern of RE2 with one group, which captures what a group of a pattern of Java does.

    Args:
        text: the pattern.
        group: number of the group; 0: the whole match.

    Raises:
        UnprovenError: the pattern is outside the subset, or has no such group.
    """
    tree, groups = parse_groups(text)
    if not 0 <= group <= groups:
        raise UnprovenError("no such group")
    return _written(Group(tree, 0), group)


def _written(node: Node, group: int) -> str:
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
            return f"({'?P<found>' if number == group else '?:'}{_written(part, group)})"
        case Repeat(part, least, most, lazy):
            if max(least, most or 0) > _MOST:
                raise UnprovenError("more repetitions than RE2 takes")
            if _has(part, group):
                raise UnprovenError("a group within a repetition")
            bounds = f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
            return f"(?:{_written(part, group)}){bounds}{'?' if lazy else ''}"
        case _:
            raise UnprovenError("what RE2 has not")


def _has(node: Node, group: int) -> bool:
    match node:
        case Group(part, number):
            return number == group or _has(part, group)
        case Sequence(parts) | Choice(parts):
            return any(_has(part, group) for part in parts)
        case Repeat(part):
            return _has(part, group)
        case _:
            return False


def _class(ranges: Ranges) -> str:
    if not ranges:
        raise UnprovenError("a class of no character")
    return "[" + "".join(rf"\x{{{low:x}}}-\x{{{high:x}}}" for low, high in ranges) + "]"
