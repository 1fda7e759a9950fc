"""What the status says of a view with a deadline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def deadline_lines(name: str, view: Mapping[str, Any]) -> Iterator[str]:
    """A view with a deadline, by what became of its windows and how it stands.

    Args:
        name: the view's.
        view: `created`, `released`, `shed`, `missed` and `failed`, and `standing` where the run has said it.
    """
    created = view.get("created", 0)
    parts = [
        f"view {name} with a deadline: {view.get('released', 0):,} of {created:,} windows released in time"
    ]
    if created:
        parts[0] += f" ({view.get('released', 0) / created:.1%})"
    parts += [f"{view[kind]:,} {kind}" for kind in ("shed", "missed", "failed") if view.get(kind)]
    if standing := view.get("standing"):
        k, m = standing["constraint"]["k"], standing["constraint"]["m"]
        parts.append(f"(k', m') = ({k}, {m})")
        parts.append(
            f"allowance exceeded {standing['violations']:,} times"
            if standing["violations"]
            else "allowance kept"
        )
        if standing["waiting"]:
            parts.append(f"{standing['waiting']:,} waiting")
    yield " | ".join(parts)
    if standing and standing["overloaded"]:
        yield "  overloaded: most of its windows miss their deadline"
