"""Tests of strings that need no Spark: LIKE, regular expressions of a subset, and lengths."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from penstock.plan.java_regex import UnprovenError, parse, tests_words, translated
from penstock.plan.letter_case import spark_lower, spark_upper
from penstock.plan.linear_regex import LinearRegex, needs_linear_search

KINDS = ("like", "regex", "length")
#: functions of Spark that a value may pass through before it is tested; those that trim take away spaces alone
FUNCTIONS: dict[str, Callable[[str], str]] = {
    "lower": spark_lower,
    "upper": spark_upper,
    "trim": lambda text: text.strip(" "),
    "ltrim": lambda text: text.lstrip(" "),
    "rtrim": lambda text: text.rstrip(" "),
}

#: functions in the order in which a value passes through them
Form = tuple[str, ...]


class Wildcard(Enum):
    """A sign of LIKE: any text, also none, or one code point."""

    ANY = "%"
    ONE = "_"


_WILDCARDS = {wildcard.value: wildcard for wildcard in Wildcard}
_SIGNS = re.compile(r"[^\\%_]+|\\.?|%+|_", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TextPattern:
    """A test of strings: TRUE or FALSE of each, NULL of NULL. It never raises.

    Attributes:
        kind: "like" (Spark's LIKE: `%`, `_`, and a backslash as the escape character, whatever ESCAPE names in the query),
            "regex" (Spark's RLIKE: a regular expression of Java, found anywhere; see `java_regex` for its `\\b`) or "length"
            (the number of code points lies within bounds).
        text: the pattern; of "length" the least and the most as `3..5`; `3..` without a bound.
        form: the value passes through these functions first. The pattern does not: Spark computes `x ILIKE p` as
            `lower(x) LIKE lower(p)`, so the caller passes `spark_lower(p)`.
    """

    kind: str
    text: str
    form: Form = ()

    def __reduce__(self) -> tuple[type[TextPattern], tuple[str, str, Form]]:
        # what dataclasses do by default takes ten times as long, and programs have many patterns
        return TextPattern, (self.kind, self.text, self.form)


def formed(form: Form, value: str) -> str:
    """A value behind some functions.

    >>> formed(("trim", "upper"), " straße ")
    'STRASSE'
    """
    for function in form:
        value = FUNCTIONS[function](value)
    return value


def is_kernel_pattern(pattern: TextPattern) -> bool:
    """Whether kernels compute a pattern exactly as Spark does.

    False of an invalid pattern, which Spark refuses, and of a regular expression outside the subset (`java_regex`).
    """
    if pattern.kind not in KINDS or not all(function in FUNCTIONS for function in pattern.form):
        return False
    try:
        pattern.text.encode()
        if pattern.kind == "like":
            like_parts(pattern.text)
        elif pattern.kind == "regex":
            regex_search(pattern.text)
        else:
            length_bounds(pattern.text)
    except ValueError:
        return False
    return True


def holds(pattern: TextPattern, value: str) -> bool:
    """Whether a value satisfies a kernel pattern: the definition, in plain Python.

    Raises:
        ValueError: it is no kernel pattern.
    """
    value = formed(pattern.form, value)
    if pattern.kind == "like":
        return _compiled_like(pattern.text).fullmatch(value) is not None
    if pattern.kind == "regex":
        return bool(regex_search(pattern.text)(value))
    least, most = length_bounds(pattern.text)
    return least <= len(value) and (most is None or len(value) <= most)


# its callers ask for the same pattern one after the other
@lru_cache(maxsize=64)
def like_parts(text: str) -> tuple[str | Wildcard, ...]:
    r"""Texts and wildcards of a LIKE pattern, without escapes; successive `%` are one.

    Raises:
        ValueError: a backslash ends the pattern or precedes another character, which Spark refuses (INVALID_FORMAT).

    >>> like_parts(r"50\%%_")
    ('50%', <Wildcard.ANY: '%'>, <Wildcard.ONE: '_'>)
    """
    parts: list[str | Wildcard] = []
    for sign in _SIGNS.findall(text):
        wildcard = _WILDCARDS.get(sign[0])
        if wildcard is not None:
            parts.append(wildcard)
            continue
        if sign[0] == "\\":
            sign = sign[1:]
            if sign not in ("\\", "%", "_"):
                raise ValueError(f"LIKE pattern {text!r}: a backslash must precede %, _ or a backslash.")
        if parts and isinstance(last := parts[-1], str):
            parts[-1] = last + sign
        else:
            parts.append(sign)
    return tuple(parts)


def escaped(text: str) -> str:
    """The LIKE pattern that one string alone satisfies."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def length_bounds(text: str) -> tuple[int, int | None]:
    """The least and the most number of code points (None: no bound); where the least exceeds the most, no value fits.

    Raises:
        ValueError: no such bounds.
    """
    least, most = text.split("..")
    return int(least), int(most) if most else None


@lru_cache(maxsize=4096)
def regex_search(text: str) -> Callable[[str], object]:
    """What is true of the values in which a regular expression of Java finds a match.

    By backtracking, as `re` and Java do, but in linear time where that may take exponential time.

    Raises:
        UnprovenError: a ValueError; it is outside the subset.
    """
    tree = parse(text)
    try:
        plain = LinearRegex(tree).search if needs_linear_search(tree) else translated(text).search
        if not tests_words(tree):
            return plain
        by_letters = LinearRegex(tree).search
    except RecursionError:
        raise UnprovenError("groups in groups") from None
    return lambda value: plain(value) if value.isascii() else by_letters(value)


@lru_cache(maxsize=4096)
def _compiled_like(text: str) -> re.Pattern[str]:
    signs = {Wildcard.ANY: ".*", Wildcard.ONE: "."}
    parts = (re.escape(part) if isinstance(part, str) else signs[part] for part in like_parts(text))
    return re.compile("".join(parts), re.DOTALL)


__all__ = [
    "FUNCTIONS",
    "KINDS",
    "Form",
    "TextPattern",
    "UnprovenError",
    "Wildcard",
    "escaped",
    "formed",
    "holds",
    "is_kernel_pattern",
    "length_bounds",
    "like_parts",
    "regex_search",
    "spark_lower",
    "spark_upper",
]
