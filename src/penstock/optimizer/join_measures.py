"""From what an executor counts and times while it joins to the statistics that planning goes by."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.optimizer.averages import AveragingSettings, FadingSums, Sums
from penstock.optimizer.join_statistics import JoinStatistics, UnitCosts, search_steps
from penstock.plan.joins import Method

#: weight of what was believed of unit costs beside what is measured of them
_PRIOR = 0.01
#: what of a step is averaged, in the order of `StepCount`
_COUNTS = ("rows", "pairs", "output", "seconds")


@dataclass(frozen=True, slots=True)
class Work:
    """What some steps of a join did and what they took; attributes but the last are those of `UnitCosts`, as counts.

    Attributes:
        probes: steps of searches in sorted tuples (`search_steps`).
        pairs: tuples looked at that a search had found.
        outputs: rows put out.
        nested: tuples looked at by nested loops.
        built: tuples put in tables.
        lookups: rows searched for in tables.
        seconds: of a processor.
    """

    probes: float = 0.0
    pairs: float = 0.0
    outputs: float = 0.0
    nested: float = 0.0
    built: float = 0.0
    lookups: float = 0.0
    seconds: float = 0.0

    def seconds_at(self, costs: UnitCosts) -> float:
        """What it takes at given unit costs."""
        return float(np.dot(astuple(self)[:-1], astuple(costs)))


@dataclass(frozen=True, slots=True)
class StepCount:
    """What a step of a probe order did; of a second of the streams where rates are meant.

    Attributes:
        first: the input whose new tuples are followed.
        input: the one that is searched.
        rows: that came.
        pairs: looked at.
        output: rows put out.
        seconds: of a processor.
    """

    first: int
    input: int
    rows: float
    pairs: float
    output: float
    seconds: float


@dataclass(frozen=True, slots=True)
class JoinMeasures:
    """What was counted and timed in a monitoring period.

    Attributes:
        seconds: how long it has lasted.
        cuts: that were answered in it.
        tuples: by input, new ones that take part; 0 for a static table.
        sizes: by input, tuples of a static table now; 0 for a stream.
        equal: by (key, input, input), the lower input first: pairs compared and pairs equal, in samples or by steps.
        satisfied: by (input, input), the lower first: pairs compared and pairs whose comparisons are satisfied.
        delays: by input, mean seconds its tuples arrived behind their event time; all 0 where empty.
        passed: by input, tuples and by how many seconds of event time they have moved the stream on, below 0 where back; (0, 0)
            where that is not known. Empty: event time passes as the clock does.
        work: of the steps, one item for each that was timed by itself.
        steps: what each step did, in any order; several of one step are added up.
    """

    seconds: float
    cuts: int
    tuples: tuple[int, ...]
    sizes: tuple[int, ...]
    equal: Mapping[tuple[int, int, int], tuple[float, float]]
    satisfied: Mapping[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    delays: tuple[float, ...] = ()
    passed: tuple[tuple[float, float], ...] = ()
    work: tuple[Work, ...] = ()
    steps: tuple[StepCount, ...] = ()


class JoinAverages:
    """Statistics of the newest time.

    Args:
        settings: which time.
        costs: what unit costs are believed to be before anything is measured; what is never measured by itself keeps its
            ratio to the rest.
    """

    def __init__(self, settings: AveragingSettings, costs: UnitCosts | None = None) -> None:
        self._settings = settings
        self._sums = FadingSums(settings)
        self._steps = FadingSums(settings)
        self._believed = costs or UnitCosts()
        self._sizes: tuple[int, ...] = ()
        self._is_timed = False
        self._keys: set[tuple[int, int, int]] = set()
        self._pairs: set[tuple[int, int]] = set()

    def add(self, measures: JoinMeasures) -> None:
        """Takes a period."""
        self._sizes = measures.sizes
        self._is_timed = bool(measures.passed)
        self._keys |= measures.equal.keys()
        self._pairs |= measures.satisfied.keys()
        found: dict[Hashable, float | npt.NDArray[np.float64]] = {
            "seconds": measures.seconds,
            "cuts": measures.cuts,
        }
        for number, tuples in enumerate(measures.tuples):
            found["tuples", number] = tuples
            found["delay", number] = tuples * measures.delays[number] if measures.delays else 0.0
        for number, (passing, passed) in enumerate(measures.passed):
            found["passing", number] = passing
            found["passed", number] = passed
        counted = [("equal", *each) for each in measures.equal.items()]
        for what, place, (compared, matched) in [
            *counted,
            *(("satisfied", *each) for each in measures.satisfied.items()),
        ]:
            found[what, "compared", place] = compared
            found[what, "matched", place] = matched
            found[what, "periods", place] = 1.0
        found |= self._equations(measures.work)
        self._sums.add(measures.seconds, found)
        self._steps.add(measures.seconds, {"seconds": measures.seconds, **_counted(measures.steps)})

    def document(self) -> dict[str, Any]:
        """What is known, as JSON; what steps did is left out."""
        return {
            "sums": self._sums.document(),
            "sizes": list(self._sizes),
            "timed": self._is_timed,
            "keys": sorted(map(list, self._keys)),
            "pairs": sorted(map(list, self._pairs)),
        }

    def restore(self, document: Mapping[str, Any]) -> None:
        """Takes what an earlier life knew.

        Args:
            document: see `document`.
        """
        self._sums.restore(document["sums"])
        self._sizes = tuple(document["sizes"])
        self._is_timed = bool(document["timed"])
        self._keys = {(key, left, right) for key, left, right in document["keys"]}
        self._pairs = {(left, right) for left, right in document["pairs"]}

    def are_paced(self, streams: Iterable[int]) -> bool:
        """Whether it is known of streams how much event time they go through in a second."""
        return not self._is_timed or all(self._sums.sum(("passed", number)) > 0 for number in streams)

    def order_switched(self) -> None:
        """Forgets what steps did: from now on they are others."""
        self._steps = FadingSums(self._settings)

    def statistics(self) -> JoinStatistics:
        """What is known now.

        Raises:
            ValueError: nothing was measured yet.
        """
        if not self._sizes:
            raise ValueError("nothing was measured yet")
        inputs = range(len(self._sizes))
        seconds = self._sums.sum("seconds")
        rates = tuple(self._sums.sum(("tuples", number)) / seconds for number in inputs)
        return JoinStatistics(
            rates,
            tuple(float(size) for size in self._sizes),
            {key: self._share("equal", key) for key in self._keys if self._seen("equal", key)},
            {pair: self._share("satisfied", pair) for pair in self._pairs if self._seen("satisfied", pair)},
            tuple(self._sums.ratio(("delay", number), ("tuples", number)) for number in inputs),
            seconds / max(1.0, self._sums.sum("cuts")),
            self._costs(),
            tuple(
                self._sums.ratio(("passing", number), ("passed", number))
                if self._sums.sum(("passed", number)) > 0
                else rates[number]
                for number in inputs
            ),
        )

    def steps(self) -> tuple[StepCount, ...]:
        """What each step did in a second of the streams, on average; none where no step was counted."""
        places = sorted({name[1:] for name in self._steps.names() if isinstance(name, tuple)})
        return tuple(
            StepCount(*place, *(self._steps.ratio((count, *place), "seconds") for count in _COUNTS))
            for place in places
        )

    def _seen(self, what: str, place: Hashable) -> bool:
        return self._sums.sum((what, "compared", place)) > 0

    def _share(self, what: str, place: Hashable) -> float:
        matched, compared, periods = (
            self._sums.sum((what, each, place)) for each in ("matched", "compared", "periods")
        )
        # what no pair showed is taken for half a pair, not for impossible, and fades with the pairs
        return min(1.0, max(matched, 0.5 * min(1.0, periods)) / compared)

    def _equations(self, work: tuple[Work, ...]) -> Sums:
        """Normal equations of measured seconds, in units of what costs are believed to be."""
        if not work:
            return {}
        table = np.array([astuple(each) for each in work])
        parts, taken = table[:, :-1] * np.array(astuple(self._believed)), table[:, -1]
        return {
            "parts": parts.T @ parts,
            "taken": parts.T @ taken,
            "whole": np.array([parts.sum(), taken.sum()]),
        }

    def _costs(self) -> UnitCosts:
        """Least squares, drawn to one common factor where measurements say little; a cost never falls below a hundredth of
        what the common factor makes of it."""
        parts, taken = self._sums.array("parts"), self._sums.array("taken")
        whole = self._sums.array("whole")
        if parts is None or taken is None or whole is None or not whole[0]:
            return self._believed
        common = whole[1] / whole[0]
        prior = _PRIOR * float(np.trace(parts)) / len(parts)
        factors = np.linalg.solve(parts + prior * np.eye(len(parts)), taken + prior * common)
        factors = np.maximum(factors, common / 100)
        return UnitCosts(*(factors * np.array(astuple(self._believed))).tolist())


def _counted(steps: tuple[StepCount, ...]) -> Sums:
    found: dict[Hashable, float] = {}
    for step in steps:
        for count, number in zip(_COUNTS, astuple(step)[2:], strict=True):
            place = (count, step.first, step.input)
            found[place] = found.get(place, 0.0) + number
    return found


def work_of_step(
    method: Method, rows: float, looked: float, output: float, searched: float, seconds: float
) -> Work:
    """The work of a step of a probe order, its table left out.

    Args:
        method: of the step.
        rows: that came to it.
        looked: pairs looked at.
        output: rows put out.
        searched: tuples that were searched.
        seconds: of a processor.
    """
    if method is Method.NESTED:
        return Work(nested=looked, outputs=output, seconds=seconds)
    if method is Method.HASH:
        return Work(lookups=rows, pairs=looked, outputs=output, seconds=seconds)
    return Work(probes=search_steps(rows, searched), pairs=looked, outputs=output, seconds=seconds)


def equal_pairs(left: npt.NDArray[np.generic], right: npt.NDArray[np.generic]) -> tuple[float, float]:
    """Pairs compared and pairs equal between two samples of a key's values, NULL left out by the caller."""
    values, counts = np.unique(left, return_counts=True)
    others, other_counts = np.unique(right, return_counts=True)
    _, own, theirs = np.intersect1d(values, others, assume_unique=True, return_indices=True)
    return float(len(left) * len(right)), float(np.dot(counts[own], other_counts[theirs]))
