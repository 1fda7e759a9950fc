"""Tests of strings that the kernel computes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextPattern:
    """A test of strings: TRUE or FALSE of each, NULL of NULL; it never raises.

    Attributes:
        kind: "like" (Spark's LIKE, backslash escapes) or "regex" (Spark's RLIKE).
        text: the pattern.
        folding: "" or "lower": the value is passed through Spark's lower() first.
    """

    kind: str
    text: str
    folding: str = ""


def is_kernel_pattern(pattern: TextPattern) -> bool:
    """Stand-in."""
    return True
