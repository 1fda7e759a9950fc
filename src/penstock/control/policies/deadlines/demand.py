"""What the instances of a query ask of the processors, and how much of it the allowance could save."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.plan.deadlines import LossConstraint, WindowSpan, WindowWork

Predict = Callable[[WindowSpan, WindowSpan | None], tuple[float, WindowWork]]


@dataclass(frozen=True, slots=True)
class Demand:
    """Of a query, by its newest instances.

    Attributes:
        whole: share of a processor that working every instance out takes.
        alone: the part of an instance's time that losing it saves where those beside it are worked out: all of it where each is
            worked out afresh, that of Pm where the next one has the tuples of the lost one to work out, too.
        allowed: share of a processor that losing as many as the allowance lets saves.
    """

    whole: float = 0.0
    alone: float = 1.0
    allowed: float = 0.0

    @classmethod
    def of(
        cls, spans: Sequence[WindowSpan], hop: float, predict: Predict, constraint: LossConstraint
    ) -> Demand:
        """The demand of instances that go on like these.

        Args:
            spans: tuples of consecutive ones, the oldest first; from fewer than three nothing is known.
            hop: seconds from one to the next.
            predict: an instance's seconds, by its tuples and those of the one it is carried from.
            constraint: what may be lost.
        """
        if len(spans) < 3 or hop <= 0:
            return cls()
        behind_one, behind_two = (_mean_seconds(spans, back, predict) for back in (1, 2))
        if not behind_one:
            return cls()
        saved = min(max(0.0, 2 * behind_one - behind_two), behind_one)
        return cls(behind_one / hop, saved / behind_one, saved / hop * constraint.factor)


def _mean_seconds(spans: Sequence[WindowSpan], back: int, predict: Predict) -> float:
    """Of those carried from the one so many before."""
    pairs = list(zip(spans[back:], spans, strict=False))
    return sum(predict(span, base)[0] for span, base in pairs) / len(pairs)
