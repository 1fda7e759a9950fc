"""How the cells of a cut are worked by tasks: one each, or several where one would take much longer than the rest.

Hot keys lie in one cell. Its tasks join a stripe of the new tuples each, beside the same runs: no data move, and each row is
told once however a cell is divided, so the cut does not say it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from penstock.operators.joins.tuples import InputRuns, Stripe
from penstock.spark.lanes.joins.grid import KeptRuns

#: a cell is divided that is predicted to take so many times what each core has to do ...
_HEAVY = 1.5
#: ... into tasks of about this part of that: cores that take them in turn end within as much of each other (Graham,
#: "Bounds for certain multiprocessing anomalies", 1966) ...
_PART = 0.5
#: ... which take at least so long, processor seconds: a task costs some 15 ms whatever it does
_LEAST_SECONDS = 0.1
#: a cut whose longest cell is predicted to take no longer, processor seconds, may wait for others and be waited for ...
_LIGHT_SECONDS = 0.1
#: ... and one of no more tuples while nothing is known
_FEW_TUPLES = 1_000
#: what cuts before the last one count for
_FADING = 0.5

#: of a cut's figures, see `tasks_told`
TASKS = "tasks"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Place:
    """What a task of a cut works on.

    Attributes:
        number: of the task.
        cell: number of the cell.
        stripe: of its new tuples.
    """

    number: int
    cell: int
    stripe: Stripe


class CellBalance:
    """Divides cells by what their tuples have cost so far.

    Args:
        cells: how many the grid has.
        cores: how many tasks run at once.
    """

    def __init__(self, cells: int, cores: int) -> None:
        self._cores = cores
        #: of each cell, new tuples and what searching with them took, and what its tables took in the last cut, processor seconds
        self._tuples, self._seconds, self._building = np.zeros(cells), np.zeros(cells), np.zeros(cells)

    def places(self, tuples: Floats) -> list[Place]:
        """The tasks of a cut; the first ones have the numbers of their cells.

        Args:
            tuples: float64[cells], new ones.
        """
        seconds = self._predicted(tuples)
        whole = seconds + self._building
        fair = whole.sum() / self._cores
        # each task of a cell makes the tables for itself: there are as many as search for longer than that takes
        stripes = [
            min(ceil(own / (_PART * fair)), int(own / max(_LEAST_SECONDS, built)))
            if own + built > _HEAVY * fair
            else 1
            for own, built in zip(seconds.tolist(), self._building.tolist(), strict=True)
        ]
        places = [Place(cell, cell, Stripe(0, max(1, of))) for cell, of in enumerate(stripes)]
        for cell, of in enumerate(stripes):
            for number in range(1, of):
                places.append(Place(len(places), cell, Stripe(number, of)))
        return places

    def is_light(self, tuples: Floats) -> bool:
        """Whether a cut takes little more than any job: its tuples, float64[cells], are few for what they have cost so far."""
        if not self._tuples.any():
            return bool(tuples.sum() <= _FEW_TUPLES)
        return bool((self._predicted(tuples) + self._building).max() <= _LIGHT_SECONDS)

    def measured(
        self, tuples: Floats, places: Sequence[Place], seconds: Sequence[float], building: Sequence[float]
    ) -> None:
        """Takes in a cut.

        Args:
            tuples: float64[cells], new ones.
            places: of its tasks.
            seconds: processor time of each.
            building: of that, the time in which it made tables.
        """
        if not tuples.any():
            return
        cells = [each.cell for each in places]
        took = np.bincount(cells, np.subtract(seconds, building), len(tuples))
        self._building = np.zeros(len(tuples))
        np.maximum.at(self._building, cells, building)
        self._tuples = _FADING * self._tuples + tuples
        self._seconds = _FADING * self._seconds + took

    def _predicted(self, tuples: Floats) -> Floats:
        """Processor seconds of each cell; one that had no tuples yet is taken to be like all others."""
        known = self._tuples > 0
        if not known.any():
            return np.zeros(len(tuples))
        common = self._seconds.sum() / self._tuples.sum()
        costs = np.divide(self._seconds, self._tuples, out=np.full(len(tuples), common), where=known)
        found: Floats = costs * tuples
        return found


def new_tuples(new: Mapping[KeptRuns, InputRuns], cells: int) -> Floats:
    """How many new tuples lie in each cell, float64[cells], by the directories of their runs; those of other entries in these count too."""
    found = np.zeros(cells)
    # an input that is searched by two keys has all of its tuples twice
    for runs in {each.input: own for each, own in new.items()}.values():
        for run in (each.run for each in runs.new):
            for part, known in run.parts.items():
                found[list(run.plan.router.cells_of(part))] += known.rows
    return found


def tasks_told(seconds: Sequence[float]) -> dict[str, float]:
    """What is told of the tasks of a cut: how many, the processor time of all and of the longest one, seconds."""
    return {
        "count": len(seconds),
        "seconds": round(sum(seconds), 3),
        "longest_seconds": round(max(seconds, default=0.0), 3),
    }
