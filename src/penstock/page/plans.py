"""The answer to /api/plans: how streams are matched and joins are ordered, and what changed that."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.page.answers import cut, encoded, epoch, short_name
from penstock.page.folder import Snapshot
from penstock.page.histories import Switch
from penstock.page.overview import points
from penstock.page.views import kind_of

#: streams and joins of one answer, columns of a sequence
_MOST, _MOST_COLUMNS = 200, 500
_TEXT = 1_000
#: a step of an order in words: the input that is met, how, and by which key
_STEP = re.compile(r"(?P<to>.*) \((?P<method>.*?)(?: by key (?P<key>.*))?\)", re.DOTALL)


def plans_answer(snapshot: Snapshot) -> bytes:
    """How the run answers now, and why."""
    streams = list(snapshot.document["streams"].items())[:_MOST]
    entries = snapshot.views.index.entries
    joins = [name for name, entry in entries.items() if kind_of(entry) == "join" and not entry.get("dropped")]
    return encoded(
        {
            "streams": [_stream(snapshot, name, stream, points(len(streams))) for name, stream in streams],
            "joins": [_join(snapshot, name) for name in joins[:_MOST]],
            "switches": [_switch(each) for each in snapshot.histories.switches()],
        }
    )


def _stream(snapshot: Snapshot, name: str, stream: Mapping[str, Any], most: int) -> dict[str, Any]:
    matching = stream.get("matching") or {}
    found = snapshot.histories.found(name)
    runner_up = snapshot.histories.runner_up(name)
    return {
        "name": short_name(name),
        "by": matching.get("by"),
        "index_ns": matching.get("index"),
        "asc_ns": matching.get("asc"),
        "sequence": _shown(snapshot.histories.sequence(name)),
        "evaluations": stream.get("evaluations_per_tuple"),
        "found": found.get("evaluations"),
        "before": found.get("evaluations_before"),
        "runner_up": {"sequence": _shown(runner_up), "evaluations": found.get("runner_up_evaluations")}
        if runner_up
        else None,
        "decision": stream.get("decision"),
        "history": snapshot.histories.plan(name, most),
    }


def _shown(sequence: Sequence[str]) -> list[str]:
    return [cut(column) for column in sequence[:_MOST_COLUMNS]]


def _join(snapshot: Snapshot, name: str) -> dict[str, Any]:
    view = snapshot.document["views"].get(name) or {}
    standing = view.get("standing") or {}
    switches = view.get("switches") or []
    steps = [_step(each) for each in standing.get("steps") or ()]
    newest = switches[-1] if switches else {}
    return {
        "view": short_name(name),
        "state": snapshot.views.line(name)["state"],
        "order": newest.get("order") or _order(steps),
        "steps": steps,
        "measured_rate": standing.get("measured_rate"),
        "switches": view.get("switched") or 0,
        "reason": newest.get("reason") or standing.get("runner_up"),
    }


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    counts = step.get("measured") or step.get("predicted") or {}
    told = _STEP.fullmatch(step["step"])
    pairs = counts.get("pairs")
    return {
        "of": step["first"],
        "to": told["to"] if told else step["step"],
        "method": told["method"] if told else "",
        "key": f"key {told['key']}" if told and told["key"] else None,
        "rate": counts.get("rows"),
        "selectivity": counts["output"] / pairs if pairs else None,
        "cost": counts.get("seconds"),
        "is_measured": bool(step.get("measured")),
    }


def _order(steps: list[dict[str, Any]]) -> str | None:
    """The order in words, as events have it."""
    chains: dict[str, list[str]] = {}
    for step in steps:
        chains.setdefault(step["of"], []).append(step["to"])
    told = [f"new tuples of {first} meet {', '.join(others)}" for first, others in chains.items()]
    return "; ".join(told) or None


def _switch(switch: Switch) -> dict[str, Any]:
    event = switch.event
    reason = event.get("reason") or event.get("told") or ""
    return {
        "at": epoch(event.get("time")),
        "subject": short_name(str(event.get("view") or event.get("stream") or event.get("lane") or "")),
        "kind": str(event.get("kind")),
        "is_kept": event.get("action") == "KeepSequence",
        "text": cut(_words(reason), _TEXT),
        "before": _shown(switch.before),
        "order": _shown(switch.order),
        "figures": {
            str(name): cut(value) if isinstance(value, str) else value
            for name, value in (event.get("figures") or {}).items()
            if isinstance(value, int | float | str)
        },
    }


def _words(value: object) -> str:
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)
