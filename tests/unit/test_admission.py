"""What views ask of the processors, against what happens to them in the simulator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.control.controller import Controller
from penstock.control.policies.deadlines.admission import ViewLoad, admission
from penstock.control.policies.deadlines.choices import chosen_policy
from penstock.monitor.admission import admission_lines
from penstock.plan.deadlines import DeadlineQuery, DeadlineView, LossConstraint, UserCall, WindowSpan
from penstock.plan.windows import ErrorBound, WindowPlan, Windows
from penstock.spark.lanes.deadlines.estimates import estimated_lines, estimated_loads
from penstock_lab.simulate.deadlines import DrawnCosts, PlayedDeadlines, SimulatedQuery, load, play

#: windows of the view that slides slowest; the queues of the others are longer than any deadline by then
INSTANCES = 60

#: hop in tenths of a second, cost as a share of the hop in twentieths, deadline in hops, k, m
views = st.lists(
    st.tuples(
        st.sampled_from([5, 10, 20]),
        st.integers(1, 30),
        st.sampled_from([1, 2, 4]),
        st.integers(0, 4),
        st.integers(1, 8),
    ),
    min_size=1,
    max_size=6,
)


def _simulated(given_views: list[tuple[int, int, int, int, int]]) -> list[SimulatedQuery]:
    """Views whose windows all take the same, without tuples."""
    made = []
    for number, (hop, share, deadline, k, m) in enumerate(given_views):
        seconds = hop / 10
        count = int(INSTANCES * 20 / hop)
        query = DeadlineQuery(
            f"v{number}", deadline * seconds, LossConstraint(min(k, m), m), incremental=False
        )
        costs = DrawnCosts(np.zeros(1), np.zeros(1), np.full(count, seconds * share / 20))
        created = np.arange(1, count + 1, dtype=np.float64) * seconds
        made.append(SimulatedQuery(query, created, [WindowSpan(0, 0)] * count, costs))
    return made


def _loads(simulated: list[SimulatedQuery]) -> dict[str, ViewLoad]:
    loads = {}
    for each in simulated:
        cost, loss = float(each.costs.maintenance[0]), each.query.constraint
        asked = cost / float(each.created[0])
        least = asked * (1 - loss.factor)
        loads[each.query.name] = ViewLoad(loss.k, loss.m, asked, least, cost, each.query.deadline)
    return loads


def _controlled(policy: str, clock: Callable[[], float]) -> Controller:
    return Controller([chosen_policy(policy, clock)], clock)


def _broken(played: PlayedDeadlines) -> set[str]:
    return {name for name, each in played.queries.items() if each.violations}


@settings(max_examples=examples(80), deadline=None)
@given(views, st.integers(1, 2), st.sampled_from(["planned", "edf", "dbp", "dwcs"]))
def test_promises_that_cannot_be_kept_are_broken_under_every_policy(
    given_views: list[tuple[int, int, int, int, int]], processors: int, policy: str
) -> None:
    simulated = _simulated(given_views)
    loads = _loads(simulated)
    # at the very edge a queue grows longer than the run
    found = admission(((name, each) for name, each in loads.items()), processors)
    edge = admission(loads.items(), processors).least
    played = play(simulated, processors, partial(_controlled, policy))
    broken = _broken(played)
    assert found.asked == pytest.approx(load(simulated, processors) * processors, rel=0.05)
    clear = {
        name
        for name in found.hopeless
        if loads[name].seconds > loads[name].available + 1e-9 or loads[name].least > 1.15
    }
    assert clear <= broken
    if edge > 1.15 * processors:
        surely = admission(
            ((name, _lighter(each)) for name, each in loads.items() if name not in clear), processors
        )
        assert len(broken - clear) >= surely.broken


def _lighter(each: ViewLoad) -> ViewLoad:
    """What it asks for but for what a run of this length hides."""
    return ViewLoad(each.k, each.m, each.asked, each.least / 1.15, each.seconds, each.available)


@settings(max_examples=examples(40), deadline=None)
@given(views, st.integers(1, 2))
def test_nothing_is_said_of_views_that_keep_their_promises(
    given_views: list[tuple[int, int, int, int, int]], processors: int
) -> None:
    simulated = _simulated(given_views)
    loads = _loads(simulated)
    if _broken(play(simulated, processors, partial(_controlled, "planned"))):
        return
    found = admission(((name, _lighter(each)) for name, each in loads.items()), processors)
    assert (found.hopeless, found.broken) == ((), 0)


def test_the_fewest_broken_promises_are_those_of_the_views_that_ask_for_most() -> None:
    loads = {
        "a": ViewLoad(1, 4, 1.0, 0.75, 0.5, 2.0),
        "b": ViewLoad(1, 4, 1.0, 0.75, 0.5, 2.0),
        "c": ViewLoad(0, 4, 0.9, 0.9, 0.5, 2.0),
        "free": ViewLoad(1, 1, 5.0, 0.0, 0.5, 2.0),
    }
    found = admission(loads.items(), 2)
    assert (found.asked, found.least) == pytest.approx((7.9, 2.4))
    assert (found.hopeless, found.broken) == ((), 1)
    assert found.others == ("c", "b", "a")
    assert admission(loads.items(), 3).broken == 0
    assert not admission(loads.items(), 3).others


def _view(**load: float) -> dict[str, object]:
    own = {"k": 1, "m": 8, "asked": 0.9, "least": 0.8, "seconds": 0.5, "available": 1.0, **load}
    return {"standing": {"load": own, "processors": 1}}


def test_the_status_says_what_is_asked_and_which_promises_cannot_be_kept() -> None:
    assert list(admission_lines({"v": _view()})) == [
        "views with a deadline ask for 0.90 of 1 processor, 0.80 if each loses as many windows as its LOSS lets"
    ]
    several = {
        "v": _view(),
        "w": _view(asked=0.3, least=0.3),
        "late": _view(seconds=1.5, asked=0.1, least=0.1),
    }
    told = list(admission_lines({**several, "gone": {**_view(asked=9.0), "dropped": "x"}}))
    assert told == [
        "views with a deadline ask for 1.30 of 1 processor, 1.20 if each loses as many windows as its LOSS lets",
        "LOSS(1, 8) of view late cannot be kept: a window takes 1.50 s of the 1.00 s until its deadline",
        "1 promise at least cannot be kept, of LOSS(1, 8) of view v, LOSS(1, 8) of view w",
    ]
    behind = list(admission_lines({"v": _view(seconds=1.36, available=-81.86, lag=91.86)}))
    assert behind[1:] == [
        "LOSS(1, 8) of view v cannot be kept: the batch is noticed 1 min 31 s after the arrival of its tuples, "
        "later than the deadline of 10 s"
    ]
    one = list(admission_lines({"v": _view(asked=1.4, least=1.2)}))
    assert one[1:] == [
        "LOSS(1, 8) of view v cannot be kept: its windows take 1.20 processors, and they are computed one after the other"
    ]
    without = list(admission_lines({"v": _view(k=8, asked=1.4, least=0.0)}))
    assert without == ["views with a deadline ask for 1.40 of 1 processor"], "it promises nothing"
    assert not list(admission_lines({"v": {"standing": {"load": None, "processors": 1}}, "w": {}}))


def _declared(
    slide: int, deadline: float, loss: LossConstraint, calls: tuple[UserCall, ...] = ()
) -> DeadlineView:
    query = DeadlineQuery("v", deadline, loss)
    plan = WindowPlan("v", "ts", Windows(10_000_000, slide), (), (), ErrorBound(0.1, 0.1))
    return DeadlineView(query, plan, calls, late=False, columns=())


def test_before_a_run_windows_that_are_due_together_are_estimated_to_share_jobs() -> None:
    """A hundred windows a second, two jobs: each takes 4 ms and its share of a job."""
    views = {f"v{number}": _declared(500_000, 2.0, LossConstraint(1, 4)) for number in range(50)}
    loads = estimated_loads(views, 0.07)
    assert sum(each.asked for each in loads.values()) == pytest.approx(100 * 0.004 + 2 * 0.07)
    assert sum(each.least for each in loads.values()) == pytest.approx(0.54 * 0.75)
    assert not estimated_loads({}, 0.07)


def test_the_estimate_names_promises_that_cannot_be_kept() -> None:
    call = UserCall("total", ("x",), pa.int64())
    views = {
        "often": _declared(1_000, 5.0, LossConstraint(0, 8), (call,)),
        "hasty": _declared(10_000_000, 0.05, LossConstraint(1, 8)),
    }
    told, broken = estimated_lines(views, 0.07, 2)
    assert told.startswith("views with a deadline ask for 74.00 of 2 processors, "), (
        "one order of a view runs at a time"
    )
    assert "1000 windows a second and 0.07 s for each job, without the time of your own aggregates" in told
    assert list(broken) == [
        "LOSS(0, 8) of view often cannot be kept: its windows take 73.99 processors, and they are computed one after the other",
        "LOSS(1, 8) of view hasty cannot be kept: a window takes 0.07 s of the 0.05 s until its deadline",
    ]
