"""What all fits is planned once: the same orders are begun as if the discipline were asked before each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from penstock.control.actions import StartOrder
from penstock.control.events import DeadlineBound, InstanceCreated, OrderEnded, ProcessorsIdle
from penstock.control.policies.deadlines.disciplines import Backlog, Choice, Processor
from penstock.control.policies.deadlines.planning import PlannedDiscipline
from penstock.control.policies.deadlines.policy import DeadlinePolicy, DeadlineSettings
from penstock.plan.deadlines import DeadlineQuery, WindowSpan

QUERIES, ROUNDS, OWN, BESIDE = 20, 8, 0.004, 0.06


@dataclass
class _Counted:
    """The discipline, and how often it is asked; maybe without what it says of the next orders."""

    goes_on: bool
    planned: PlannedDiscipline = field(default_factory=PlannedDiscipline)
    asked: int = 0
    name: str = "planned"
    predicts: bool = True

    def choose(
        self, backlogs: Sequence[Backlog], now: float, processors: Sequence[Processor], together: float
    ) -> Choice:
        self.asked += 1
        found = self.planned.choose(backlogs, now, processors, together)
        return found if self.goes_on else replace(found, behind=())


def _begun(discipline: _Counted, processors: int, windows: int) -> list[tuple[str, int, int]]:
    """Stream, number and lot of the orders of some rounds in which so many windows of each query are due together."""
    now = [100.0]
    rng = np.random.default_rng(processors)
    policy = DeadlinePolicy(discipline, DeadlineSettings(), lambda: now[0])
    deadlines = rng.choice([1.0, 1.5, 2.0], QUERIES)
    for number, deadline in enumerate(deadlines.tolist()):
        policy.handle(DeadlineBound(f"v{number}", 0, DeadlineQuery(f"v{number}", deadline), "alike"))
    begun: list[tuple[str, int, int]] = []
    for number in range(ROUNDS):
        for window in range(number * windows, (number + 1) * windows):
            span = WindowSpan(window * 100, window * 100 + 1_000)
            for query in range(QUERIES):
                policy.handle(InstanceCreated(f"v{query}", 0, window, now[0], span, now[0] + 0.1))
            now[0] += 0.1
        while actions := policy.handle(ProcessorsIdle(processors, 0.25)):
            lots: dict[int, list[StartOrder]] = {}
            for action in actions:
                assert isinstance(action, StartOrder)
                lots.setdefault(action.lot, []).append(action)
                begun.append((action.stream, action.number, action.lot))
            now[0] += BESIDE + OWN * max(map(len, lots.values()))
            for own in lots.values():
                beside = BESIDE / len(own)
                for order in own:
                    policy.handle(
                        OrderEnded(
                            order.stream,
                            0,
                            order.number,
                            OWN + beside,
                            0.001,
                            0.0,
                            order.work,
                            beside_seconds=beside,
                            together=len(own),
                        )
                    )
        now[0] = 101.0 + number
    return begun


@pytest.mark.parametrize("processors", [1, 2])
@pytest.mark.parametrize("windows", [1, 2])
def test_the_same_orders_are_begun_by_fewer_questions(processors: int, windows: int) -> None:
    ahead, each = _Counted(goes_on=True), _Counted(goes_on=False)
    begun = _begun(ahead, processors, windows)
    assert begun == _begun(each, processors, windows)
    assert len(begun) == QUERIES * ROUNDS * windows
    assert ahead.asked < each.asked / 3
