"""Users' functions in the conditions of join views: in the best order, and with the results that Spark has."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from forms import ALL
from joined_inputs import Inputs, multiset
from penstock.errors import StreamFailedError
from penstock.monitor.folder import folder_status
from penstock.monitor.report import status_lines
from penstock.spark.engine import Engine
from penstock.trigger import Trigger
from read_results import bag, published

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

NEAR = "w.ts BETWEEN f.ts - INTERVAL 5 SECONDS AND f.ts + INTERVAL 5 SECONDS"
FROM = f"FROM flights f JOIN weather w ON f.k = w.k AND {NEAR}"


def engine_over(spark: SparkSession, inputs: Inputs) -> Engine:
    """With functions that no worker could import."""

    def half(values: pa.Array) -> pa.Array:
        time.sleep(20e-6 * len(values))
        return pc.divide(values, 2.0)

    def is_three(values: pa.Array) -> pa.Array:
        return pc.equal(values, 3)

    def apart(one: pa.Array, other: pa.Array, least: pa.Array) -> pa.Array:
        return pc.greater_equal(pc.abs(pc.subtract(one, other)), least)

    def not_zero(values: pa.Array) -> pa.Array:
        if 0 in values.to_pylist():
            raise ValueError("0 is no number for me")
        return pc.greater(values, 1)

    engine = Engine(spark).execute(inputs.script())
    engine.function("half", half, "DOUBLE").function("is_three", is_three, "BOOLEAN")
    return engine.function("apart", apart, "BOOLEAN").function("not_zero", not_zero, "BOOLEAN")


def test_a_function_of_constants_is_not_called_as_a_view_is_declared(
    spark: SparkSession, tmp_path: Path
) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(3))
    inputs.feed(1)
    engine = engine_over(spark, inputs)

    def never(values: pa.Array) -> pa.Array:
        (tmp_path / "called").touch()
        return values

    engine.function("never", never, "DOUBLE")
    engine.view("judged", f"SELECT f.k {FROM} WHERE apart(f.x, w.x, never(1.5D)) AND apart(f.x, w.x, 2.5D)")
    assert "checked last, by your functions: apart(f.x, w.x, 2.5D)\n" in engine.explain()
    assert not (tmp_path / "called").exists()


def test_predicates_run_in_the_best_order_and_equal_spark(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(3))
    inputs.feed(9 if ALL else 6, count=200)
    views = {
        "judged": f"SELECT f.k, f.ts, w.x {FROM} WHERE half(f.x) BETWEEN 0 AND 1 AND is_three(w.n)",
        "with_constants": f"SELECT f.k, w.ts {FROM} WHERE NOT apart(f.x, w.x * 2, 1.5D) AND f.n > 1",
        "partly_by_spark": f"SELECT upper(f.name) AS name, f.n + w.n AS both {FROM} "
        "WHERE coalesce(f.n, w.n) >= 0 AND half(f.x) > w.x AND is_three(f.n + w.n) AND IS_THREE(w.n)",
        "at_unknowns": f"SELECT f.k, f.x {FROM} WHERE half(f.x) IS NULL OR half(f.x) > 0.5",
    }
    engine = engine_over(spark, inputs).add_views(views)
    explained = engine.explain()
    assert "checked last, by your functions: half(f.x) BETWEEN 0 AND 1, is_three(w.n)" in explained
    assert "checked last, by your functions: NOT apart(f.x, w.x * 2, 1.5D)\n" in explained
    assert "checked last, by your functions: IS_THREE(w.n)\n" in explained
    run = engine.start(tmp_path / "out", trigger=Trigger.available_now())
    assert run.await_termination(600)
    inputs.register(spark)
    for name, text in views.items():
        expected = multiset(spark.sql(text))
        assert bag(published(run, name)) == expected, name
        assert expected, name

    (reordered,) = (each for each in run.events("predicates_reordered") if each["view"] == "judged")
    assert reordered["order"] == "is_three(w.n), half(f.x) BETWEEN 0 AND 1"
    assert "is predicted to take" in reordered["reason"]
    told = run.explain()
    assert "  user predicate is_three(w.n): measured " in told
    begin = told.index("  user predicate is_three(w.n)")
    assert told.index("  user predicate half(f.x) BETWEEN 0 AND 1: measured ", begin) > begin
    run.stop()
    lines = "\n".join(status_lines(folder_status(tmp_path / "out"), verbose=True))
    assert "  user predicate is_three(w.n): measured " in lines
    assert f": {reordered['order']}: {reordered['reason']}" in lines


@pytest.mark.long
def test_a_row_at_which_a_predicate_raises_is_no_match_and_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(4))
    inputs.feed(3)
    views = {
        "plain": f"SELECT f.k, w.n {FROM} WHERE not_zero(w.n)",
        "computed": f"SELECT f.k, w.n + 1 AS next {FROM} WHERE not_zero(w.n)",
    }
    engine = engine_over(spark, inputs).add_views(views)
    run = engine.start(tmp_path / "out", trigger=Trigger.available_now())
    assert run.await_termination(600)
    inputs.register(spark)
    for name, text in views.items():
        assert bag(published(run, name)) == multiset(spark.sql(text.replace("not_zero(w.n)", "w.n > 1")))
        raised = sum(cut["figures"]["views"].get(name, {}).get("raised", 0) for cut in run.events("cut"))
        assert raised == spark.sql(text.replace("not_zero(w.n)", "w.n = 0")).count() > 0
    run.stop()


def test_a_function_that_returns_something_else_stops_the_view_with_its_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(6))
    inputs.feed(1)
    engine = engine_over(spark, inputs).function("listed", lambda values: values.to_pylist(), "BOOLEAN")
    engine.view("pairs", f"SELECT f.k {FROM} WHERE listed(w.n)")
    run = engine.start(tmp_path / "out", trigger=Trigger.available_now())
    with pytest.raises(StreamFailedError, match="function listed returned list, not a pyarrow"):
        run.await_termination(600)
    run.stop()
