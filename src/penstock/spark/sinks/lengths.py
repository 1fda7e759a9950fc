"""Options that are lengths of time."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.errors import SqlError
from penstock.sql.script.statements import CreateTable

_UNITS = {"second": 1.0, "minute": 60.0, "hour": 3_600.0, "day": 86_400.0}
_LENGTH = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(second|minute|hour|day)s?\s*")


def seconds(table: CreateTable, options: Mapping[str, str], option: str, default: float) -> float:
    """A length of time such as '1 minute', in seconds.

    Args:
        table: the statement.
        options: its options by plain name.
        option: its name as documentation writes it.
        default: where it is not set.

    Raises:
        SqlError: it is none.
    """
    text = options.get(option.replace("_", ""))
    if text is None:
        return default
    found = _LENGTH.fullmatch(text.lower())
    if found is None:
        raise SqlError(
            f"table {table.name}: {option} is '{text}'; write a number and second, minute, hour or day",
            *table.at(option),
        )
    return float(found[1]) * _UNITS[found[2]]
