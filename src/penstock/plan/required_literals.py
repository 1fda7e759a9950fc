"""Texts that every match of a regular expression has: what announces a match before the expression is tried."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.plan.java_regex import Characters, Choice, Group, Node, Repeat, Sequence, both_cases, parse

#: so many copies of a repeated character are written out
_COPIES = 64


def required_literals(text: str) -> tuple[str, ...]:
    """Texts of which every match holds at least one, without regard to the case of ASCII letters; they are in lower case.

    Of several such sets the one whose shortest text is longest; empty where no text is required.
    """
    return _required(parse(text))


def _required(node: Node) -> tuple[str, ...]:
    """The best set of texts of which every match of a node holds one; empty: none."""
    return max(_sets(node), key=lambda texts: (min(map(len, texts)), -len(texts)), default=())


def _sets(node: Node) -> Iterator[tuple[str, ...]]:
    run = ""
    for piece in _pieces(node):
        if isinstance(piece, str):
            run += piece
            continue
        if run:
            yield (run,)
            run = ""
        if piece:
            yield piece
    if run:
        yield (run,)


def _pieces(node: Node) -> Iterator[str | tuple[str, ...]]:
    """What a match holds from left to right: characters that follow each other, and sets of texts, which end such a run.

    The empty set stands for anything.
    """
    match node:
        case Characters(ranges):
            code = ranges[0][0] if ranges else -1
            if ranges == ((code, code),) or ranges == both_cases(((code, code),)):
                character = chr(code)
                yield character.lower() if character.isascii() else character
            else:
                yield ()
        case Group(part):
            yield from _pieces(part)
        case Sequence(parts):
            for part in parts:
                yield from _pieces(part)
        case Choice(branches):
            found = [_required(branch) for branch in branches]
            yield tuple(dict.fromkeys(text for each in found for text in each)) if all(found) else ()
        case Repeat(part, least, most):
            copies = min(least, _COPIES if isinstance(part, Characters) else 1)
            for _ in range(copies):
                yield from _pieces(part)
            if copies != most:
                yield ()
            if copies and copies != most and isinstance(part, Characters):
                yield from _pieces(part)
        case _:
            return
