"""The order of calls of users' functions in conditions: by rank, over all branches of a stream.

A branch tests some of the calls, in the one order that all branches share. What an order takes is what the branches take together,
each by t_1 + f_1 t_2 + f_1 f_2 t_3 + ... of its own calls. Thresholds and dwell time are those of other orders.

Source: Song, Zhang, Lu, Yu, section 5, algorithm 2; the sum over branches is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.control.policies.output_rate import SwitchGate, SwitchSettings
from penstock.optimizer.averages import FadingSums
from penstock.optimizer.operator_order import UnaryOperator, best_order, processing_seconds


@dataclass(frozen=True, slots=True)
class CallMeasure:
    """What a call did.

    Attributes:
        pairs: pairs of tuple and branch that it judged.
        passed: those it let through.
        called: tuples that the function was given.
        raised: those at which it raised.
        seconds: it took.
    """

    pairs: float = 0.0
    passed: float = 0.0
    called: float = 0.0
    raised: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: CallMeasure) -> CallMeasure:
        return CallMeasure(
            self.pairs + other.pairs,
            self.passed + other.passed,
            self.called + other.called,
            self.raised + other.raised,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True)
class CallsStanding:
    """How the running order of calls stands.

    Attributes:
        order: the calls in it.
        tuples: tuples that came.
        totals: what each call did, all told.
        best: the order by rank.
        seconds, best_seconds: what a tuple that came takes in the running order and in that one; 0 before calls were measured.
    """

    order: tuple[str, ...]
    tuples: int
    totals: Mapping[str, CallMeasure]
    best: tuple[str, ...]
    seconds: float = 0.0
    best_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CallsReordered:
    """The next batch runs calls in another order.

    Attributes:
        order: the calls in it.
        seconds_before, seconds: what a tuple that comes is predicted to take.
    """

    order: tuple[str, ...]
    seconds_before: float
    seconds: float


def standing_of(document: Mapping[str, Any]) -> CallsStanding:
    """The standing that a document of `CallOrderPolicy` has."""
    totals = {call: CallMeasure(*each) for call, each in document["totals"].items()}
    return CallsStanding(
        tuple(document["order"]), document["tuples"], totals, tuple(document["best"]), *document["seconds"]
    )


@dataclass(slots=True)
class CallOrderPolicy:
    """Keeps the calls of one stream in the order of the least predicted time; its user's thread owns it.

    Attributes:
        settings: thresholds, dwell time and half-life.
        clock: seconds, of any beginning.
        standing: by the newest statistics; replaced as a whole.
    """

    settings: SwitchSettings
    clock: Callable[[], float]
    standing: CallsStanding = field(default_factory=lambda: CallsStanding((), 0, {}, ()))
    _sums: FadingSums = field(init=False)
    _gate: SwitchGate = field(init=False)

    def __post_init__(self) -> None:
        self._sums = FadingSums(self.settings.averaging)
        self._gate = SwitchGate(self.settings)

    def document(self) -> dict[str, Any]:
        """The running order and what is known, as JSON."""
        standing = self.standing
        return {
            "order": list(standing.order),
            "best": list(standing.best),
            "tuples": standing.tuples,
            "seconds": [standing.seconds, standing.best_seconds],
            "totals": {call: list(astuple(each)) for call, each in standing.totals.items()},
            "sums": self._sums.document(),
        }

    def restore(self, document: Mapping[str, Any]) -> None:
        """Goes on from what an earlier life followed and knew.

        Args:
            document: see `document`.
        """
        self.standing = standing_of(document)
        self._sums.restore(document["sums"])

    def order_of(self, calls: Sequence[str]) -> tuple[int, ...]:
        """The numbers of calls in the running order; those that it does not have are behind it, as they are given."""
        places = {call: place for place, call in enumerate(self.standing.order)}
        return tuple(sorted(range(len(calls)), key=lambda number: places.get(calls[number], len(places))))

    def measured(
        self,
        calls: Sequence[str],
        measures: Sequence[CallMeasure],
        branches: Mapping[frozenset[str], int],
        tuples: int,
        seconds: float,
    ) -> CallsReordered | None:
        """Takes in a batch.

        Args:
            calls: the calls of its plan version.
            measures: what each did.
            branches: pairs of tuple and branch that were judged, by the calls of the branch.
            tuples: tuples that came.
            seconds: it took.

        Returns:
            The change of order it gives rise to, if any.
        """
        before = self.standing
        running = tuple(calls[number] for number in self.order_of(calls))
        totals = dict(before.totals)
        found: dict[Hashable, float | npt.NDArray[np.float64]] = {"tuples": float(tuples), "period": seconds}
        for call, measure in zip(calls, measures, strict=True):
            totals[call] = totals.get(call, CallMeasure()) + measure
            found["pairs", call] = measure.pairs
            found["passed", call] = measure.passed
            found["seconds", call] = measure.seconds
        for own, pairs in branches.items():
            found["branch", *sorted(own)] = float(pairs)
        self._sums.add(max(seconds, 1e-6), found)
        known = {call: self._operator(call) for call in running if self._sums.sum(("pairs", call))}
        ranked = tuple(each.name for each in best_order([known[call] for call in running if call in known]))
        best = (*ranked, *(call for call in running if call not in known))
        now, then = (self._predicted(order, branches, known) for order in (running, best))
        came = self._sums.sum("tuples") or 1.0
        rate = self._sums.ratio("tuples", "period")
        switches = best != running and self._gate.lets(now / came, then / came, self.clock(), rate)
        order = best if switches else running
        taken = then if switches else now
        self.standing = CallsStanding(order, before.tuples + tuples, totals, best, taken / came, then / came)
        return CallsReordered(order, now / came, then / came) if switches else None

    def _operator(self, call: str) -> UnaryOperator:
        return UnaryOperator(
            call,
            self._sums.ratio(("seconds", call), ("pairs", call)),
            min(1.0, self._sums.ratio(("passed", call), ("pairs", call))),
        )

    def _predicted(
        self,
        order: Sequence[str],
        branches: Mapping[frozenset[str], int],
        known: Mapping[str, UnaryOperator],
    ) -> float:
        """What the branches of the newest time take in an order, seconds."""
        return sum(
            self._sums.sum(("branch", *sorted(own)))
            * processing_seconds([known[call] for call in order if call in own and call in known])
            for own in branches
        )
