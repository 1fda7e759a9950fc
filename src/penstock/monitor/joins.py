"""How a join view is doing, as lines of text: what its order was predicted to do and did, and which orders it had before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: what is told of a step: its count and how it is said
_COUNTS = (("rows", "rows come"), ("pairs", "pairs looked at"), ("output", "go on"))


def standing_lines(standing: Mapping[str, Any]) -> Iterator[str]:
    """What is known of a running order; see `penstock.spark.lanes.joins.explaining.standing_document`."""
    yield f"  measured: {', '.join(standing['inputs'])}"
    for selectivity in standing["selectivities"]:
        yield f"  measured: {selectivity}"
    for step in standing["steps"]:
        figures = [
            f"{what} {_figures(step[what])}" for what in ("predicted", "measured") if step[what] is not None
        ]
        yield f"  new tuples of {step['first']} meet {step['step']}: {'; '.join(figures) or 'nothing measured yet'}"
    measured = standing["measured_rate"]
    counted = (
        "nothing measured since the order was switched" if measured is None else f"measured {measured:,.4g}"
    )
    if standing["predicted_rate"] is None:
        yield f"  nothing predicted before it is known how fast event time passes, {counted}"
    else:
        yield (
            f"  predicted: {standing['predicted_rate']:,.4g} rows/s put out, {counted}; {standing['seconds']:.3g} s of a processor "
            f"for each second of the streams; found by {standing['search']}"
        )
        if standing["best_seconds"] < standing["seconds"]:
            yield f"  the best order would take {standing['best_seconds']:.3g} s: too little less, or too soon after the last change"
    if standing["runner_up"] is not None:
        yield f"  the runner-up: {standing['runner_up']}"
    for each in standing["predicates"]:
        yield (
            f"  judged by {each['text']}: measured {each['rate']:,.4g} rows a second, {each['selectivity']:.3g} of them pass, "
            f"{each['seconds']:.3g} s for each"
        )
    if standing["best_predicates"]:
        yield f"  the best order of these: {', '.join(standing['best_predicates'])}: too little less, or too soon after the last change"


def _figures(counts: Mapping[str, float]) -> str:
    told = ", ".join(f"{counts[name]:,.4g} {what}" for name, what in _COUNTS)
    each = f", {counts['seconds'] / counts['rows']:.3g} s for each" if counts["rows"] else ""
    return f"{told} a second{each}"
