"""What an instance will cost, from measured unit costs.

Source: Wu, Gu, Lyu, Yu, formulas 3 to 5. Learning from abandoned orders and starting from nothing where that is cheaper are
ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, sqrt

from penstock.optimizer.averages import AveragingSettings, FadingSums
from penstock.plan.deadlines import DeadlineQuery, WindowSpan, WindowWork, carried_work, fresh_work


def expiration_factor(seconds: float, deadline: float, now: float) -> float:
    """delta = P / (D - (now - t_create)); infinite where no time is left.

    Args:
        seconds: P, the cost of the instance.
        deadline: t_create + D, seconds by the clock.
        now: by the same clock.
    """
    left = deadline - now
    return seconds / left if left > 0 else inf


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Seconds of a processor.

    Attributes:
        new: P0+, of a new tuple.
        expired: P0-, of an expired tuple.
        maintenance: Pm, of an instance whatever its tuples, publication included.
    """

    new: float = 0.0
    expired: float = 0.0
    maintenance: float = 0.0

    def seconds(self, work: WindowWork, rho: float = 1.0) -> float:
        """P^ = (P0+ |new| + P0- |expired|) rho + Pm."""
        return (self.new * work.new + self.expired * work.expired) * rho + self.maintenance


@dataclass(frozen=True, slots=True)
class PredictionSettings:
    """How unit costs are measured.

    Attributes:
        averaging: which orders count.
        bound_factor: an abandoned order counts as if it had taken so many times what it had by then, where that is more than
            was predicted.
    """

    averaging: AveragingSettings = field(default_factory=lambda: AveragingSettings(seconds=1.0))
    bound_factor: float = 1.5


