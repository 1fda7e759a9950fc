"""The controller: events in, actions out, every decision remembered with its cause."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.control.actions import Action
from penstock.control.events import Event


class Policy(Protocol):
    """Decides about one concern; does no I/O and reads no clock."""

    def handle(self, event: Event) -> list[Action]:
        """Takes an event and returns the actions it gives rise to."""


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """An action, when it was decided and by which event.

    Attributes:
        time: seconds since the epoch, by the controller's clock.
        cause: name of the event.
        action: what was decided.
    """

    time: float
    cause: str
    action: Action

    def fields(self) -> dict[str, object]:
        """A compact JSON form."""
        return {"time": self.time, "cause": self.cause, **self.action.fields()}


class Controller:
    """Hands every event to every policy and keeps the newest decisions.

    Args:
        policies: asked in this order.
        clock: seconds since the epoch.
        remembered: decisions kept for `story`.
    """

    def __init__(
        self, policies: Sequence[Policy], clock: Callable[[], float] = time.time, remembered: int = 1000
    ) -> None:
        self._policies = tuple(policies)
        self._clock = clock
        self._decisions: deque[Decision] = deque(maxlen=remembered)

    def handle(self, event: Event) -> list[Action]:
        """Takes an event and returns the actions for the shell to carry out."""
        actions = [action for policy in self._policies for action in policy.handle(event)]
        now = self._clock()
        self._decisions.extend(Decision(now, type(event).__name__, action) for action in actions)
        return actions

    def story(self, stream: str | None = None) -> list[Decision]:
        """The decisions remembered, oldest first; of one stream where it is named."""
        return [d for d in self._decisions if stream is None or d.action.stream == stream]
