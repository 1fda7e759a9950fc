"""Of a window with many groups a random sample is judged: the same wherever it is taken, and no better or worse than all."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from penstock.operators.routing.routers import HashRouter, hashes_of
from penstock.operators.windows.aggregates import Parts, lift_values
from penstock.operators.windows.operator import PaneBatch, WindowOperator
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.sampling import MOST_GROUPS, GroupSample, halvings_of
from penstock.operators.windows.shard import (
    PARTIALS,
    VALUES,
    Envelope,
    LogRecord,
    OperatorPlan,
    Shard,
    WindowProgram,
)
from penstock.operators.windows.slack import SlackPolicy, WindowOutcome
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from window_cases import StoredPanes, store, stream_of

COUNT = Aggregate("count", None, pa.int64())
MEDIAN = Aggregate("percentile", "v", pa.float64(), 0.5)
BOUND = ErrorBound(0.05, 0.05)


def view(*aggregates: Aggregate, size: int = 10, slide: int = 10) -> WindowPlan:
    return WindowPlan("v", "t", Windows(size, slide), (("k", pa.string()),), aggregates or (COUNT,), BOUND)


def named(groups: npt.NDArray[np.int64], naming: int = 0) -> pa.Array:
    return pa.array([f"{naming}/{group}" for group in groups])


@dataclass
class Listener(SlackPolicy):
    """A policy that keeps the newest of what it heard."""

    slack: int = 0
    heard: dict[int, WindowOutcome] = field(default_factory=dict)
    final: set[int] = field(default_factory=set)

    def known(self, outcome: WindowOutcome, age: int, *, final: bool = False) -> None:  # noqa: ARG002
        self.heard[outcome.end] = outcome
        if final:
            self.final.add(outcome.end)


def batch(operator: WindowOperator, times: npt.NDArray[np.int64], keys: pa.Array, newest: int) -> PaneBatch:
    panes = times // operator.pane * operator.pane
    tuples = pa.table({PANE: panes, "k": keys, "v": (times % 7).astype(np.float64)})
    values = {name: lift_values(tuples, [PANE, "k"], name) for name in operator.parts.values}
    return PaneBatch(operator.parts.lift(tuples, [PANE, "k"]), values, newest, np.maximum(newest - times, 0))


def outcomes(groups: int, late: npt.NDArray[np.bool_], naming: int, *aggregates: Aggregate) -> Listener:
    """What a policy hears of a window [0, 10) of some groups of which some get another tuple after its answer."""
    listener = Listener()
    operator = WindowOperator([(view(*aggregates), listener)], gamma=0, least_horizon=20)
    every = np.arange(groups)
    operator.process(batch(operator, np.full(groups, 1), named(every, naming), 10))
    own = every[late]
    operator.process(batch(operator, np.full(len(own), 8), named(own, naming), 20))
    operator.process(batch(operator, np.array([100]), named(every[:1], naming), 100))
    return listener


def test_a_sample_is_the_same_however_the_groups_came() -> None:
    rng = np.random.default_rng(4)
    groups = rng.integers(0, 3_000, 20_000)
    table = pa.table({"k": named(groups), "row": np.arange(len(groups))})
    whole, pieces = GroupSample(["k"]), GroupSample(["k"])
    whole.take_in(table, {"v": table}, 1)
    places = np.sort(rng.integers(0, len(groups), 30))
    for first, last in zip([0, *places], [*places, len(groups)], strict=True):
        piece = table.slice(first, last - first)
        pieces.take_in(piece, {"v": piece}, pieces.tables + 1)
    assert pieces.halvings == whole.halvings
    for count in (whole.halvings, whole.halvings + 2):
        found, values = whole.rows(count)
        again, values_again = pieces.rows(count)
        assert again.column("row").to_pylist() == found.column("row").to_pylist()
        assert values["v"] == found
        assert values_again["v"].to_pydict() == again.to_pydict()
    smaller, larger = (set(whole.rows(whole.halvings + more)[0].column("k").to_pylist()) for more in (1, 0))
    assert smaller < larger, "samples are nested"


@pytest.mark.parametrize("groups", [1, 256, 257, 1_000, 10_000, 300_000])
def test_a_sample_has_half_as_many_groups_as_may_be_or_more(groups: int) -> None:
    hashes = hashes_of(pa.table({"k": np.repeat(np.arange(groups), 2)}), ["k"])
    count = halvings_of(hashes)
    left = len(np.unique(hashes[hashes <= np.uint64((2**64 - 1) >> count)]))
    assert left <= MOST_GROUPS
    assert left >= min(groups, MOST_GROUPS // 3), "256 are exceeded by twice as many, give or take"
    assert (count == 0) == (groups <= MOST_GROUPS)


def test_every_window_of_many_groups_is_heard_whatever_their_number() -> None:
    """The number of groups changes by factors from window to window."""
    listener = Listener()
    operator = WindowOperator([(view(size=20), listener)], gamma=0, least_horizon=20)
    numbers = [20, 3_000, 20, 400, 12_000, 3, 3_000, 50]
    for place, groups in enumerate(numbers):
        times = np.full(groups, place * 10 + 1)
        operator.process(batch(operator, times, named(np.arange(groups)), place * 10 + 1))
    for newest in (95, 500):
        operator.process(batch(operator, np.array([newest]), named(np.arange(1)), newest))
    expected = {end: max(numbers[end // 10 - 2 : end // 10]) for end in range(20, 90, 10)}
    heard = {end: outcome for end, outcome in listener.heard.items() if end in expected}
    assert heard.keys() == expected.keys()
    for end, groups in expected.items():
        outcome = heard[end]
        assert end in listener.final
        assert len(outcome.required) == groups if groups <= MOST_GROUPS else 80 < len(outcome.required) <= 256


@pytest.mark.parametrize("aggregates", [(COUNT,), (COUNT, MEDIAN)])
def test_the_sample_says_of_the_groups_what_all_of_them_would(aggregates: tuple[Aggregate, ...]) -> None:
    """The share of groups that needed slack, over many namings of the same groups: one that took the worse half of the
    groups, the first, or those of many tuples would say another."""
    groups = 1_500
    late = np.arange(groups) % 10 == 0
    shares = []
    for naming in range(60):
        outcome = outcomes(groups, late, naming, *aggregates).heard[10]
        shares.append(np.mean(outcome.required > 0))
        assert outcome.coverage == pytest.approx(groups / (groups + late.sum())), "counted over all groups"
    error = np.std(shares, ddof=1) / np.sqrt(len(shares))
    assert abs(np.mean(shares) - late.mean()) < 4 * error
    # as far apart as random samples without replacement of some 180 of 1,500 are
    assert 0.5 < np.std(shares, ddof=1) / np.sqrt(0.1 * 0.9 / 180) < 1.5


@pytest.mark.parametrize("shards", [2, 3, 16])
def test_the_groups_of_one_shard_are_sampled_as_fairly(shards: int) -> None:
    table = pa.table({"k": np.arange(40_000)})
    own = table.filter(pa.array(HashRouter(("k",), shards).deal(table) == 1))
    hashes = hashes_of(own, ["k"])
    for count in range(1, 6):
        below = (hashes <= np.uint64((2**64 - 1) >> count)).sum()
        share = 0.5**count
        assert abs(below - len(hashes) * share) < 4 * np.sqrt(len(hashes) * share * (1 - share))


def test_a_shard_that_was_restored_samples_the_same_groups() -> None:
    """Panes are read as one table and hashed anew."""
    rng = np.random.default_rng(6)
    plan = view(COUNT, MEDIAN, size=10, slide=5)
    parts = Parts.of(plan.aggregates)
    program = WindowProgram(0, (OperatorPlan(0, (plan,), parts, 5),), 10, 70)
    straight, interrupted, stored = Shard(), Shard(), StoredPanes()
    for step in range(44):
        times = step * 5 + rng.integers(0, 5, 1_200)
        times -= np.where(rng.random(1_200) < 0.2, rng.integers(0, 25, 1_200), 0)
        tuples = pa.table(
            {PANE: times // 5 * 5, "k": named(rng.integers(0, 700, 1_200)), "v": times.astype(np.float64)}
        )
        tables = {PARTIALS: parts.lift(tuples, [PANE, "k"])}
        tables |= {VALUES + name: lift_values(tuples, [PANE, "k"], name) for name in parts.values}
        envelopes = [Envelope(0, kind, stream_of(table)) for kind, table in tables.items()]
        record = LogRecord(program, step * 5 + 4, np.maximum(step * 5 + 4 - times, 0), False, envelopes)
        for shard in (straight, interrupted):
            shard.process(record)
        store(interrupted, stored)
        assert sorted_state(interrupted) == sorted_state(straight)
        interrupted = Shard.restored(interrupted.scalars(), stored, {0: program}.__getitem__)
    watched = straight._operators[0].snapshot().views["v"].judged.watched
    assert any(each.outcome is not None and len(each.outcome.required) < 700 for each in watched.values())
    assert len(straight._operators[0].snapshot().views["v"].slack.arrays["sizes"]) > 3


def sorted_state(shard: Shard) -> list[object]:
    """What a shard's policy has heard, its groups in no order."""
    view = shard._operators[0].snapshot().views["v"]
    watched, memory = view.judged.watched, view.slack
    heard = [(end, each.outcome) for end, each in sorted(watched.items()) if each.outcome is not None]
    return [
        [(end, o.slack, o.coverage, sorted(o.required.tolist())) for end, o in heard],
        (memory.numbers["debt"], list(memory.arrays["sizes"]), sorted(memory.arrays["required"].tolist())),
    ]
