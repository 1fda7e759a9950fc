"""The columns that SELECT lists name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

#: what stands for columns without their names: `*` where no factor can be, and Spark's IDENTIFIER('name')
_ANY_COLUMN = re.compile(r"(?:^|[(,.])\s*\*|\bidentifier\s*\(", re.IGNORECASE)
_WORD = re.compile(r"\w+", re.ASCII)


def named_columns(expressions: Iterable[str], columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that expressions may read: those whose name is a word of one, in whatever case, also of a string or a function's name.

    Args:
        expressions: texts of a SELECT list, `*` written out.
        columns: all columns.

    Returns:
        Some of `columns`, in their order, each that an expression reads among them.
    """
    text = "\n".join(expressions)
    if _ANY_COLUMN.search(text):
        return tuple(columns)
    lowered = text.lower()
    words = set(_WORD.findall(lowered))
    return tuple(name for name in columns if _may_be_named(name, lowered, words))


def _may_be_named(name: str, text: str, words: set[str]) -> bool:
    # which letters are equal in other cases is Spark's to say
    if not name.isascii():
        return True
    lowered = name.lower()
    if _WORD.fullmatch(lowered):
        return lowered in words
    return lowered.replace("`", "``") in text
