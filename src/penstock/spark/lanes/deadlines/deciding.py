"""The policy of the deadline lane by the machine's clock."""

from __future__ import annotations

import time

from penstock.control.actions import (
    AdjustPrediction,
    GiveUpInstance,
    RaiseOverload,
    ReportViolation,
    StartOrder,
)
from penstock.control.events import Event
from penstock.control.policies.deadlines.choices import chosen_policy
from penstock.spark.storage.events import EventLog

#: a clock that goes back by more than this was set
_SET_BACK_SECONDS = 1.0


class Decisions:
    """Asks the policy, and records what it says of its own accord; the lane's thread owns it.

    Args:
        policy: name of the setting `deadline_policy`.
        lane: the lane's name.
        events: the run's.

    Attributes:
        now: when what the policy is told has happened, seconds since the epoch.
        policy: the policy.
    """

    def __init__(self, policy: str, lane: str, events: EventLog) -> None:
        self.now = self._heard = time.time()
        self.policy = chosen_policy(policy, lambda: self.now)
        self._lane = lane
        self._events = events

    def pass_time(self, ahead: float = 0.0) -> None:
        """Lets it be now, or so many seconds later: the clock goes back only where the machine's was set back."""
        now = time.time()
        if now > self._heard or now < self._heard - _SET_BACK_SECONDS:
            self._heard = now
        self.now = self._heard + ahead

    def handle(self, event: Event) -> list[StartOrder | GiveUpInstance]:
        """Tells the policy what has happened, and returns what is to be done."""
        found: list[StartOrder | GiveUpInstance] = []
        for each in self.policy.handle(event):
            if isinstance(each, StartOrder | GiveUpInstance):
                found.append(each)
            else:
                self._events.record(
                    {
                        ReportViolation: "losses_exceeded",
                        AdjustPrediction: "prediction_adjusted",
                        RaiseOverload: "overloaded",
                    }[type(each)],
                    lane=self._lane,
                    view=each.stream,
                    reason=each.reason,
                    figures=dict(each.figures),
                )
        return found
