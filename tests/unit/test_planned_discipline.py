"""What a plan keeps and sheds of the windows that wait, and what it tries again."""

from __future__ import annotations

import numpy as np
import pytest

from deadline_cases import KNOWN, Shell, played, simulated
from penstock.control.actions import (
    StartOrder,
)
from penstock.control.events import (
    DeadlineBound,
    OrderEnded,
    OrderFailed,
    ProcessorsIdle,
)
from penstock.control.policies.deadlines.disciplines import (
    PAPER,
    PREDICTIVE,
)
from penstock.control.policies.deadlines.planning import PlannedDiscipline
from penstock.control.policies.deadlines.policy import DeadlineSettings
from penstock.control.policies.deadlines.prediction import (
    UnitCosts,
)
from penstock.plan.deadlines import DeadlineQuery, LossConstraint
from penstock_lab.simulate.deadlines import Outcome


def test_planned_runs_as_many_as_can_be() -> None:
    """All released at once and worked out afresh: Moore and Hodgson's optimum, by trying all subsets."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        sizes = rng.integers(1, 9, 7)
        deadlines = rng.integers(1, 25, 7).astype(float)
        queries = [
            simulated(f"q{n}", [int(size)], 1, float(deadline), incremental=False)
            for n, (size, deadline) in enumerate(zip(sizes, deadlines, strict=True))
        ]
        most = 0
        for subset in range(2**7):
            own = sorted(
                (d, s) for n, (s, d) in enumerate(zip(sizes, deadlines, strict=True)) if subset >> n & 1
            )
            ends = np.cumsum([s for _, s in own])
            if all(end <= d for end, (d, _) in zip(ends, own, strict=True)):
                most = max(most, len(own))
        result, _, _ = played(queries, PlannedDiscipline(), KNOWN)
        assert result.released == most


def test_planned_protects_what_has_no_loss_left() -> None:
    shell = Shell(PlannedDiscipline(), KNOWN, spare=(1, 4), tight=(1, 4))
    for name in ("spare", "tight"):
        shell.create(0, 0, 1, name)
        shell.tell(ProcessorsIdle(1))
        ended = OrderEnded(name, 1, 0, 1.0, 1.0, 0.0) if name == "spare" else OrderFailed(name, 1, 0, "boom")
        shell.tell(ended, shell.now + 1)
    for name in ("spare", "tight"):
        shell.create(1, 10, 12, name, at=4.0)
    told = shell.tell(ProcessorsIdle(1))
    assert [each.stream for each in told if isinstance(each, StartOrder)] == ["tight"]


def test_planned_counts_what_runs_already() -> None:
    """One of two processors is busy: of two instances that would both be in time on two, the one with no loss left is run."""
    shell = Shell(PlannedDiscipline(), KNOWN, sooner=(1, 4))
    for name, deadline, constraint in (("long", 9.0, (1, 1)), ("later", 3.5, (0, 1))):
        shell.tell(DeadlineBound(name, 1, DeadlineQuery(name, deadline, LossConstraint(*constraint))))
    shell.create(0, 0, 8, "long")
    (order,) = shell.tell(ProcessorsIdle(2))
    assert order.stream == "long"
    for name in ("sooner", "later"):
        shell.create(0, 0, 2, name)
    (order,) = shell.tell(ProcessorsIdle(1))
    assert order.stream == "later"


@pytest.mark.parametrize("often", [True, False])
def test_planned_leaves_room_for_what_is_expected(often: bool) -> None:
    """The longer of two instances fits, but not with those of another query, without a loss to spare, that are still to come."""
    shell = Shell(PlannedDiscipline(), DeadlineSettings(believed=UnitCosts(new=0.1)), large=(1, 4))
    for name, deadline, constraint in (("often", 1.0, (0, 1)), ("small", 3.2, (1, 4))):
        query = DeadlineQuery(name, deadline, LossConstraint(*constraint), incremental=False)
        shell.tell(DeadlineBound(name, 1, query))
    for number in range(2 * often):
        shell.create(number, 5 * number, 5 * number + 5, "often", at=float(number))
        shell.tell(ProcessorsIdle(1))
        shell.tell(OrderEnded("often", 1, number, 0.5, 0.5, 0.0), number + 0.5)
    shell.create(0, 0, 20, "large", at=1.5)
    shell.create(0, 0, 5, "small", at=1.5)
    (order,) = shell.tell(ProcessorsIdle(1))
    assert order.stream == ("small" if often else "large")


def test_planned_sheds_nothing_that_another_idle_processor_can_try() -> None:
    """Both instances fit, though with less than the margin; two processors are idle."""
    shell = Shell(PlannedDiscipline(), KNOWN, one=(1, 4), other=(1, 4))
    for name, begun in (("one", 0.0), ("other", 10.0)):
        for number, took in enumerate((0.8, 1.2)):
            shell.create(number, 10 * number, 10 * number + 1, name, at=begun + 2 * number)
            shell.tell(ProcessorsIdle(1))
            shell.tell(OrderEnded(name, 1, number, took, took, 0.0), shell.now + took)
    for name in ("one", "other"):
        shell.create(2, 1_000, 1_002, name, at=30.0)
    seconds = max(2 * shell.policy.standing(name).costs.new for name in ("one", "other"))
    told = shell.tell(ProcessorsIdle(2), 33.0 - 1.02 * seconds)
    assert [type(each) for each in told] == [StartOrder, StartOrder]
    assert all("less than the margin" in each.reason for each in told)


#: losses are taken where they must be, and not before
LATE = PlannedDiscipline(early_from=float("inf"))


def test_planned_takes_losses_before_they_are_needed() -> None:
    """Queries ask for 1.15 processors, and for 1.7 in a burst that nobody could know of: what waits before it decides."""
    counts = [23] * 30 + [34] * 6 + [20] * 10
    queries = [simulated(f"q{n}", counts, 1, 3.0, (1, 4), unit=0.0125, incremental=False) for n in range(4)]
    early, late = (played(queries, discipline, KNOWN)[0] for discipline in (PlannedDiscipline(), LATE))
    assert early.violations < late.violations
    assert early.released >= 0.95 * late.released


def test_planned_takes_no_losses_early_where_all_are_allowed() -> None:
    """Without LOSS none is used up: none is taken before it must be."""
    queries = [
        simulated(f"q{n}", [23] * 30, 1, 3.0, (1, 1), unit=0.0125, incremental=False) for n in range(4)
    ]
    found = [played(queries, each, KNOWN)[0].queries for each in (PlannedDiscipline(), LATE)]
    for name, each in found[0].items():
        assert each.outcomes.tolist() == found[1][name].outcomes.tolist()


def test_planned_takes_no_loss_for_what_waits_for_one_long_order() -> None:
    """Beside orders of 1 s a cheap query's windows wait for more than half of their second, however few there are."""
    cheap = simulated("cheap", [1] * 40, 1, 1.2, (1, 4), unit=0.1, incremental=False)
    long = simulated("long", [1] * 40, 1, 12.0, (1, 8), unit=1.0, incremental=False)
    found = [played([cheap, long], each, KNOWN)[0].queries["cheap"] for each in (PlannedDiscipline(), LATE)]
    assert found[0].satisfaction >= found[1].satisfaction


