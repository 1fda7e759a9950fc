"""Policies of joins by the setting: the same rows by every one of them, and a restart that goes on by what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from joined_inputs import Inputs, multiset
from penstock.errors import InputError
from penstock.settings import JoinPolicyName
from penstock.spark.engine import Engine
from penstock.spark.lanes.joins.orders import ORDERS, first_order
from penstock.spark.run import Run
from penstock.spark.storage.formats import PLAN_STATISTICS
from penstock.spark.storage.joins import JOINS
from penstock.spark.storage.layout import Layout
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

VIEWS = {
    "three": "SELECT f.k, f.n, w.x, d.name FROM flights f JOIN weather w ON f.k = w.k "
    "AND w.ts BETWEEN f.ts - INTERVAL 4 SECONDS AND f.ts + INTERVAL 4 SECONDS "
    "JOIN delays d ON d.n = f.n AND d.name = w.name AND d.ts BETWEEN f.ts - INTERVAL 4 SECONDS AND f.ts + INTERVAL 4 SECONDS"
}


def run_over(
    spark: SparkSession, inputs: Inputs, output: Path, policy: JoinPolicyName, dwell_seconds: float = 0.0
) -> Run:
    engine = Engine(spark, join_policy=policy, plan_dwell_seconds=dwell_seconds).execute(inputs.script())
    return run_to_end(engine.add_views(VIEWS), output, seconds=600)


@pytest.mark.long
@pytest.mark.parametrize(
    "policy",
    ["paper", *(pytest.param(policy, marks=pytest.mark.long) for policy in ("cardinality", "fixed"))],
)
def test_every_policy_gives_the_rows_of_spark(
    spark: SparkSession, tmp_path: Path, policy: JoinPolicyName
) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(4))
    inputs.feed(20, count=50)
    run = run_over(spark, inputs, tmp_path / "out", policy)
    inputs.register(spark)
    expected = multiset(spark.sql(VIEWS["three"]))
    assert multiset(run.results("three")) == expected
    assert expected
    switched = run.events("join_switched")
    if policy == "fixed":
        assert not switched
    else:
        wanted = {
            "paper": "it has the largest output rate by the paper's formulas",
            "cardinality": "it has the least intermediate cardinalities",
        }
        assert {each["reason"] for each in switched} <= {wanted[policy]}
    assert switched or policy != "paper", "the paper has no merge"


@pytest.mark.long
def test_a_restart_goes_on_by_the_order_and_the_statistics_of_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(4))
    inputs.feed(20, count=50)
    first = run_over(spark, inputs, tmp_path / "out", "paper")
    layout = Layout.of(tmp_path / "out", None)
    (view,) = JOINS.read(layout).views
    kept = PLAN_STATISTICS.read(layout.plan_statistics[view.lane])
    assert kept is not None
    assert kept["join"]["statistics"]["sums"]
    order = ORDERS.value(kept["join"]["order"])
    assert first.events("join_switched")
    assert order != first_order(view.definition.plan)
    inputs.feed(2, count=50)
    again = run_over(spark, inputs, tmp_path / "out", "paper", dwell_seconds=3600)
    inputs.register(spark)
    assert multiset(again.results("three")) == multiset(spark.sql(VIEWS["three"]))
    later = PLAN_STATISTICS.read(layout.plan_statistics[view.lane])
    assert later is not None
    assert later != kept
    assert ORDERS.value(later["join"]["order"]) == order, "what was measured before a restart dwells after it"
    sums = {json.dumps(name): amount for name, amount in kept["join"]["statistics"]["sums"]}
    assert sums.keys() <= {json.dumps(name) for name, _ in later["join"]["statistics"]["sums"]}


def test_the_policy_of_the_paper_refuses_what_it_has_no_formula_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(4))
    inputs.feed(1)
    engine = Engine(spark, join_policy="paper").execute(inputs.script())
    with pytest.raises(InputError, match="view s: join_policy paper has no formula for a static table"):
        engine.view("s", "SELECT f.k FROM flights f JOIN airports a ON f.k = a.k")
    with pytest.raises(InputError, match="view l: join_policy paper has no formula for LEFT JOIN"):
        engine.view(
            "l",
            "SELECT f.k FROM flights f LEFT JOIN weather w ON f.k = w.k AND w.ts BETWEEN f.ts AND f.ts + INTERVAL 1 SECOND",
        )
