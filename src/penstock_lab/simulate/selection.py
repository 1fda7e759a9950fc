"""Shared selection in virtual time: a stream of tuples, the controller, the running arrangement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.control.actions import SwapSequence
from penstock.control.controller import Controller, Decision
from penstock.control.events import SelectionsBound, StatisticsReported
from penstock.control.policies.rearrangement import RearrangementPolicy, RearrangementSettings
from penstock.kernels.asc import Codes
from penstock.operators.selection.asc import AscIndex
from penstock.plan.arrangement import Arrangement

_STREAM = "tuples"


@dataclass(frozen=True, slots=True, eq=False)
class AdaptiveRun:
    """What an adaptive run cost.

    Attributes:
        counts: int32[tuples], ASC evaluations of each tuple.
        micro_arrows: micro-arrows followed.
        dropped: tuples that satisfied no query.
        decisions: the controller's decisions; their time is the number of tuples seen before.
        arrangement: the one running at the end.
    """

    counts: npt.NDArray[np.int32]
    micro_arrows: int
    dropped: int
    decisions: tuple[Decision, ...]
    arrangement: Arrangement

    @property
    def evaluations(self) -> int:
        """ASC evaluations of all tuples: the paper's cost."""
        return int(self.counts.sum(dtype=np.int64))

    @property
    def micro_ratio(self) -> float:
        """Micro-arrows followed over arrows followed (xi); 0 where there were none."""
        arrows = self.evaluations - int(np.count_nonzero(self.counts))
        return self.micro_arrows / arrows if arrows else 0.0

    @property
    def swaps(self) -> tuple[int, ...]:
        """Number of tuples seen before each swap of the sequence."""
        return tuple(int(d.time) for d in self.decisions if isinstance(d.action, SwapSequence))


def run_adaptive(
    index: AscIndex,
    codes: Codes,
    settings: RearrangementSettings,
    batch: int = 1000,
    initial: Arrangement | None = None,
) -> AdaptiveRun:
    """Runs a stream through the executor and the controller, batch by batch; every tuple is sampled.

    Args:
        index: the ASCs.
        codes: uint32[n, tuples], region codes in order of arrival.
        settings: of the rearrangement.
        batch: tuples between two reports; a swap takes effect with the next batch.
        initial: the arrangement that runs first; the given order where None.
    """
    seen = 0
    controller = Controller([RearrangementPolicy(settings)], clock=lambda: float(seen), remembered=1 << 20)
    arrangement = initial or index.given_order()
    controller.handle(SelectionsBound(_STREAM, 0, index, arrangement))
    counts: list[npt.NDArray[np.int32]] = []
    micro_arrows = dropped = 0
    for begin in range(0, codes.shape[1], batch):
        tuples = np.ascontiguousarray(codes[:, begin : begin + batch])
        found = index.evaluate(tuples, arrangement)
        counts.append(found.counts)
        micro_arrows += found.micro_arrows
        dropped += found.dropped
        seen += tuples.shape[1]
        report = StatisticsReported(_STREAM, 0, tuples.shape[1], tuples)
        for action in controller.handle(report):
            if isinstance(action, SwapSequence):
                arrangement = action.arrangement
    return AdaptiveRun(np.concatenate(counts), micro_arrows, dropped, tuple(controller.story()), arrangement)
