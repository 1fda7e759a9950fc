"""Which slack policy a view has, and why its slack is what it is, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.monitor.figures import length


def slack_words(standing: Mapping[str, Any]) -> str | None:
    """Format a view's slack policy: 'mp-k-slack: the largest delay so far'; None where the run has not reported it.

    Args:
        standing: `slack_policy` and `slack_figures`, see `SlackPolicy.figures`; times in microseconds.
    """
    policy = standing.get("slack_policy")
    return None if policy is None else f"{policy}: {slack_reason(standing)}"


def slack_reason(standing: Mapping[str, Any]) -> str:
    """Format why the slack K of a view is what it is; `standing` as of `slack_words`, with a policy."""
    known = standing.get("slack_figures") or {}
    match standing["slack_policy"]:
        case "required" if known.get("is_learning"):
            return (
                f"too few windows are known (final: {known['known']:,} of {known['needed']:,}); K follows the largest "
                f"delay, {_time(known['largest'])}, and the stream's age"
            )
        case "required":
            return f"K is what the newest {known.get('known', 0):,} final windows needed for their bound"
        case "pd":
            reason = (
                f"K = {known.get('alpha', 1.0):.3g} times the largest delay, {_time(known.get('largest', 0))}"
            )
            if "coverage" not in known:
                return f"{reason}; no window is final yet"
            return f"{reason}; coverage {known['coverage']:.2%}, aimed at {known['threshold']:.2%}"
        case "aq-k-slack":
            return f"{known.get('coverage', 1.0):.2%} of the newest {known.get('tuples', 0):,} tuples were no later than K"
        case "mp-k-slack":
            return "K is the largest delay so far"
        case "k-slack":
            period = _time(known.get("period", 0))
            if known.get("is_measuring"):
                return f"K is the largest delay so far, measured while the stream is younger than {period}"
            return f"K is the largest delay of the stream's first {period} and does not change"
        case _:
            return "the user set K"


def _time(microseconds: float) -> str:
    return length(microseconds / 1e6)
