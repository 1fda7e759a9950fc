"""The paper's formulas of output rates as printed, and corrected ones beside them (docs/decisions/0024).

Source: Song, Zhang, Lu, Yu, sections 4.1 to 4.3. Rates are in tuples a second, costs in seconds of a processor, windows in
seconds; work is for one second of the streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from penstock.optimizer.operator_order import UnaryOperator, processing_seconds
from penstock.optimizer.output_rate import output_rate
from penstock.plan.joins import Method


class Form(StrEnum):
    """Which form of the join's output rate is meant."""

    #: (2T - 1) s rA rB tuples, divided by the time they take
    PRINTED = "printed"
    #: 2T s rA rB tuples, divided by the time they take where that is more than there is
    CORRECTED = "corrected"


def unary_rate(rate: float, seconds: float, share: float) -> float:
    """Output rate of unary operators that take `seconds` a tuple and let a share of the tuples pass (sections 4.1 and 4.2)."""
    return share * rate if seconds * rate <= 1 else share / seconds


def passing_share(operators: Sequence[UnaryOperator]) -> float:
    """Share of tuples that pass all of them, were they independent."""
    share = 1.0
    for operator in operators:
        share *= operator.selectivity
    return share


def group_rate(order: Sequence[UnaryOperator], rate: float) -> float:
    """r_o of the group in this order, tuples a second.

    Args:
        order: of the operators.
        rate: r_i, tuples a second that come.
    """
    return unary_rate(rate, processing_seconds(order), passing_share(order))


@dataclass(frozen=True, slots=True)
class WindowJoin:
    """Join of the tuples of two streams that lie within a window, tuple by tuple (section 4.3).

    A direction is the number of the stream whose new tuples search the other one: 0 is A>B, 1 is B>A.

    Attributes:
        rates: of A and B.
        window: T, seconds.
        selectivity: share of all pairs that join.
        nested_seconds: C_N, what nested loops take for each tuple they touch.
        hash_seconds: C_H, what a hash join takes for each tuple it touches.
        buckets: of A's table and of B's.
        scans_to_expire: whether expired tuples are looked for, as in the paper, or drop out by themselves.
    """

    rates: tuple[float, float]
    window: float
    selectivity: float
    nested_seconds: float
    hash_seconds: float
    buckets: tuple[int, int]
    scans_to_expire: bool = True

    def pairs(self, form: Form = Form.CORRECTED, at: float | None = None) -> float:
        """C_out (formulas 2 and 3).

        Args:
            form: printed, each tuple of the last second meets half a second's tuples too few.
            at: seconds since the beginning while the window is filling; None: it is full.
        """
        span = 2 * self._span(at) - (1 if form is Form.PRINTED else 0)
        return span * self.selectivity * self.rates[0] * self.rates[1]

    def direction_seconds(self, direction: int, method: Method, at: float | None = None) -> float:
        """C_A>B or C_B>A (formulas 5 and 6).

        Raises:
            ValueError: the paper has no formula for the method.
        """
        own, other = self.rates[direction], self.rates[1 - direction]
        is_full = at is None or at >= self.window
        probed = own * other * self._span(at)
        if method is Method.NESTED:
            return self.nested_seconds * (probed + other * (2 if is_full and self.scans_to_expire else 1))
        if method is Method.HASH:
            buckets = self.buckets[1 - direction]
            expired = other * self.window / buckets if is_full and self.scans_to_expire else 0.0
            return self.hash_seconds * (probed / buckets + other * (expired + 1))
        raise ValueError(f"the paper has no formula for the method {method}")

    def methods(self, at: float | None = None) -> tuple[Method, Method]:
        """The cheaper method of each direction."""

        def cheaper(direction: int) -> Method:
            return min(
                (Method.HASH, Method.NESTED), key=lambda method: self.direction_seconds(direction, method, at)
            )

        return cheaper(0), cheaper(1)

    def seconds(self, methods: tuple[Method, Method] | None = None, at: float | None = None) -> float:
        """C_time with given methods, or with the cheaper ones."""
        chosen = methods or self.methods(at)
        return sum(self.direction_seconds(direction, chosen[direction], at) for direction in (0, 1))

    def output_rate(
        self,
        form: Form = Form.CORRECTED,
        at: float | None = None,
        methods: tuple[Method, Method] | None = None,
    ) -> float:
        """r_o = C_out / C_time."""
        pairs, seconds = self.pairs(form, at), self.seconds(methods, at)
        return pairs / seconds if form is Form.PRINTED else output_rate(pairs, seconds)

    def _span(self, at: float | None) -> float:
        return self.window if at is None else min(at, self.window)
