"""Calls of some functions in an expression, written anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot.tokenizer_core import Token

from penstock.sql.text.lexing import arguments, is_call, name_of, quote, tokenize


def rewritten_calls(text: str, renamed: Callable[[str], str | None], written: Callable[[str], str]) -> str:
    """An expression with the calls of some functions written anew.

    Args:
        text: the expression.
        renamed: gives the new name of a function by its name; None: its calls remain.
        written: gives what a call, by the new name, is written as. A call that is an argument of another one, by itself, only gets its new
            name. Calls within other arguments remain as they are.
    """
    tokens = tokenize(text)
    parts: list[str] = []
    done = position = 0
    while position < len(tokens):
        call, end = _renamed(text, tokens, position, renamed)
        if call is not None:
            parts += [text[done : tokens[position].start], written(call)]
            done = tokens[end - 1].end + 1
        position = end
    return "".join([*parts, text[done:]])


def _renamed(
    text: str, tokens: Sequence[Token], position: int, renamed: Callable[[str], str | None]
) -> tuple[str | None, int]:
    """The call at a place by its new name, None where there is none, and where to read on."""
    name = name_of(tokens[position])
    other = renamed(name) if name is not None and is_call(tokens, position) else None
    if other is None:
        return None, position + 1
    ranges, end = arguments(tokens, position + 1)
    given = []
    for first, last in ranges:
        inner, inner_end = _renamed(text, tokens, first, renamed)
        whole = text[tokens[first].start : tokens[last - 1].end + 1]
        given.append(inner if inner is not None and inner_end == last else whole)
    return f"{quote(other)}({', '.join(given)})", end
