"""A swap of the evaluation sequence beside running batches: nothing stops, nothing is sent again, answers stay."""

from __future__ import annotations

import itertools
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from engine_cases import COLUMNS, VIEWS, expected, rows, script, write_orders
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.operators.selection.asc import AscIndex
from penstock.plan.arrangement import Arrangement, ArrangementKind
from penstock.spark.engine import Engine
from penstock.spark.ingest.plans import StreamPlans
from penstock.spark.run import Run
from penstock.trigger import Trigger

pytestmark = pytest.mark.spark

FILES = 4


def _sequence(plans: StreamPlans, version: int, *, backwards: bool) -> Arrangement:
    order = AscIndex(plans.compiled(version).program.plan.coded).attributes
    return Arrangement(ArrangementKind.MACRO, order[::-1] if backwards else order)


def test_a_swap_between_the_binding_and_the_run_of_a_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch's sequence is replaced from another thread once it is bound; the program is broadcast once."""
    write_orders(tmp_path / "in", FILES, rows=1_000)
    bind, broadcast = StreamPlans.bind, spark.sparkContext.broadcast
    sent: list[Any] = []

    def bind_while_another_swaps(plans: StreamPlans, batch: int, *more: Any) -> Any:
        plan = bind(plans, batch, *more)
        version = plan.program.version
        arrangement = _sequence(plans, version, backwards=batch % 2 == 0)
        swap = threading.Thread(target=plans.swap_sequence, args=(version, arrangement))
        swap.start()
        swap.join()
        return plan

    def noting(value: Any) -> Any:
        sent.append(pickle.loads(value))
        return broadcast(value)

    monkeypatch.setattr(StreamPlans, "bind", bind_while_another_swaps)
    monkeypatch.setattr(spark.sparkContext, "broadcast", noting)
    text = script(tmp_path / "in", VIEWS, options=", max_files_per_trigger '1'")
    # no samples, so that the controller does not swap as well
    run = (
        Engine(spark, strategy="asc", sample_tuples=0)
        .execute(text)
        .start(tmp_path / "out", trigger=Trigger.available_now())
    )
    run.await_termination()
    run.stop()
    tuples = spark.read.schema(COLUMNS).parquet(str(tmp_path / "in"))
    assert {name: rows(run.results(name)) for name in VIEWS} == expected(spark, tuples, VIEWS)
    batches = run.events("batch")
    assert len(batches) == FILES
    assert [type(value) for value in sent] == [StreamProgram]
    costs = [batch["evaluations"] / batch["tuples"] for batch in batches]
    assert min(costs[0], costs[2]) > 1.1 * max(costs[1], costs[3]), "every batch followed the newest sequence"


@pytest.mark.long
def test_status_is_read_and_sequences_swapped_all_the_time(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", 2 * FILES, rows=500)
    views = {
        **VIEWS,
        **{f"v{n}": f"SELECT id FROM orders WHERE amount BETWEEN {n} AND {n + 9}" for n in range(60)},
    }
    text = script(tmp_path / "in", views, options=", max_files_per_trigger '1'")
    run = Engine(spark).execute(text).start(tmp_path / "out", trigger=Trigger.available_now())
    plans, ended, failures = run._execution.queries["orders"].plans, threading.Event(), list[BaseException]()

    def swap() -> None:
        try:
            while not run.events("batch") and not ended.wait(0.05):
                pass
            turns = itertools.cycle([_sequence(plans, 0, backwards=backwards) for backwards in (True, False)])
            while not ended.wait(0.001):
                plans.swap_sequence(0, next(turns))
                status = run.status().streams["orders"].to_dict()
                assert sum(status["view_pairs"].values()) == status["pairs"]
                assert len(run.events("batch")) >= status["batches"] - 1
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=swap)
    thread.start()
    run.await_termination()
    ended.set()
    thread.join()
    run.stop()
    assert not failures
    tuples = spark.read.schema(COLUMNS).parquet(str(tmp_path / "in"))
    assert {name: rows(run.results(name)) for name in VIEWS} == expected(spark, tuples, VIEWS)


def test_a_sequence_outlasts_plan_versions_and_restarts(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", 1, rows=1_000)
    text = script(tmp_path / "in", VIEWS)

    def start() -> Run:
        return Engine(spark, strategy="asc", sample_tuples=0).execute(text).start(tmp_path / "out")

    def answered(run: Run, batches: int) -> float:
        while len(run.events("batch")) < batches:
            run.await_termination(0.1)
        newest = run.events("batch")[-1]
        return float(newest["evaluations"]) / float(newest["tuples"])

    run = start()
    given = answered(run, 1)
    plans = run._execution.queries["orders"].plans
    plans.swap_sequence(0, _sequence(plans, 0, backwards=True))
    write_orders(tmp_path / "more", 2, rows=1_000)
    (tmp_path / "more" / "001.parquet").rename(tmp_path / "in" / "001.parquet")
    backwards = answered(run, 2)
    run.stop()
    assert backwards > 1.1 * given
    text += "CREATE VIEW one_more AS SELECT id FROM orders WHERE amount > 5001;"
    write_orders(tmp_path / "most", 3, rows=1_000)
    (tmp_path / "most" / "002.parquet").rename(tmp_path / "in" / "002.parquet")
    run = start()
    kept = answered(run, 1)
    plan = run.events("batch")[-1]["plan"]
    run.stop()
    assert plan == 1
    assert kept > 1.1 * given
