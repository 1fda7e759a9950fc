"""Names, text and patterns as Spark SQL writes them."""

from __future__ import annotations

_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
_ESCAPED = str.maketrans(_ESCAPES)
_IN_PATTERNS = str.maketrans({sign: f"\\{sign}" for sign in "\\%_"})


def text(value: str) -> str:
    """Return a string literal."""
    return f"'{value.translate(_ESCAPED)}'"


def name(value: str) -> str:
    """Return a name in backquotes."""
    return f"`{value.replace('`', '``')}`"


def like_pattern(value: str) -> str:
    """Return the pattern of LIKE that only this text matches."""
    return value.translate(_IN_PATTERNS)
