"""A view for each slack policy on one stream: exact in the end, and as early as the virtual-time runner answers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from engine_cases import put_file
from joined_inputs import multiset
from penstock.monitor.folder import folder_status
from penstock.monitor.report import status_lines
from penstock.operators.windows.slack_policies import policy_of
from penstock.plan.slack import SLACK_POLICIES, SlackChoice
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.engine import Engine
from penstock.trigger import Trigger
from penstock_lab.simulate.disorder import SECOND, Arrivals
from penstock_lab.simulate.windows import play
from read_results import bag, published

START = 1_700_000_000 * SECOND
FILES, ROWS = 24, 400
QUERY = (
    "SELECT /*+ MAX_ERROR(0.1, 0.2{}) */ key, window(ts, '1 second', '500 milliseconds') AS w, "
    "sum(value) AS s, count(*) AS n FROM tuples GROUP BY key, w"
)
CHOICES = {
    name.replace("-", "_"): SlackChoice(name, 700_000 if name == "fixed" else None) for name in SLACK_POLICIES
}
#: the view whose policy is the engine's setting
BY_SETTING = "mp_k_slack"


def file(number: int) -> pa.Table:
    """Tuples of a second in order of arrival; the late ones come first, so that only earlier files make them late."""
    rng = np.random.default_rng(number)
    times = number * SECOND + np.arange(ROWS) * (SECOND // ROWS)
    late = rng.random(ROWS) < 0.1 if number else np.zeros(ROWS, bool)
    times[late] -= rng.integers(SECOND, 3 * SECOND, int(late.sum()))
    order = np.argsort(~late, kind="stable")
    return pa.table(
        {
            "ts": pa.array(START + times[order]).cast(pa.timestamp("us", "UTC")),
            "key": pa.array(rng.integers(0, 3, ROWS)),
            "value": pa.array(rng.integers(1, 9, ROWS).astype(np.float64)),
        }
    )


def test_each_policy_answers_as_in_virtual_time_and_exactly_in_the_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    files = [file(number) for number in range(FILES)]
    for number, table in enumerate(files):
        put_file(data / f"{number:03d}.parquet", partial(pq.write_table, table))
    engine = Engine(spark, shards=1, arrival_steps=1, slack_policy="mp-k-slack", map_in_scan=False).execute(
        "CREATE TABLE tuples (ts TIMESTAMP, key BIGINT, value DOUBLE) USING parquet "
        f"OPTIONS (path '{data}', event_time 'ts', max_files_per_trigger '1')"
    )
    hints = {name: "" if name == BY_SETTING else f", '{choice}'" for name, choice in CHOICES.items()}
    engine.add_views({name: QUERY.format(hint) for name, hint in hints.items()})
    explained = engine.explain()
    assert "fixed: windows of 1 second every 0.5 seconds" in explained
    assert all(f"slack policy {choice}: " in explained for choice in CHOICES.values())
    run = engine.start(out, trigger=Trigger.available_now(ended=True))
    run.await_termination()
    told = folder_status(out)["views"]
    spark.read.parquet(str(data)).createOrReplaceTempView("tuples")
    expected = multiset(spark.sql(QUERY.format("")))
    every = pa.concat_tables(files)
    times = every.column("ts").cast(pa.int64()).to_numpy()
    arrivals = Arrivals(
        "files", times, np.repeat(np.arange(FILES) * SECOND, ROWS), every.drop_columns(["ts"])
    )
    waits = {}
    for name, choice in CHOICES.items():
        assert bag(published(run, name)) == expected
        slack = run.status().views[name].slack
        assert slack is not None
        assert (slack.policy, slack.seconds * 1e6) == (choice.policy, told[name]["standing"]["slack"])
        aggregates = (Aggregate("sum", "value", pa.float64()), Aggregate("count", None, pa.int64()))
        windows = Windows(SECOND, SECOND // 2)
        bound = ErrorBound(0.1, 0.2)
        plan = WindowPlan(name, "ts", windows, (("key", pa.int64()),), aggregates, bound, slack=choice)
        played, _ = play(arrivals, plan, policy_of(plan), SECOND, 5 * SECOND)
        early = played.early.group_by(["end"]).aggregate([("slack", "max")]).to_pydict()
        virtual = dict(zip(early["end"], early["slack_max"], strict=True))
        rows = run.changes(name).where("revision = 0")
        rows = rows.groupBy(F.unix_micros("w.end").alias("end")).agg(F.max("slack").alias("slack"))
        answered = {row.end: round(row.slack * SECOND) for row in rows.collect() if row.end <= played.closed}
        assert answered == virtual, name
        waits[name] = played.mean_slack()
    assert len({round(wait, 3) for wait in waits.values()}) >= 4, "the policies differ"
    assert waits["mp_k_slack"] == pytest.approx(
        max(waits[name] for name in waits if name != "required"), rel=0.2
    )
    run.stop()
    lines = "\n".join(status_lines(folder_status(out), verbose=True))
    assert "slack policy fixed: the user set K" in lines
    assert "slack policy pd: K = " in lines
    assert lines.count("MAX_ERROR promise") == 1, "the others promise nothing"
