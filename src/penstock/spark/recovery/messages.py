"""What Spark said, in one line."""

from __future__ import annotations

import re

#: how Spark reports a file whose name has a colon
COLON = re.compile(r"Relative path in absolute URI: ([^\n]+)")
COLON_TOLD = "Spark cannot read a file whose name has a colon; rename the file"


#: Spark's advice to read faults as NULL, which Penstock refuses
_BYPASS = re.compile(r"\s*If necessary,? set [^\n]*? to bypass this error\.")


def without_bypass(message: str) -> str:
    """A message of Spark without its advice to turn a setting off that Penstock needs."""
    return _BYPASS.sub("", message)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text that says something."""
    if colon := COLON.search(str(error)):
        return f"{COLON_TOLD}: {colon.group(1).strip()}"
    text = without_bypass(str(error))
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


def first_sentence(message: str) -> str:
    """Spark's message without condition name, SQLSTATE, plan and query text."""
    line = re.split(r"\s*SQLSTATE: |\n", without_bypass(message).strip(), maxsplit=1)[0]
    return re.sub(r"^\[[\w.]+\]\s*", "", line)


def quoted(name: str) -> str:
    """A column's name as Spark SQL text."""
    return "`" + name.replace("`", "``") + "`"
