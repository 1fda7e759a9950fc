"""What the status says of a view with a deadline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: kinds that a view or lane may bring about again and again, by what tells whose they are: the newest of each is news, and on a
#: run's screen the first
REPEATED = {"losses_exceeded": "view", "lane_retried": "lane"}


def repeats(earlier: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Whether an event says again of a view or lane what an earlier one has said."""
    whose = REPEATED.get(str(event.get("kind")))
    return whose is not None and all(earlier.get(name) == event.get(name) for name in ("kind", whose))


def deadline_words(view: Mapping[str, Any]) -> str:
    """What became of the windows of a view, and how it stands: `created`, `released`, `shed`, `missed` and `failed`, where lost windows are
    answered late `late`, `owed` and `abandoned`, and `standing` where the run has said it."""
    created, released = view.get("created", 0), view.get("released", 0)
    parts = [f"{released:,} of {created:,} windows released in time"]
    if created:
        parts[0] += f" ({released / created:.1%})"
    parts += [f"{view[kind]:,} {kind}" for kind in ("shed", "missed", "failed") if view.get(kind)]
    told = {"late": "answered late", "owed": "owed a late answer", "abandoned": "never answered"}
    parts += [f"{view[kind]:,} {words}" for kind, words in told.items() if view.get(kind)]
    if standing := view.get("standing"):
        parts.append(f"(k', m') = ({standing['constraint']['k']}, {standing['constraint']['m']})")
        violations = standing["violations"]
        parts.append(f"allowance exceeded: {violations:,}" if violations else "allowance kept")
        if standing.get("rho", 1.0) != 1.0:
            parts.append(f"rho {standing['rho']:.3g}")
        if standing.get("slack") is not None:
            promised = "" if standing["promised"] else " (no bound can be promised yet)"
            parts.append(f"slack K {standing['slack'] / 1e6:.4g} s{promised}")
        if standing["waiting"]:
            parts.append(f"{standing['waiting']:,} waiting")
    return ", ".join(parts)


def deadline_lines(name: str, view: Mapping[str, Any]) -> Iterator[str]:
    """What the report says of a view.

    Args:
        name: the view's.
        view: see `deadline_words`.
    """
    yield f"view {name} with a deadline: {deadline_words(view)}"
    standing = view.get("standing", {})
    if standing.get("overloaded"):
        yield "  overloaded: most of its windows miss their deadline"
    if standing.get("failing"):
        yield "  most of its windows fail"
