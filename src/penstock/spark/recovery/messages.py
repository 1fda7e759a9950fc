"""What Spark said, in one line."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """The first line of an error's text that says something."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def quoted(name: str) -> str:
    """A column's name as Spark SQL text."""
    return "`" + name.replace("`", "``") + "`"
