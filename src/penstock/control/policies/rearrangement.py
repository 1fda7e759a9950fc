"""When to look for a new evaluation sequence, and finding it from sampled tuples.

Source: Lee & Lee, section 5.2. Watching the evaluations a tuple besides the dropping ratio is ours:
the dropping ratio of a whole sequence does not depend on its order, so a drift that leaves the share of
unmatched tuples as it was would go unseen. The least gain is ours too: samples differ, and a change for less
than that difference would be undone by the next one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.control.actions import Action, Figures, KeepSequence, SampleTuples, SwapSequence
from penstock.control.events import Event, SelectionsBound, StatisticsReported
from penstock.kernels.asc import Codes
from penstock.optimizer.sequences import SequenceArranger
from penstock.plan.arrangement import Arrangement, ArrangementKind

#: ns of an evaluation besides working out the region
_NARROW_NS = 1.0
#: weight of the newest measurement of what a region costs
_NEWEST_WEIGHT = 0.3
#: share of the cost that a new sequence must save, on the tuples that it was found by; below, the running one remains
LEAST_GAIN = 0.01


@dataclass(frozen=True, slots=True)
class RearrangementSettings:
    """Parameters of the rearrangement of evaluation sequences.

    Attributes:
        kind: MACRO or HYBRID sequences.
        recomputation_tuples: lambda: tuples of the stream after which the running sequence is judged.
        period_tuples: tau: sampled tuples one step of an arrangement measures.
        threshold: mu: relative change of the dropping ratio or of the evaluations a tuple that calls
            for a new sequence; 0 finds a new one every lambda.
    """

    kind: ArrangementKind = ArrangementKind.HYBRID
    recomputation_tuples: int = 200_000
    period_tuples: int = 2_000
    threshold: float = 0.02

    def __post_init__(self) -> None:
        if self.kind is ArrangementKind.FIXED:
            raise ValueError("kind must be macro or hybrid, got fixed")
        if self.recomputation_tuples < 1 or self.period_tuples < 1:
            raise ValueError(
                "recomputation_tuples and period_tuples must be at least 1, "
                f"got {self.recomputation_tuples} and {self.period_tuples}"
            )
        if self.threshold < 0:
            raise ValueError(f"threshold must not be negative, got {self.threshold}")


class RearrangementPolicy:
    """Keeps every stream's evaluation sequence fitting its data.

    A sequence is looked for when a stream's selections are bound and whenever the running one has come
    to behave differently for a whole recomputation period. The periods tau are the newest sampled
    tuples, those that passed just before included, so that with dense samples the answer is at hand
    when the question arises. Both ratios are measured on the samples with the running arrangement,
    which works as well where the workers answer batches by the index.

    Args:
        settings: parameters, the same for all streams.
    """

    def __init__(self, settings: RearrangementSettings | None = None) -> None:
        self._settings = settings or RearrangementSettings()
        self._streams: dict[str, _Stream] = {}

    def handle(self, event: Event) -> list[Action]:
        """Takes an event and returns the actions it gives rise to."""
        if isinstance(event, SelectionsBound):
            self._streams[event.stream] = _Stream(self._settings, event)
            return self._streams[event.stream].begin()
        if not isinstance(event, StatisticsReported):
            return []
        stream = self._streams.get(event.stream)
        if stream is None or stream.version != event.version:
            return []
        return stream.report(event)


@dataclass(slots=True)
class _Behaviour:
    """How an arrangement did on sampled tuples."""

    tuples: int = 0
    dropped: int = 0
    evaluations: int = 0
    #: of the evaluations, in the arranger's units
    cost: float = 0.0

    def add(self, other: _Behaviour) -> None:
        """Counts further tuples."""
        self.tuples += other.tuples
        self.dropped += other.dropped
        self.evaluations += other.evaluations
        self.cost += other.cost

    @property
    def dropping_ratio(self) -> float:
        return self.dropped / self.tuples if self.tuples else 0.0

    @property
    def evaluations_a_tuple(self) -> float:
        return self.evaluations / self.tuples if self.tuples else 0.0


class _Stream:
    """One stream: either measuring towards a new sequence or watching the running one."""

    def __init__(self, settings: RearrangementSettings, bound: SelectionsBound) -> None:
        self._settings = settings
        self._name = bound.stream
        self.version = bound.version
        self._index = bound.index
        self._costs: npt.NDArray[np.float64] | None = None
        self._running = bound.running or bound.index.given_order()
        self._initial = _Behaviour()
        self._current = _Behaviour()
        self._seen = 0
        self._arranger: SequenceArranger | None = self._new_arranger()
        self._wanted = self._arranger.periods * settings.period_tuples
        self._recent = np.empty((len(bound.index.coded.codings), 0), np.uint32)
        self._unmeasured = 0

    def begin(self) -> list[Action]:
        """The first sequence is to be found; a single ASC needs none."""
        if self._wanted == 0:
            self._arranger = None
            return []
        reason = "Still measuring; rule order not optimized yet."
        return [SampleTuples(self._name, self.version, reason, {"sampled_tuples": self._wanted})]

    def report(self, event: StatisticsReported) -> list[Action]:
        self._remember(event.sample)
        if event.costs is not None:
            known = self._costs
            self._costs = event.costs if known is None else known + _NEWEST_WEIGHT * (event.costs - known)
            if self._arranger is not None and not self._has_stepped:
                self._arranger = self._new_arranger()
        if self._arranger is None:
            return self._watch(event)
        return self._measure()

    def _new_arranger(self) -> SequenceArranger:
        self._has_stepped = False
        costs = self._unit_costs()
        return SequenceArranger(self._index, self._settings.kind, None if costs is None else costs.tolist())

    def _unit_costs(self) -> npt.NDArray[np.float64] | None:
        """What an evaluation of each p-attribute's ASC costs, ns; None where all are taken to cost the same."""
        return None if self._costs is None else self._costs + _NARROW_NS

    def _remember(self, sample: Codes) -> None:
        recent = np.concatenate([self._recent, sample], axis=1)
        self._unmeasured = min(self._unmeasured + sample.shape[1], recent.shape[1])
        kept = max(self._wanted, self._unmeasured) if self._arranger else self._wanted
        self._recent = np.ascontiguousarray(recent[:, recent.shape[1] - min(kept, recent.shape[1]) :])

    def _watch(self, event: StatisticsReported) -> list[Action]:
        self._current.add(self._behaviour(self._running, event.sample))
        self._seen += event.tuples
        if self._seen < self._settings.recomputation_tuples or not self._current.tuples:
            return []
        current, self._current, self._seen = self._current, _Behaviour(), 0
        threshold = self._settings.threshold
        changes = {
            "share of rows without a match": _change(self._initial.dropping_ratio, current.dropping_ratio),
            "checks a row": _change(self._initial.evaluations_a_tuple, current.evaluations_a_tuple),
        }
        triggers = [name for name, change in changes.items() if change >= threshold]
        if not triggers or self._wanted == 0:
            return []
        self._arranger = self._new_arranger()
        self._unmeasured = self._recent.shape[1]
        figures: Figures = {
            "trigger": " and ".join(triggers),
            "threshold": threshold,
            "dropping_ratio_initial": round(self._initial.dropping_ratio, 6),
            "dropping_ratio": round(current.dropping_ratio, 6),
            "evaluations_initial": round(self._initial.evaluations_a_tuple, 6),
            "evaluations": round(current.evaluations_a_tuple, 6),
        }
        reason = "; ".join(
            f"Measuring again: {name} changed by {_percent(changes[name])}, threshold {100 * threshold:.0f} %."
            for name in triggers
        )
        return [SampleTuples(self._name, self.version, reason, figures), *self._measure()]

    def _measure(self) -> list[Action]:
        assert self._arranger is not None
        tau = self._settings.period_tuples
        while not self._arranger.done and self._unmeasured >= tau:
            begin = self._recent.shape[1] - self._unmeasured
            self._has_stepped = True
            self._arranger.step(np.ascontiguousarray(self._recent[:, begin : begin + tau]))
            self._unmeasured -= tau
        if not self._arranger.done:
            return []
        found, runner_up = self._arranger.arrangement(), self._arranger.runner_up()
        self._arranger = None
        running, before = self._running, self._behaviour(self._running, self._recent)
        after = self._behaviour(found, self._recent)
        gain = 1 - after.cost / before.cost if before.cost else 0.0
        swaps = gain >= LEAST_GAIN
        self._initial = after if swaps else before
        figures: Figures = {
            "evaluations_before": round(before.evaluations_a_tuple, 6),
            "evaluations": round(self._initial.evaluations_a_tuple, 6),
            "gain": round(gain, 6),
            "dropping_ratio": round(self._initial.dropping_ratio, 6),
            "sampled_tuples": self._initial.tuples,
        }
        checks = f"{self._initial.evaluations_a_tuple:.4g} checks a row"
        other = ""
        if runner_up is not None:
            lost = self._behaviour(runner_up, self._recent).evaluations_a_tuple
            figures = {**figures, "runner_up_evaluations": round(lost, 6)}
            other = f"; the runner-up {lost:.4g}"
        if swaps:
            self._running = found
            reason = (
                f"Order changed: {checks}, before {before.evaluations_a_tuple:.4g}{other}. "
                f"The cost falls by {100 * gain:.1f} %."
            )
            return [SwapSequence(self._name, self.version, reason, figures, found, runner_up, running)]
        reason = f"Order kept: {checks}{other}."
        if not found.same_as(running):
            reason += f" No order that was found saves {LEAST_GAIN:.0%} of the cost.".replace("%", " %")
        return [KeepSequence(self._name, self.version, reason, figures, running, runner_up)]

    def _behaviour(self, arrangement: Arrangement, sample: Codes) -> _Behaviour:
        found = self._index.evaluate(np.ascontiguousarray(sample), arrangement)
        costs = self._unit_costs()
        cost = float(found.evaluations if costs is None else found.by_attribute @ costs)
        return _Behaviour(sample.shape[1], found.dropped, found.evaluations, cost)


def _percent(change: float) -> str:
    return "more than 1000 %" if change > 10 else f"{100 * change:.0f} %"


def _change(initial: float, current: float) -> float:
    """Relative change (equation 5); from nothing to something it is infinite."""
    if initial == 0:
        return 0.0 if current == 0 else float("inf")
    return abs(current - initial) / initial
