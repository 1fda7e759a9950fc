"""What a window view promises of its early answers, and whether it keeps that: one rule for all readers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.monitor.figures import counted


@dataclass(frozen=True, slots=True)
class Promise:
    """How the MAX_ERROR promise of a window view stands.

    Attributes:
        state: `unknown` until enough windows are final; then `kept` or `broken`, or `active` where nothing has judged the answers.
        final: final windows so far.
        needed: final windows that the promise needs.
        within: the share of final rows whose first answer was within the bound; None where it is not known.
        asked: the share that is asked for.
        learned: final windows that slack is learned from, and how many of them it needs; None where that is not known.
    """

    state: Literal["unknown", "active", "kept", "broken"]
    final: int
    needed: int
    within: float | None
    asked: float
    learned: tuple[int, int] | None = None

    @classmethod
    def of(cls, view: Mapping[str, Any]) -> Promise | None:
        """Judge the promise of a view as `folder_status` has it, with `within` where that is known; None where it has none."""
        standing = view.get("standing") or {}
        bound, promised = standing.get("bound"), standing.get("promised")
        if bound is None or promised is None or standing.get("slack_policy", "required") != "required":
            return None
        final, within, asked = int(view.get("final") or 0), view.get("within"), 1 - float(bound["delta"])
        needed = max(1, math.ceil(1 / float(bound["delta"])))
        if not promised or final < needed:
            figures = standing.get("slack_figures") or {}
            learned = int(figures.get("known", 0)), int(figures.get("needed", 0))
            return cls("unknown", final, needed, within, asked, learned if learned[0] < learned[1] else None)
        if within is None:
            return cls("active", final, needed, None, asked)
        return cls("broken" if within < asked else "kept", final, needed, within, asked)

    @property
    def words(self) -> str:
        """The state in words: 'not yet known (8 of 20 final windows)'."""
        if self.state != "unknown":
            return self.state
        if self.final < self.needed:
            return f"not yet known ({self.final:,} of {self.needed:,} final windows)"
        windows = counted(self.final, "final window")
        if self.learned is None:
            return f"not yet known ({windows}, too few to learn slack from)"
        known, needed = self.learned
        return f"not yet known ({windows}; slack is learned from {known:,} of {needed:,} that it needs)"

    @property
    def fault(self) -> str | None:
        """Why it is broken, in words; None where it is not."""
        if self.state != "broken":
            return None
        return (
            f"MAX_ERROR promise broken: {_percent(self.within)} of the early answers were within the bound, "
            f"{_percent(self.asked)} is asked for"
        )


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.3g} %"
