"""The deadline policies that can be chosen by name: ours, the paper's and those it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.control.policies.deadlines.disciplines import (
    BEST_EFFORT,
    DBP,
    DWCS,
    EDF,
    PAPER,
    Discipline,
)
from penstock.control.policies.deadlines.feedback import PAPER_FEEDBACK
from penstock.control.policies.deadlines.planning import PlannedDiscipline
from penstock.control.policies.deadlines.policy import DeadlinePolicy, DeadlineSettings
from penstock.control.policies.deadlines.prediction import PredictionSettings

_OURS = DeadlineSettings()
#: an abandoned order counts for what it took: the paper has rho instead
_PAPER = DeadlineSettings(feedback=PAPER_FEEDBACK, prediction=PredictionSettings(bound_factor=1.0))

_CHOICES: Mapping[str, tuple[Discipline, DeadlineSettings]] = {
    # as printed, one order that stalls would shed every later window of its query
    "paper": (replace(PAPER, trial_share=0.05, idle_share=0.5), _PAPER),
    "edf": (EDF, _OURS),
    "dbp": (DBP, _OURS),
    "dwcs": (DWCS, _OURS),
    "best-effort": (BEST_EFFORT, _OURS),
}


def chosen_policy(name: str, clock: Callable[[], float]) -> DeadlinePolicy:
    """A deadline policy.

    Args:
        name: of the setting `deadline_policy`.
        clock: seconds.

    Raises:
        KeyError: there is none of that name.
    """
    if name == "planned":
        return DeadlinePolicy(PlannedDiscipline(), _OURS, clock)
    discipline, settings = _CHOICES[name]
    return DeadlinePolicy(discipline, settings, clock)
