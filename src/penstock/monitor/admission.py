"""What views with a deadline ask of the processors, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.control.policies.deadlines.admission import Admission, ViewLoad, admission
from penstock.monitor.figures import counted, roughly

#: views named at the most
_NAMED = 3


def measured_loads(views: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, ViewLoad], int] | None:
    """Return what views ask for by the costs that a run has measured, and the processors that orders may take.

    Args:
        views: those of a status document; a view with a deadline has `load` and `processors` in `standing` once three windows are known.

    Returns:
        None if nothing is known of any.
    """
    standings = {name: view.get("standing") or {} for name, view in views.items() if not view.get("dropped")}
    loads = {name: ViewLoad(**each["load"]) for name, each in standings.items() if each.get("load")}
    processors = [each["processors"] for name, each in standings.items() if name in loads]
    return (loads, max(processors)) if loads else None


def asked_words(found: Admission) -> str:
    """Format what is asked: 'ask for 1.70 of 2 processors'."""
    asked = f"ask for {found.asked:.2f} of {counted(found.processors, 'processor')}"
    if 0 < found.least < found.asked:
        asked += f", {found.least:.2f} if each loses as many windows as its LOSS lets"
    return asked


def broken_lines(found: Admission, loads: Mapping[str, ViewLoad]) -> Iterator[str]:
    """Yield a line for each promise that cannot be kept, and one for those that cannot all be kept."""
    for name in found.hopeless:
        load = loads[name]
        if load.available <= 0 and load.lag:
            deadline = roughly(load.available + load.lag)
            why = f"the batch is noticed {roughly(load.lag)} after the arrival of its tuples, later than the deadline of {deadline}"
        elif load.seconds > load.available:
            why = f"a window takes {load.seconds:.2f} s of the {load.available:.2f} s until its deadline"
        else:
            why = f"its windows take {load.least:.2f} processors, and they are computed one after the other"
        yield f"LOSS({load.k}, {load.m}) of view {name} cannot be kept: {why}"
    if found.broken:
        named = ", ".join(
            f"LOSS({loads[name].k}, {loads[name].m}) of view {name}" for name in found.others[:_NAMED]
        )
        more = f" and {len(found.others) - _NAMED:,} more" if len(found.others) > _NAMED else ""
        yield f"{counted(found.broken, 'promise')} at least cannot be kept, of {named}{more}"


def admission_lines(views: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield what a status says of it, see `measured_loads`; the first line is no problem, the others are."""
    known = measured_loads(views)
    if known is None:
        return
    loads, processors = known
    found = admission(loads.items(), processors)
    yield f"views with a deadline {asked_words(found)}"
    yield from broken_lines(found, loads)
