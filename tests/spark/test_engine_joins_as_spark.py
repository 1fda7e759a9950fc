"""The engine joins what `spark.sql` joins: random streams and static tables, disorder, boundaries of batches, and views.

A seed is a run of several views, some of which come or go between the two parts of the tuples: where the run is begun anew, or
while it goes on. In two of three runs every cut is joined in another order, its cells divided among tasks in another way. The long form runs 13
seeds: 325 views.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from fed_joins import Feed, Oracle, difference, is_answered
from forms import ALL
from joined_inputs import random_order
from penstock.operators.joins.tuples import Stripe
from penstock.spark.engine import Engine
from penstock.spark.lanes.cuts import Reach
from penstock.spark.lanes.joins.balance import CellBalance, Floats, Place
from penstock.spark.lanes.joins.lane import JoinLane
from penstock.spark.run import Run
from penstock.spark.storage.joins import JOINS, JoinDefinition
from penstock.spark.storage.lane_views import RegisteredView
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger
from penstock_lab.generators.joins import JoinGenerator
from read_results import bag, published

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

SEEDS, VIEWS = (13, 25) if ALL else (1, 8)


class Case:
    """Random inputs and views of a seed.

    Attributes:
        feed: the inputs.
        script: declares them.
        staying, going, coming: texts by name: of the views that are there all the time, in the first part only, in the
            second part only.
        output: the results folder.

    Args:
        spark: the session.
        folder: where.
        seed: of all that is random.
        is_ended: whether each run ends: only then all rows without a partner in an optional stream are told.
    """

    def __init__(self, spark: SparkSession, folder: Path, seed: int, *, is_ended: bool) -> None:
        self._seed = seed
        generator = JoinGenerator(seed)
        self.feed = Feed(folder / "in", generator)
        self.script = self.feed.script()
        optional = [each for each in generator.relations if is_ended or each.is_static]
        texts = [(f"v{number}", generator.query(optional)) for number in range(VIEWS)]
        self.going, self.coming = dict(texts[3::5]), dict(texts[4::5])
        self.staying = {name: text for name, text in texts if name not in self.going | self.coming}
        self.output = folder / "out"
        self._layout = Layout.of(self.output, None)
        self.oracle = Oracle(spark, self.feed, self._layout)

    def registered(self, names: Mapping[str, str]) -> list[RegisteredView[JoinDefinition]]:
        """Views that are answered now."""
        found = [each for each in JOINS.read(self._layout).views if each.definition.name in names]
        assert len(found) == len(names)
        return found

    def check(self, run: Run, came: Mapping[str, int]) -> None:
        """Makes sure that the views of the second part have the rows they owe.

        Args:
            run: which answered them.
            came: the files of each stream that had come before those of the second part were declared.
        """
        views = self.registered(self.staying | self.coming)
        wanted = [self.oracle.rows(each) for each in views]
        for each in views:
            self.oracle.assert_owed(each, came if each.definition.name in self.coming else Counter())
        found = [bag(published(run, each.definition.name)) for each in views]
        self.refuse("".join(map(difference, views, found, wanted)))
        assert sum(map(bool, wanted)) > len(wanted) / 3

    def refuse(self, mistakes: str) -> None:
        """Tells mistakes and the seed that leads to them."""
        assert not mistakes, f"seed {self._seed}\n{mistakes}"


@pytest.fixture
def case(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Case:
    seed = request.param
    if seed % 3:
        switch_at_random(monkeypatch, seed)
    return Case(spark, tmp_path, seed, is_ended=seed % 2 == 0)


@pytest.mark.parametrize("case", range(0, SEEDS, 2), indirect=True)
def test_joins_over_a_restart(spark: SparkSession, case: Case) -> None:
    case.feed.more()
    run = answered(Engine(spark).execute(case.script).add_views(case.staying | case.going), case.output)
    run.stop()
    gone = case.registered(case.going)
    owed = [case.oracle.rows(each) for each in gone]

    came = Counter(case.feed.files)
    case.feed.more()
    run = answered(Engine(spark).execute(case.script).add_views(case.staying | case.coming), case.output)
    case.check(run, came)
    left = [bag(published(run, each.definition.name)) for each in gone]
    case.refuse("".join(map(difference, gone, left, owed)))
    run.stop()


@pytest.mark.long
@pytest.mark.parametrize("case", range(1, SEEDS, 2), indirect=True)
def test_joins_that_come_and_go_on_a_running_engine(spark: SparkSession, case: Case) -> None:
    case.feed.more()
    engine = Engine(spark).execute(case.script).add_views(case.staying | case.going)
    run = engine.start(case.output)
    # while batches are under way: those have what views ask for that were there when they were bound
    wait(lambda: any(each["tuples"] for each in run.status().to_dict()["streams"].values()), run)
    engine.add_views(case.coming)
    wait(lambda: is_answered(run, case.feed), run)
    gone = case.registered(case.going)
    owed = [case.oracle.rows(each) for each in gone]
    engine.drop(*case.going)

    came = Counter(case.feed.files)
    case.feed.more()
    wait(lambda: is_answered(run, case.feed), run)
    case.check(run, came)
    left = [bag(published(run, each.definition.name)) for each in gone]
    case.refuse("".join(map(difference, gone, left, owed)))
    run.stop()


def answered(engine: Engine, output: Path) -> Run:
    """A run over what is there."""
    run = engine.start(output, trigger=Trigger.available_now())
    assert run.await_termination(900)
    return run


def switch_at_random(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Lets every cut be joined in another order, by other numbers of tasks a cell."""
    rng = np.random.default_rng(seed)
    orders = JoinLane.orders

    def switched(lane: JoinLane, until: Mapping[str, Reach]) -> Mapping[str, Any]:
        lane.planner.order = random_order(lane.plan, rng)
        return orders(lane, until)

    def divided(_: CellBalance, tuples: Floats) -> list[Place]:
        stripes = [
            (cell, Stripe(number, of))
            for cell in range(len(tuples))
            for of in (int(rng.integers(1, 4)),)
            for number in range(of)
        ]
        return [Place(number, cell, stripe) for number, (cell, stripe) in enumerate(stripes)]

    monkeypatch.setattr(JoinLane, "orders", switched)
    monkeypatch.setattr(CellBalance, "places", divided)


def wait(is_so: Callable[[], bool], run: Run) -> None:
    deadline = time.monotonic() + 600
    while not is_so():
        assert run.active
        assert time.monotonic() < deadline
        time.sleep(0.2)
