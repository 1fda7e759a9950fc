"""Patterns whose backslashes do not reach LIKE or RLIKE, because Spark's string literals escape with them first."""

from __future__ import annotations

import re
from collections.abc import Iterator

from penstock.sql.conditions.nodes import Condition, Like, predicates
from penstock.sql.conditions.verdicts import warning
from penstock.sql.text.clauses import Clause
from penstock.sql.text.literals import Kind

#: string literals but raw ones, which keep their backslashes
_STRING = re.compile(r"(?<![rR])(['\"])(?:\\.|(?!\1).)*\1", re.DOTALL)
#: a backslash and what it escapes, then the character behind; in the group what is neither a number of a character nor a quote
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[01][0-7]{2}|['\"\\]|(.))(?=(.))", re.DOTALL)
#: escapes that string literals replace: the character and its name
_CONTROLS = {
    "b": ("\b", "a backspace"),
    "n": ("\n", "a line break"),
    "r": ("\r", "a carriage return"),
    "t": ("\t", "a tab"),
    "Z": ("\x1a", "a control-Z"),
}
_SHOWN = str.maketrans({sign: f"<{name.split(' ', 1)[1]}>" for sign, name in _CONTROLS.values()})
#: escapes that string literals pass on, or that nobody writes for a backslash
_KEPT = frozenset("%_0")
#: backslashes of which none, or one, is left for LIKE
_FEW = re.compile(r"(?<!\\)\\{1,3}(?![\\'\"])")


def pattern_warnings(clause: Clause, condition: Condition) -> Iterator[str]:
    r"""Yield a warning for each pattern whose literal loses a backslash: 'C:\Win%' is C:Win% to Spark.

    Args:
        clause: the condition's text.
        condition: its tree.
    """
    if "\\" not in clause.text:
        return
    for each in predicates(condition):
        if not isinstance(each, Like):
            continue
        pattern = each.pattern
        if pattern.literal is None or pattern.literal.kind is not Kind.STRING:
            continue
        lost = _lost(pattern.text, is_regex=each.word == "RLIKE")
        if lost:
            message = (
                f"Spark reads the pattern {pattern.text} as {str(pattern.literal.value).translate(_SHOWN)}: in a string, "
                f"{' and '.join(lost)}. To keep the backslash, write {_kept(each)}."
            )
            yield warning(clause, message, pattern.start, pattern.end)


def _lost(text: str, *, is_regex: bool) -> list[str]:
    r"""What string literals make of the backslashes in a text that do not remain: '\W is W'."""
    lost: dict[str, None] = {}
    for string in _STRING.finditer(text):
        for sign, following in _ESCAPE.findall(string[0]):
            if sign in _CONTROLS:
                # a regular expression reads \t as a string does, but \b as the edge of a word
                if sign in "bZ" or (not is_regex and following.isalpha()):
                    lost[f"\\{sign} is {_CONTROLS[sign][1]}"] = None
            elif sign and sign not in _KEPT:
                lost[f"\\{sign} is {sign}"] = None
    return list(lost)


def _kept(like: Like) -> str:
    """The pattern's text with backslashes that reach the pattern as such."""
    escape = None if like.escape is None or like.escape.literal is None else like.escape.literal.value
    if like.word != "RLIKE" and escape in (None, "\\"):
        return _FEW.sub(r"\\\\\\\\", like.pattern.text)
    return _ESCAPE.sub(lambda found: f"\\{found[0]}" if found[1] else found[0], like.pattern.text)
