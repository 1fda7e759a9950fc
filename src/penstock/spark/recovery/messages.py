"""What Spark said, in one line."""

from __future__ import annotations

import re

#: how Spark reports a file whose name has a colon
COLON = re.compile(r"Relative path in absolute URI: ([^\n]+)")
COLON_TOLD = "Spark cannot read a file whose name has a colon; rename the file"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text that says something."""
    if colon := COLON.search(str(error)):
        return f"{COLON_TOLD}: {colon.group(1).strip()}"
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def quoted(name: str) -> str:
    """A column's name as Spark SQL text."""
    return "`" + name.replace("`", "``") + "`"
