"""How many tuples of a window are worth their time where its exact answer would be late."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from penstock.control.policies.deadlines.prediction import UnitCosts
from penstock.plan.deadlines import WindowWork

#: fewer tuples are not worth an answer, more not the time
LEAST_SAMPLE, MOST_SAMPLE = 1_000, 50_000
#: a sample takes at most so much of the time left, and of what the exact answer, or a larger sample, is predicted to take
_OF_TIME, _OF_WHOLE = 0.5, 0.5
#: of more of the tuples of a window the exact answer is as good
_OF_TUPLES = 0.5


@dataclass(frozen=True, slots=True)
class SampleCost:
    """A sample in the place of an instance.

    Attributes:
        size: tuples that are drawn.
        seconds: predicted.
        own: of these, what the order takes itself, and not the job that it shares with others.
        is_known: samples were measured lately; else exact answers say what it may take.
    """

    size: int
    seconds: float
    own: float
    is_known: bool

    @property
    def work(self) -> WindowWork:
        """What the order is predicted by."""
        return sample_work(self.size)


def sample_work(size: int) -> WindowWork:
    """What an order of a sample is predicted by: nothing is carried."""
    return WindowWork(size, 0, carried=False)


def sample_size(costs: UnitCosts, tuples: int, left: float, whole: float) -> int:
    """The tuples of the largest sample that is worth its time; 0 where none is.

    Args:
        costs: of an order of a sample.
        tuples: of the window.
        left: seconds until its deadline.
        whole: predicted seconds of the exact answer, or of a larger sample.
    """
    seconds = min(_OF_TIME * left, _OF_WHOLE * whole) - costs.maintenance
    affordable = seconds / costs.new if costs.new else inf if seconds > 0 else 0.0
    size = int(min(affordable, _OF_TUPLES * tuples, MOST_SAMPLE))
    return size if size >= LEAST_SAMPLE else 0
