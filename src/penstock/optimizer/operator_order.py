"""Algorithm 2: the order of a group of unary operators that puts out the most tuples a second.

Source: Song, Zhang, Lu, Yu, section 5, which tries all permutations. The share that passes all of them is the same in every
order, so the largest output rate is that of the least processing time, and for independent selections that
is the order by t / (1 - f).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnaryOperator:
    """A selection or a projection, as measured.

    Attributes:
        name: of the operator.
        seconds: t, what a tuple takes.
        selectivity: f, share of tuples that pass; 1 for a projection.
        is_projection: whether it is one.

    Raises:
        ValueError: the selectivity is no share, or the time is negative.
    """

    name: str
    seconds: float
    selectivity: float = 1.0
    is_projection: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.selectivity <= 1:
            raise ValueError(f"selectivity must be between 0 and 1, got {self.selectivity} for {self.name!r}")
        if self.seconds < 0:
            raise ValueError(f"seconds must not be negative, got {self.seconds} for {self.name!r}")

    @property
    def rank(self) -> float:
        """Time spent for each tuple that goes no further: t / (1 - f)."""
        dropped = 1 - self.selectivity
        return self.seconds / dropped if dropped else float("inf")


def best_order(operators: Sequence[UnaryOperator]) -> tuple[UnaryOperator, ...]:
    """The selections by rank, equal ones as given, then the projections."""
    return tuple(sorted(operators, key=lambda operator: (operator.is_projection, operator.rank)))


def processing_seconds(order: Sequence[UnaryOperator]) -> float:
    """t_1 + f_1 t_2 + f_1 f_2 t_3 + ...: mean time of a tuple in this order."""
    seconds, share = 0.0, 1.0
    for operator in order:
        seconds += share * operator.seconds
        share *= operator.selectivity
    return seconds
