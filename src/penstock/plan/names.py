"""Names of columns that Penstock adds to columns of others."""

from __future__ import annotations

from collections.abc import Collection


def free_name(name: str, taken: Collection[str], also: str = "") -> str:
    """A name of our own, with underscores in front where others have it.

    Args:
        name: the name.
        taken: those of others, in any case.
        also: an ending with which it must be free too.

    >>> free_name("queries", ["id", "Queries"])
    '_queries'
    >>> free_name("__d0", ["__d0_error"], also="_error")
    '___d0'
    """
    lowered = {each.lower() for each in taken}
    while name.lower() in lowered or f"{name}{also}".lower() in lowered:
        name = f"_{name}"
    return name
