"""Tests of strings that need no Spark: LIKE, and regular expressions of a subset."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from penstock.plan.java_regex import UnprovenError, parse, translated
from penstock.plan.linear_regex import LinearRegex, needs_linear_search
from penstock.plan.lower_case import spark_lower

KINDS = ("like", "regex")
FOLDINGS = ("", "lower")


class Wildcard(Enum):
    """A sign of LIKE: any text, also none, or one code point."""

    ANY = "%"
    ONE = "_"


@dataclass(frozen=True, slots=True)
class TextPattern:
    """A test of strings: TRUE or FALSE of each, NULL of NULL. It never raises.

    Attributes:
        kind: "like" (Spark's LIKE: `%`, `_`, and a backslash as the escape character, whatever ESCAPE names in the query) or
            "regex" (Spark's RLIKE: a regular expression of Java, found anywhere).
        text: the pattern.
        folding: "" or "lower": the value passes through Spark's lower() first. The pattern does not: Spark computes
            `x ILIKE p` as `lower(x) LIKE lower(p)`, so the caller passes `spark_lower(p)`.
    """

    kind: str
    text: str
    folding: str = ""


def is_kernel_pattern(pattern: TextPattern) -> bool:
    """Whether kernels compute a pattern exactly as Spark does.

    False of an invalid pattern, which Spark refuses, and of a regular expression outside the subset (`java_regex`).
    """
    if pattern.kind not in KINDS or pattern.folding not in FOLDINGS:
        return False
    try:
        pattern.text.encode()
        if pattern.kind == "like":
            like_parts(pattern.text)
        else:
            regex_search(pattern.text)
    except ValueError:
        return False
    return True


def holds(pattern: TextPattern, value: str) -> bool:
    """Whether a value satisfies a kernel pattern: the definition, in plain Python.

    Raises:
        ValueError: it is no kernel pattern.
    """
    folded = spark_lower(value) if pattern.folding == "lower" else value
    if pattern.kind == "like":
        return _compiled_like(pattern.text).fullmatch(folded) is not None
    return bool(regex_search(pattern.text)(folded))


def like_parts(text: str) -> tuple[str | Wildcard, ...]:
    r"""Texts and wildcards of a LIKE pattern, without escapes; successive `%` are one.

    Raises:
        ValueError: a backslash ends the pattern or precedes another character, which Spark refuses (INVALID_FORMAT).

    >>> like_parts(r"50\%%_")
    ('50%', <Wildcard.ANY: '%'>, <Wildcard.ONE: '_'>)
    """
    parts: list[str | Wildcard] = []
    run = ""
    characters = iter(text)
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if escaped not in ("\\", "%", "_"):
                raise ValueError(f"LIKE pattern {text!r}: a backslash must precede %, _ or a backslash.")
            run += escaped
        elif character in "%_":
            if run:
                parts.append(run)
                run = ""
            wildcard = Wildcard(character)
            if wildcard is Wildcard.ONE or parts[-1:] != [wildcard]:
                parts.append(wildcard)
        else:
            run += character
    return (*parts, run) if run else tuple(parts)


@lru_cache(maxsize=4096)
def regex_search(text: str) -> Callable[[str], object]:
    """What is true of the values in which a regular expression of Java finds a match.

    By backtracking, as `re` and Java do, but in linear time where that may take exponential time.

    Raises:
        UnprovenError: a ValueError; it is outside the subset.
    """
    try:
        if needs_linear_search(parse(text)):
            return LinearRegex(parse(text)).search
    except RecursionError:
        raise UnprovenError("groups in groups") from None
    return translated(text).search


@lru_cache(maxsize=4096)
def _compiled_like(text: str) -> re.Pattern[str]:
    signs = {Wildcard.ANY: ".*", Wildcard.ONE: "."}
    parts = (re.escape(part) if isinstance(part, str) else signs[part] for part in like_parts(text))
    return re.compile("".join(parts), re.DOTALL)


__all__ = [
    "FOLDINGS",
    "KINDS",
    "TextPattern",
    "UnprovenError",
    "Wildcard",
    "holds",
    "is_kernel_pattern",
    "like_parts",
    "regex_search",
    "spark_lower",
]
