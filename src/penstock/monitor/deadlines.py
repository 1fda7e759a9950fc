"""What the status says of a view with a deadline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.monitor.figures import counted, length
from penstock.monitor.slacks import slack_words

#: kinds that a view or lane may bring about again and again, by the field that names it: the newest of each is news, and on a
#: run's screen the first
REPEATED = {"losses_exceeded": "view", "lane_retried": "lane"}

#: from the arrival of a tuple until its window is noticed, longer than an ingest with nothing to wait for takes
_LONG_NOTICE_SECONDS = 0.5


def repeats(earlier: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Whether an event repeats an earlier one of the same view or lane."""
    whose = REPEATED.get(str(event.get("kind")))
    return whose is not None and all(earlier.get(name) == event.get(name) for name in ("kind", whose))


def deadline_words(view: Mapping[str, Any]) -> str:
    """Format what became of the windows of a view, and its promise.

    Args:
        view: `created`, `released`, `shed`, `missed`, `failed` and `approximated`; where lost windows are answered late `late`, `owed` and
            `abandoned`; and `standing` where the run has reported it.
    """
    created, released = view.get("created", 0), view.get("released", 0)
    # neither released nor lost
    exact = created - view.get("approximated", 0)
    parts = [f"{released:,} of {counted(exact, 'window')} released in time"]
    if exact:
        parts[0] += f" ({released / exact:.1%})"
    kinds = ("shed", "missed", "failed", "approximated")
    parts += [f"{view[kind]:,} {kind}" for kind in kinds if view.get(kind)]
    late = {"late": "answered late", "owed": "still to be answered late", "abandoned": "never answered"}
    parts += [f"{view[kind]:,} {words}" for kind, words in late.items() if view.get(kind)]
    if standing := view.get("standing"):
        parts.append(loss_words(standing))
        if standing.get("rho", 1.0) != 1.0:
            parts.append(f"predicted costs are multiplied by {standing['rho']:.3g}")
        if standing.get("slack") is not None:
            waits = standing["promised"] or standing.get("slack_policy", "required") != "required"
            promised = "" if waits else " (the MAX_ERROR promise has not started yet)"
            parts.append(f"slack {length(standing['slack'] / 1e6)}{promised}")
        if standing.get("notice_seconds", 0.0) >= _LONG_NOTICE_SECONDS:
            parts.append(
                f"noticed {length(standing['notice_seconds'])} after the arrival of their last tuple"
            )
        if standing["waiting"]:
            parts.append(f"{standing['waiting']:,} waiting")
    return ", ".join(parts)


def loss_words(standing: Mapping[str, Any]) -> str:
    """Format the LOSS promise: 'may still lose 1 of the next 6 windows; promise kept'."""
    allowance, violations = standing["constraint"], standing["violations"]
    kept = f"promise broken {counted(violations, 'time')}" if violations else "promise kept"
    left, of = allowance["k"], allowance["m"]
    windows = "the next window" if of == 1 else f"the next {of:,} windows"
    if not left:
        return f"may lose none of {windows}; {kept}"
    return f"may still lose {'the next window' if of == 1 else f'{left:,} of {windows}'}; {kept}"


def deadline_lines(name: str, view: Mapping[str, Any]) -> Iterator[str]:
    """Yield the report's lines on a view.

    Args:
        name: the view's.
        view: see `deadline_words`.
    """
    yield f"view {name} with a deadline: {deadline_words(view)}"
    standing = view.get("standing", {})
    if (slack := slack_words(standing)) is not None:
        yield f"  slack policy {slack}"
    if standing.get("overloaded"):
        yield "  overloaded: most of its windows miss their deadline"
    if standing.get("failing"):
        yield "  most of its windows fail"