def test_planned_measures_again_what_it_has_shed_for_long() -> None:
    query = simulated("q", [1] * 12, 1, 1.0, unit=0.5)
    wrong = DeadlineSettings(believed=UnitCosts(new=5.0))
    result, _, _ = played([query], PlannedDiscipline(), wrong)
    assert result.queries["q"].outcomes.tolist() == [Outcome.RELEASED] * 12
    shed, _, _ = played([query], PREDICTIVE, wrong)
    assert shed.released == 0, "without it, and without feedback, predictions that shed everything stay"


@pytest.mark.parametrize("processors", [2, 3])
def test_processors_share_the_queries(processors: int) -> None:
    queries = [simulated(f"q{n}", [1] * 9, 1, 1.0, unit=0.9, incremental=False) for n in range(processors)]
    for discipline in (PAPER, PlannedDiscipline()):
        result, _, _ = played(queries, discipline, KNOWN, processors)
        assert result.satisfaction == 1
        fewer, _, _ = played(queries, discipline, KNOWN, processors - 1)
        assert fewer.satisfaction == pytest.approx(1 - 1 / processors)


def test_planned_catches_up() -> None:
    """After a burst every instance takes longer than its deadline, from the last processed one and afresh: worked out to its end
    though late, it brings the query back."""
    counts = [1] * 6 + [9] * 3 + [1] * 40
    query = simulated("q", counts, 20, 2.0, unit=0.25, expired=0.25, first=1)
    known = DeadlineSettings(believed=UnitCosts(new=0.25, expired=0.25))
    result, _, controller = played([query], PlannedDiscipline(), known)
    late = [
        each.action
        for each in controller.story()
        if isinstance(each.action, StartOrder) and not each.action.firm
    ]
    assert 0 < len(late) < 12
    assert result.queries["q"].outcomes[-8:].tolist() == [Outcome.RELEASED] * 8
    lost, _, _ = played([query], PREDICTIVE, known)
    assert lost.queries["q"].outcomes[-8:].tolist() == [Outcome.SHED] * 8
