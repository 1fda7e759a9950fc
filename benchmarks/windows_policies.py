"""Slack policies on Spark in real time, beside the same operator in virtual time, on the same tuples.

Two streams, each in one run with a view for each policy: the tuples of `GAME_2` (`windows_feed.py`, windows of 0.5 s sliding by 0.1 s), a file every
100 ms; and three days of flights that are replayed at 1,800 times their speed (event time: scheduled, arrival: departure, windows of an hour sliding
by 15 minutes), from a cold start. COUNT and SUM within 5 % with 95 %. Told of each policy: the share of windows whose early answer was within the bound, the
mean slack (from the end of a window to the event time that the stream had come to when it was answered) and by the clock how long after the
end of its window an answer was published. In virtual time a batch comes every 100 ms, or every 5 minutes of the flights.
No stream moves on with the clock while no tuple comes: a run that ends with its files has no such clock, so the windows of a night wait for the morning.

What is satisfied, and the slack, are expected to be within a tenth of virtual time's. Where batches on Spark come less often than that, a window waits for the
next one. So beside it stands virtual time with batches as far apart as they were on Spark, on average: what still differs there is not of the batches.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from cold_starts import DAY, GAMMA, LENGTH, STEP, Flights
from cold_starts import WINDOWS as HOURLY
from expectations import Expectations
from latency import WARM_SECONDS, moment
from penstock.operators.windows.slack_policies import policy_of
from penstock.plan.slack import SlackChoice
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock.trigger import Trigger
from penstock_lab.simulate.disorder import SECOND, Arrivals, generated
from penstock_lab.simulate.windows import play
from windows_feed import COLUMNS, FILE_SECONDS, RATE, STREAMS, TAIL_SECONDS
from windows_feed import play as feed
from windows_late import exact, published, summary

POLICIES = ("required", "pd", "mp-k-slack", "aq-k-slack")
BOUND = ErrorBound(0.05, 0.05)
SPEED = 1800
GAME = STREAMS[0]


@dataclass(frozen=True, slots=True)
class Told:
    """What a policy did.

    Attributes:
        satisfied: share of windows whose early answer was within the bound; those without one when the stream was stopped are left out.
        slack: mean slack, seconds.
        windows: how many count.
        after: mean time from a window's end to its publication, seconds by the clock; NaN in virtual time.
    """

    satisfied: float
    slack: float
    windows: int
    after: float = float("nan")


@dataclass(frozen=True, slots=True)
class Sides:
    """A policy on Spark, in virtual time, and in virtual time with batches as far apart as they were on Spark."""

    real: Told
    virtual: Told
    alike: Told


def hint(policy: str) -> str:
    """The hint of a view."""
    return f"/*+ MAX_ERROR({BOUND.epsilon}, {BOUND.delta}, '{policy}') */"


def name(policy: str) -> str:
    """The view of a policy."""
    return policy.replace("-", "_")


def virtual(
    arrivals: Arrivals,
    windows: Windows,
    argument: str,
    policy: str,
    step: int,
    gamma: int,
    counted: tuple[int, int],
) -> Told:
    """What a policy does in virtual time, in windows that end between two moments."""
    aggregates = (Aggregate("count", None, pa.int64()), Aggregate("sum", argument, pa.float64()))
    plan = WindowPlan("view", "time", windows, (), aggregates, BOUND, slack=SlackChoice(policy))
    played, _ = play(arrivals, plan, policy_of(plan), step, gamma)
    share, _, _, count = played.satisfied(*counted)
    return Told(share, played.mean_slack(*counted), count)


def apart(run: Run) -> float:
    """Mean seconds between batches that had tuples."""
    moments = [moment(each) for each in run.events("batch") if each["tuples"]]
    return (moments[-1] - moments[0]) / max(1, len(moments) - 1)


def game(spark: SparkSession, seconds: float) -> dict[str, Sides]:
    """By policy what it did with the tuples of a game."""
    values = f"{GAME.window} AS w, sum(value) AS s, count(*) AS n FROM tuples GROUP BY w"
    with tempfile.TemporaryDirectory() as place:
        folder, output = Path(place) / "in", Path(place) / "out"
        folder.mkdir()
        table = f"CREATE TABLE tuples ({COLUMNS}) USING parquet OPTIONS (path '{folder}', event_time 'ts')"
        engine = Engine(spark, compact_every_batches=0).execute(table)
        engine.add_views({name(policy): f"SELECT {hint(policy)} {values}" for policy in POLICIES})
        run = engine.start(output)
        begun = feed(folder, GAME, seconds)
        time.sleep(2.0)
        run.stop()
        database = exact(folder, GAME)
        database.register("batches", published(run))
        batches = apart(run)
        real = {}
        for policy in POLICIES:
            database.execute(
                "CREATE OR REPLACE TABLE early AS SELECT epoch_us(w.start) AS start, 0::BIGINT AS key, s, n, slack, coverage IS NOT NULL "
                "AS promised, published FROM (SELECT *, regexp_extract(filename, '([0-9]+)-[^/]*$', 1)::BIGINT AS batch "
                f"FROM read_parquet('{output}/results/{name(policy)}/*.parquet', filename = true) WHERE revision = 0) JOIN batches USING (batch)"
            )
            found = summary(database, "total", GAME, begun, seconds)
            answered = found.rows - found.missing
            share = found.share * found.rows / answered
            real[policy] = Told(share, found.slack, answered, float(found.after_end.mean()))
    drawn = generated(GAME.name, [GAME.disorder], int(RATE * seconds), seconds, seed=5)
    counted = (int(WARM_SECONDS * SECOND), int((seconds - TAIL_SECONDS) * SECOND))
    windows = Windows(GAME.size, GAME.slide)

    def simulated(policy: str, seconds: float) -> Told:
        step = int(seconds * SECOND)
        return virtual(drawn, windows, "value", policy, step, 5 * SECOND, counted)

    return {
        policy: Sides(own, simulated(policy, FILE_SECONDS), simulated(policy, batches))
        for policy, own in real.items()
    }


def flights(spark: SparkSession, number: int) -> dict[str, Sides]:
    """By policy what it did with a stretch of flights."""
    every = Flights.read()
    arrivals, begin = every.around(number), every.begin(number)
    values = "window(sched_dep, '1 hour', '15 minutes') AS w, count(*) AS n, sum(distance) AS s FROM flights GROUP BY w"
    with tempfile.TemporaryDirectory() as place:
        stored, output = Path(place) / "flights.parquet", Path(place) / "out"
        pq.write_table(stretch(every, number), stored)
        table = f"CREATE TABLE flights USING replay OPTIONS (path '{stored}', event_time 'sched_dep', arrival_time 'arrival', speed '{SPEED}')"
        engine = Engine(spark, compact_every_batches=0).execute(table)
        engine.add_views({name(policy): f"SELECT {hint(policy)} {values}" for policy in POLICIES})
        run = engine.start(output, trigger=Trigger.available_now())
        run.await_termination()
        run.stop()
        batches = apart(run) * SPEED
        counted = begin + 1, begin + LENGTH * DAY + 1
        real = {policy: flown(output / "results" / name(policy), stored, counted) for policy in POLICIES}

    def simulated(policy: str, step: int) -> Told:
        return virtual(arrivals, HOURLY, "distance", policy, step, GAMMA, counted)

    return {
        policy: Sides(own, simulated(policy, STEP), simulated(policy, int(batches * SECOND)))
        for policy, own in real.items()
    }


def stretch(every: Flights, number: int) -> pa.Table:
    """The flights of a stretch, as they are stored."""
    arrivals = every.around(number)
    return arrivals.columns.append_column(
        "sched_dep", pa.array(arrivals.event_time).cast(pa.timestamp("us", "UTC"))
    ).append_column("arrival", pa.array(arrivals.arrival_time).cast(pa.timestamp("us", "UTC")))


def flown(results: Path, stored: Path, counted: tuple[int, int]) -> Told:
    """What the published early answers of a view of flights were worth."""
    first, last = counted
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        found = database.execute(
            f"WITH early AS (SELECT epoch_us(w.start) AS start, n, s, slack FROM read_parquet('{results}/*.parquet') WHERE revision = 0), "
            f"exact AS (SELECT (epoch_us(sched_dep) // {HOURLY.slide} - back) * {HOURLY.slide} AS start, count(*) AS n, sum(distance) AS s "
            f"FROM read_parquet('{stored}'), range({HOURLY.size // HOURLY.slide}) past(back) GROUP BY ALL) "
            f"SELECT avg((coalesce(abs(e.n - x.n) < {BOUND.epsilon} * x.n AND abs(e.s - x.s) < {BOUND.epsilon} * x.s, FALSE))::INT), "
            "avg(e.slack), count(*) FROM exact x LEFT JOIN early e USING (start) "
            f"WHERE x.start + {HOURLY.size} >= {first} AND x.start + {HOURLY.size} < {last}"
        ).fetchone()
    assert found is not None, "an aggregate has one row"
    return Told(float(found[0]), float(found[1]), int(found[2]))


def policies(spark: SparkSession, small: bool, expect: Expectations) -> None:
    """Measures both streams, prints the table and what is expected.

    Args:
        spark: with two cores.
        small: whether the game is short.
        expect: told of it.
    """
    sides = {"game 2": game(spark, 50.0 if small else 120.0), "flights, 3 days": flights(spark, 3)}
    table = Table(
        "stream",
        "policy",
        "windows",
        "satisfied",
        "virtual",
        "alike",
        "mean slack",
        "virtual",
        "alike",
        "published after the end, s",
    )
    for stream, found in sides.items():
        for policy, sides_of in found.items():
            real, each_side = sides_of.real, (sides_of.real, sides_of.virtual, sides_of.alike)
            shares = (f"{each.satisfied:.3f}" for each in each_side)
            slacks = (slack(each.slack) for each in each_side)
            after = "" if np.isnan(real.after) else f"{real.after:.2f}"
            table.add_row(stream, policy, f"{real.windows:,}", *shares, *slacks, after)
            for which, simulated in (("", sides_of.virtual), (" with batches as on Spark", sides_of.alike)):
                share, wait = real.satisfied / simulated.satisfied, real.slack / max(simulated.slack, 1e-9)
                expect.hold(
                    f"{stream}, {policy}: within a tenth of virtual time{which}",
                    abs(share - 1) <= 0.1 and abs(wait - 1) <= 0.1,
                    f"satisfied {share:.2f}, slack {wait:.2f} times",
                )
    Console(width=150).print(table)


def slack(seconds: float) -> str:
    """A slack, in the unit that suits it."""
    return f"{seconds:.2f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
