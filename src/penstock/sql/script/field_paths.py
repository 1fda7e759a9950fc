"""Paths of fields within records, as PATH of a column writes them."""

from __future__ import annotations

import re

_STEP = re.compile(r"""\.(?P<name>[^.\[\]'"\s]+)|\[\s*(?P<quote>['"])(?P<quoted>.+?)(?P=quote)\s*\]""")
_ELEMENT = re.compile(r"\[\s*(?:\d+|\*)\s*\]")


def path_names(text: str) -> tuple[str, ...]:
    """Return the names of a path, the outermost first.

    Args:
        text: `$` and then names, as `.name` or `['name']`.

    Raises:
        ValueError: it is no such path.

    >>> path_names("$.after['unit price']")
    ('after', 'unit price')
    """
    names: list[str] = []
    position = 1
    while text.startswith("$") and (step := _STEP.match(text, position)) is not None:
        names.append(step["name"] or step["quoted"])
        position = step.end()
    if names and position == len(text):
        return tuple(names)
    if text.startswith("$") and _ELEMENT.match(text, position):
        raise ValueError(
            f"the path '{text}' names elements of a list, which is not supported. Declare the list as ARRAY and take its elements in queries."
        )
    raise ValueError(
        f"'{text}' is not a path. Write names such as '$.after.id' or '$.after[''unit price'']'."
    )


def path_place(column: str) -> str:
    """Return the key of a column's path among the places of a statement."""
    return f"{column} PATH"
