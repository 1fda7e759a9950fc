"""Deadlines on random queries: nothing unaccounted, no miss of a load that fits, allowances against brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from deadline_cases import played, simulated
from penstock.control.policies.deadlines.allowance import CurrentConstraint, LossHistory
from penstock.control.policies.deadlines.disciplines import BEST_EFFORT, DBP, DWCS, EDF, PAPER, PREDICTIVE
from penstock.control.policies.deadlines.feedback import PAPER_FEEDBACK
from penstock.control.policies.deadlines.planning import PlannedDiscipline
from penstock.control.policies.deadlines.policy import DeadlineSettings
from penstock.plan.deadlines import LossConstraint
from penstock_lab.simulate.deadlines import Outcome, SimulatedQuery, violations

DISCIPLINES = [BEST_EFFORT, PREDICTIVE, EDF, DBP, DWCS, PAPER, PlannedDiscipline()]
CONSTRAINTS = st.integers(1, 6).flatmap(lambda m: st.builds(LossConstraint, st.integers(0, m), st.just(m)))


@st.composite
def random_queries(draw: st.DrawFn) -> list[SimulatedQuery]:
    seconds = draw(st.integers(3, 20))
    return [
        simulated(
            f"q{number}",
            draw(st.lists(st.integers(0, 6), min_size=seconds, max_size=seconds)),
            draw(st.integers(1, 5)),
            draw(st.floats(0.3, 4.0)),
            draw(st.sampled_from([(0, 1), (1, 1), (1, 4), (2, 5)])),
            unit=draw(st.floats(0.01, 0.4)),
            expired=draw(st.floats(0.0, 0.2)),
            maintenance=draw(st.floats(0.0, 0.6)),
            incremental=draw(st.booleans()),
            first=1,
        )
        for number in range(draw(st.integers(1, 4)))
    ]


@settings(deadline=None)
@given(random_queries(), st.sampled_from(DISCIPLINES), st.integers(1, 3), st.booleans())
def test_every_instance_has_one_outcome(queries, discipline, processors, feedback) -> None:  # type: ignore[no-untyped-def]
    chosen = DeadlineSettings(feedback=PAPER_FEEDBACK) if feedback else None
    result, policy, _ = played(queries, discipline, chosen, processors)
    for name, each in result.queries.items():
        told = policy.standing(name).outcomes
        assert told.created == len(each.outcomes) == told.released + told.shed + told.missed + told.failed
        counts = [int((each.outcomes == outcome).sum()) for outcome in Outcome]
        assert counts == [0, told.released, told.shed, told.missed]
        assert policy.standing(name).violations == each.violations
        assert discipline.predicts or told.shed == 0


@settings(deadline=None)
@given(random_queries(), st.sampled_from(DISCIPLINES))
def test_a_load_that_fits_is_never_lost(queries, discipline) -> None:  # type: ignore[no-untyped-def]
    """All instances of a second take less than it, and less than each deadline, whatever the order: none is lost. Predictions
    begin with nothing and are up to the averages that they are."""
    most = max(
        sum(each.step_seconds()[number] for each in queries) for number in range(len(queries[0].created))
    )
    scale = 0.7 * min(1.0, *(each.query.deadline for each in queries)) / max(most, 1e-9)
    fitting = [
        SimulatedQuery(
            each.query,
            each.created,
            each.spans,
            type(each.costs)(
                each.costs.new * scale, each.costs.expired * scale, each.costs.maintenance * scale
            ),
        )
        for each in queries
    ]
    result, _, _ = played(fitting, discipline, DeadlineSettings(feedback=PAPER_FEEDBACK))
    assert result.satisfaction == 1


def consecutive_losses(lost: list[bool], constraint: LossConstraint) -> int:
    """Losses from now on until the last m hold too many, by trying."""
    for losses in range(constraint.m + 1):
        if sum([*lost, *([True] * losses)][-constraint.m :]) > constraint.k:
            return losses
    return constraint.m + 1


@given(CONSTRAINTS, st.lists(st.booleans(), min_size=1, max_size=40))
def test_history_counts_as_brute_force_does(constraint: LossConstraint, lost: list[bool]) -> None:
    history = LossHistory(constraint)
    expected = 0
    for number, each in enumerate(lost):
        violated = sum(lost[max(0, number - constraint.m + 1) : number + 1]) > constraint.k
        expected += violated
        assert history.add(each) == violated
        before = [False] * constraint.m + lost[: number + 1]
        beyond = sum(before[len(before) - constraint.m + 1 :]) > constraint.k
        assert history.distance() == (0 if beyond else max(1, consecutive_losses(before, constraint)))
    assert history.violations == expected
    assert violations(np.array(lost, bool), constraint) == expected


@given(CONSTRAINTS, st.lists(st.booleans(), min_size=1, max_size=60))
def test_a_mark_is_a_violation(constraint: LossConstraint, lost: list[bool]) -> None:
    """(k', m') stays within what it stands for; a query that is marked has lost more than k of m consecutive instances."""
    current, history = CurrentConstraint.of(constraint), LossHistory(constraint)
    for each in lost:
        violated = history.add(each)
        marked = current.violating
        current = current.missed(constraint) if each else current.satisfied(constraint)
        assert 0 <= current.k <= min(current.m, constraint.k)
        assert current.m >= 1
        assert not current.violating or marked or violated
        assert not current.violating or each, "a satisfied instance clears the mark"


@given(CONSTRAINTS, st.integers(1, 8))
def test_within_the_allowance_nothing_is_marked(constraint: LossConstraint, windows: int) -> None:
    """k losses at the beginning of each window of m instances, the most there may be."""
    current = CurrentConstraint.of(constraint)
    for each in ([True] * constraint.k + [False] * (constraint.m - constraint.k)) * windows:
        current = current.missed(constraint) if each else current.satisfied(constraint)
        assert not current.violating
    assert current == CurrentConstraint.of(constraint)
