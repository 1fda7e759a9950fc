"""What the status says of the order of a join view: what it was predicted to do and did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: counts of a step, a second, in words
_COUNTS = (("rows", "tuples in"), ("pairs", "pairs compared"), ("output", "out"))


def standing_lines(standing: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is known of a running order; see `penstock.spark.lanes.joins.explaining.standing_document`."""
    yield f"  measured: {', '.join(standing['inputs'])}"
    for selectivity in standing["selectivities"]:
        yield f"  measured: {selectivity}"
    for step in standing["steps"]:
        figures = [
            f"{what} {_figures(step[what])}" for what in ("predicted", "measured") if step[what] is not None
        ]
        yield f"  new tuples of {step['first']} meet {step['step']}: {'; '.join(figures) or 'not measured yet'}"
    measured = standing["measured_rate"]
    rate = "not measured since the order changed" if measured is None else f"measured {measured:,.4g}"
    if standing["predicted_rate"] is None:
        yield f"  joined rows a second: no prediction yet, Penstock still measures how fast event time passes; {rate}"
    else:
        yield (
            f"  joined rows a second: predicted {standing['predicted_rate']:,.4g}, {rate}; one second of the streams takes "
            f"{standing['seconds']:.3g} s of a core; found by {standing['search']}"
        )
        if standing["best_seconds"] < standing["seconds"]:
            yield (
                f"  the best order would take {standing['best_seconds']:.3g} s: the gain is too small, or the last change too "
                "recent"
            )
    if standing["runner_up"] is not None:
        yield f"  second-best order: {standing['runner_up']}"
    for each in standing["predicates"]:
        yield (
            f"  user predicate {each['text']}: measured {each['rate']:,.4g} rows a second, {each['selectivity']:.3g} of them "
            f"pass, {each['seconds']:.3g} s a row"
        )
    if standing["best_predicates"]:
        yield (
            f"  the best order of user predicates: {', '.join(standing['best_predicates'])}: the gain is too small, or the "
            "last change too recent"
        )


def _figures(counts: Mapping[str, float]) -> str:
    figures = ", ".join(f"{counts[name]:,.4g} {what}" for name, what in _COUNTS)
    each = f", {counts['seconds'] / counts['rows']:.3g} s a tuple" if counts["rows"] else ""
    return f"{figures} a second{each}"