class CostPredictor:
    """Measures the unit costs of a query and predicts its instances.

    Args:
        query: whose instances.
        settings: how.
        believed: unit costs before the first order.
        kin: measures all queries that compute the same; predicts this one before its first order, and what its orders share with others. One
            order alone counts for no more than those of the kin took: it may have been that of a cold machine.

    Attributes:
        rho: factor of what tuples are predicted to cost.
        costs: as measured; before the first order those of its kin.
        beside: an order's part of what orders of one lot share, seconds: as that of the newest ones of its kin, for it is a matter of how
            many they are.
        job: all that the orders of one lot share, seconds, likewise.
        measured_at: when an order was last measured; minus infinity: none was.
    """

    def __init__(
        self,
        query: DeadlineQuery,
        settings: PredictionSettings,
        believed: UnitCosts,
        kin: CostPredictor | None = None,
    ) -> None:
        self._incremental = query.incremental
        self._kin = kin
        self._settings = settings
        self._sums = FadingSums(settings.averaging)
        self.measured_at = -inf
        self.rho = 1.0
        #: Pm without what orders share
        self._own = believed
        self._beside = self._job = 0.0
        #: orders that were measured
        self._orders = 0

    @property
    def costs(self) -> UnitCosts:
        own = self._known._own
        return replace(own, maintenance=own.maintenance + self.beside)

    @property
    def beside(self) -> float:
        return self._shared._beside

    @property
    def job(self) -> float:
        return self._shared._job

    @property
    def is_measured(self) -> bool:
        """Whether an order of this query was measured."""
        return self._orders > 0

    @property
    def known_at(self) -> float:
        """When an order of this query or of its kin was last measured, by the clock; minus infinity: none was."""
        return self.measured_at if self._kin is None else max(self.measured_at, self._kin.measured_at)

    @property
    def is_by_kin(self) -> bool:
        """Whether it is predicted by other queries alone."""
        return self._known is not self

    @property
    def _shared(self) -> CostPredictor:
        """What measures lots."""
        return self if self._kin is None or not self._kin.is_measured else self._kin

    @property
    def _known(self) -> CostPredictor:
        """What predicts it."""
        if self._kin is not None and not self.is_measured and self._kin.is_measured:
            return self._kin
        return self

    def predict(self, span: WindowSpan, base: WindowSpan | None) -> tuple[float, WindowWork]:
        """Predicted seconds of an instance, and from what it is worked out: what costs less.

        Args:
            span: its tuples.
            base: those of the last processed instance, None where there is none.
        """
        beside = self.beside
        work = fresh_work(span)
        seconds = self._seconds(work)
        if self._incremental and base is not None:
            carried = carried_work(span, base)
            from_base = self._seconds(carried)
            if from_base <= seconds:
                return from_base + beside, carried
        return seconds + beside, work

    def _seconds(self, work: WindowWork) -> float:
        """What an order takes itself."""
        own = self._known._own.seconds(work, self.rho)
        if self._orders != 1 or self._kin is None:
            return own
        return min(own, self._kin._own.seconds(work, self.rho))

    @property
    def sums(self) -> dict[str, float]:
        """What the costs of the newest orders were measured by."""
        return {str(name): self._sums.sum(name) for name in self._sums.names()}

    def recall(self, now: float, costs: UnitCosts, sums: Mapping[str, float]) -> None:
        """Goes on with what was measured before, as if it had been now; the first order counts beside it."""
        if not sums:
            return
        # of more than one order
        self.measured_at, self._orders = now, 2
        # without lots nothing is known of what they share
        known = (name for name in sums if name != "beside" or "lots" in sums)
        self._sums.add(0.0, {name: sums[name] for name in known})
        self._own = costs
        self._take_sums()
        if self._kin is not None and not self._kin.is_measured:
            self._kin.recall(now, costs, sums)

    @property
    def spread(self) -> float:
        """Relative standard deviation of what orders took around what was predicted."""
        return sqrt(self._sums.ratio("squares", "orders"))

    def measured(
        self,
        now: float,
        work: WindowWork,
        predicted: float,
        seconds: tuple[float, float, float],
        beside: float = 0.0,
        lots: float = 0.0,
    ) -> None:
        """An order has ended.

        Args:
            now: by the clock.
            work: what it did.
            predicted: seconds.
            seconds: for its new tuples, for its expired ones, for the rest. What is spent on none counts as the rest: as a cost of
                tuples that fade away it would grow without end.
            beside: of these, its part of what orders of one lot share.
            lots: its part of the lot.
        """
        adding = seconds[0] if work.new else 0.0
        removing = seconds[1] if work.expired else 0.0
        if self._kin is not None:
            self._kin.measured(now, work, predicted, seconds, beside, lots)
        error = sum(seconds) / predicted - 1 if predicted else 0.0
        self._sums.add(
            0.0 if self.measured_at == -inf else max(0.0, now - self.measured_at),
            {
                "new": work.new,
                "adding": adding,
                "expired": work.expired,
                "removing": removing,
                "rest": sum(seconds) - adding - removing,
                "orders": 1,
                "squares": error * error,
                "beside": beside,
                "lots": lots,
            },
        )
        self.measured_at = now
        self._orders += 1
        self._take_sums()

    def _take_sums(self) -> None:
        self._beside, self._job = self._sums.ratio("beside", "orders"), self._sums.ratio("beside", "lots")
        self._own = UnitCosts(
            self._sums.ratio("adding", "new") if self._sums.sum("new") else self._own.new,
            self._sums.ratio("removing", "expired") if self._sums.sum("expired") else self._own.expired,
            self._sums.ratio("rest", "orders") - self._beside,
        )

    def bounded(
        self, now: float, work: WindowWork, predicted: float, seconds: float, guessed: UnitCosts | None = None
    ) -> None:
        """An order was abandoned after so many seconds: no news of its costs where they are higher already, though an order
        more that took longer than was predicted.

        Args:
            now, work, predicted: as of `measured`.
            seconds: that it had taken by then.
            guessed: by what it was predicted, if no order was measured.
        """
        costs = self.costs if guessed is None or self.known_at > -inf else guessed
        known = costs.seconds(work)
        if seconds <= known:
            self.measured_at = now
            if self.is_measured and seconds > predicted:
                self._orders += 1
            return
        least = seconds * self._settings.bound_factor
        factor = least / known if known else 1.0
        parts = (
            costs.new * work.new * factor,
            costs.expired * work.expired * factor,
            costs.maintenance * factor if known else least,
        )
        self.measured(now, work, predicted, parts)
