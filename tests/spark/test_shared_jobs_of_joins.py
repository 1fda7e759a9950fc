"""Join views over the same streams share jobs: they come and go, and one fails, and the others have the rows that they owe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from joined_inputs import Inputs, answered, multiset, wait
from penstock.spark.engine import Engine
from penstock.spark.lanes import shared_jobs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FROM = "FROM flights f JOIN weather w ON f.k = w.k AND w.ts BETWEEN f.ts - INTERVAL {0} SECONDS AND f.ts"
VIEWS = {
    "close": f"SELECT f.k, f.x, w.n {FROM.format(3)}",
    "wide": f"SELECT f.k, w.x {FROM.format(20)} WHERE f.n > 2",
    "lonely": f"SELECT f.k, f.n, w.name {FROM.format(5).replace('JOIN', 'LEFT JOIN')}",
}
LATER = f"SELECT f.k, f.ts, w.name {FROM.format(9)} WHERE w.n < 4"


def _wanted(spark: SparkSession, inputs: Inputs, text: str, since: int = 0) -> Counter[str]:
    """What Spark says of the tuples of the files from one on."""
    for name in ("flights", "weather"):
        tuples = pa.concat_tables(inputs.tuples[name][since:])
        spark.createDataFrame(tuples).createOrReplaceTempView(name)
    return multiset(spark.sql(text))


@pytest.mark.long
def test_views_come_go_and_fail_beside_each_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[int] = []
    run_together = shared_jobs._run

    def noted(gathering: Any, runner: Any) -> None:
        run_together(gathering, runner)
        together.append(len(gathering.asked) if gathering.reports is not None else -len(gathering.asked))

    monkeypatch.setattr(shared_jobs, "_run", noted)
    # whether lanes meet within the tenth of a second of a run is up to the machine
    monkeypatch.setattr(shared_jobs, "_WAIT_SECONDS", 2)
    inputs = Inputs(tmp_path / "in", np.random.default_rng(8))
    inputs.feed(1)
    engine = (
        Engine(spark, retry_attempts=40, retry_seconds=0.2, idle_seconds=0)
        .execute(inputs.script())
        .add_views(VIEWS)
    )
    engine.function("listed", lambda values: values.to_pylist(), "BOOLEAN")
    engine.view("wrong", f"SELECT f.k {FROM.format(3)} WHERE listed(w.n)")
    run = engine.start(tmp_path / "out")

    def are_there(names: Sequence[str], since: int = 0) -> bool:
        """Whether all files of both streams, from one on, are in cuts of some views."""
        files = 2 * (len(inputs.tuples["flights"]) - since)
        done: Counter[str] = Counter()
        for cut in run.events("cut"):
            done.update(dict.fromkeys(cut["figures"]["views"], cut["entries"]))
        return all(done[name] >= files for name in names)

    for number in range(20):
        wait(lambda: are_there([*VIEWS]), run)
        if number > 2 and max(together) >= 2:
            break
        inputs.feed(1)
    inner = {name: text for name, text in VIEWS.items() if name != "lonely"}
    for name, text in inner.items():
        assert multiset(run.results(name)) == _wanted(spark, inputs, text), name
    wait(lambda: run.events("lane_retried"), run)
    others = [event for event in run.events("lane_retried") if event["lane"] != "joins.3"]
    assert not others, others
    assert max(together) >= 2, "no job answered several views"

    since = len(inputs.tuples["flights"])
    engine.drop("wrong", "wide")
    engine.view("later", LATER)
    for _ in range(3):
        inputs.feed(1)
        wait(lambda: are_there(["close", "lonely"]) and are_there(["later"], since), run)
    assert multiset(run.results("close")) == _wanted(spark, inputs, VIEWS["close"])
    assert multiset(run.results("later")) == _wanted(spark, inputs, LATER, since)
    run.stop()

    inputs.feed(1)
    run = answered(engine, tmp_path / "out")
    for name in ("close", "lonely"):
        assert multiset(run.results(name)) == _wanted(spark, inputs, VIEWS[name]), name
    assert multiset(run.results("later")) == _wanted(spark, inputs, LATER, since)
    run.stop()
