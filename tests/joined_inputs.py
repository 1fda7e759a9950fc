"""Streams and static tables to join, and random orders of joining."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from penstock.plan.joins import JoinOrder, JoinPlan, Method, ProbeOrder, ProbeStep
from penstock.spark.engine import Engine
from penstock.spark.lanes.joins.grid import searched_keys
from penstock.spark.run import Run
from penstock.trigger import Trigger
from spark_answers import in_one_partition, tuples_of

STREAMS = ("flights", "weather", "delays")
TABLES = ("airports", "carriers")
_SECOND = 1_000_000


def rows(rng: np.random.Generator, count: int, first: float, seconds: float) -> pa.Table:
    """Tuples with NULLs and NaNs whose event times are spread over a stretch."""
    moments = ((1_700_000_000 + first + rng.random(count) * seconds) * _SECOND).astype(np.int64)
    x = rng.integers(-1, 4, count).astype(np.float64)
    x[rng.random(count) < 0.1] = np.nan
    x[rng.random(count) < 0.1] = -0.0
    return pa.table(
        {
            "ts": pa.array(moments, mask=rng.random(count) < 0.02).cast(pa.timestamp("us", "UTC")),
            **columns(rng, count, x),
        }
    )


def columns(rng: np.random.Generator, count: int, x: np.ndarray[Any, Any]) -> dict[str, pa.Array]:
    """The columns that streams and static tables have in common."""
    names = np.array(["north", "south", "é", ""])[rng.integers(0, 4, count)]
    return {
        "k": pa.array(rng.integers(0, 8, count), pa.int64(), mask=rng.random(count) < 0.05),
        "n": pa.array(rng.integers(0, 6, count), pa.int32(), mask=rng.random(count) < 0.1),
        "name": pa.array(names, mask=rng.random(count) < 0.1),
        "x": pa.array(x, mask=rng.random(count) < 0.05, from_pandas=False),
        "day": pa.array(rng.integers(19_000, 19_003, count), pa.int32()).cast(pa.date32()),
    }


@dataclass
class Inputs:
    """Streams and static tables in folders; the streams' files come in an order of their own.

    Attributes:
        folder: where.
        rng: makes them.
        tuples: all that was fed, by stream.
    """

    folder: Path
    rng: np.random.Generator
    tuples: dict[str, list[pa.Table]] = field(default_factory=dict)
    _frames: dict[tuple[object, ...], DataFrame] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name in (*STREAMS, *TABLES):
            (self.folder / name).mkdir(parents=True)
        for name in TABLES:
            x = self.rng.integers(-1, 4, 12).astype(np.float64)
            pq.write_table(pa.table(columns(self.rng, 12, x)), self.folder / name / "all.parquet")

    def feed(self, files: int, count: int = 60, seconds: float = 20.0) -> None:
        """Files of so many tuples: some of a stretch of time come with a later one."""
        for name in STREAMS:
            begun = sum(each.num_rows for each in self.tuples.get(name, ())) / count * seconds
            late = np.sort(self.rng.integers(0, files, files * count // 8))
            tuples = [rows(self.rng, count, begun + number * seconds, seconds) for number in range(files)]
            whole = pa.concat_tables(tuples)
            owner = np.repeat(np.arange(files), count)
            owner[self.rng.choice(len(owner), len(late), replace=False)] = late
            for number in range(files):
                place = len(self.tuples.setdefault(name, []))
                own = whole.filter(pa.array(owner == number))
                pq.write_table(own, self.folder / name / f"{place:04d}.parquet")
                self.tuples[name].append(own)

    def script(self) -> str:
        """Declares all of them."""
        return ";\n".join(
            [
                f"CREATE TABLE {name} USING parquet OPTIONS (path '{self.folder / name}', event_time 'ts', "
                f"max_files_per_trigger '{self.rng.integers(1, 4)}')"
                for name in STREAMS
            ]
            + [
                f"CREATE TABLE {name} USING parquet OPTIONS (path '{self.folder / name}', static 'true')"
                for name in TABLES
            ]
        )

    def register(self, spark: SparkSession, *, is_timed: bool = False) -> None:
        """Lets Spark's own queries see what was fed so far.

        Args:
            spark: the session.
            is_timed: whether tuples without event time are left out.
        """
        for name in self.tuples:
            self.frame(spark, name, is_timed=is_timed).createOrReplaceTempView(name)
        self.register_tables(spark)

    def register_tables(self, spark: SparkSession) -> None:
        """Lets Spark's own queries see the static tables."""
        for name in TABLES:
            files = sorted((self.folder / name).glob("*.parquet"))
            key = (name, *((file.name, file.stat().st_mtime_ns) for file in files))
            if key not in self._frames:
                self._frames[key] = in_one_partition(spark, tuples_of(self.folder / name))
            self._frames[key].createOrReplaceTempView(name)

    def frame(self, spark: SparkSession, name: str, since: int = 0, *, is_timed: bool = False) -> DataFrame:
        """What was fed so far of a stream, made once.

        Args:
            spark: the session.
            name: of the stream.
            since: files before are left out.
            is_timed: whether tuples without an event time are left out.
        """
        tuples = self.tuples[name]
        key = (name, since, len(tuples), is_timed)
        if key not in self._frames:
            frame = in_one_partition(spark, pa.concat_tables(tuples[since:]))
            self._frames[key] = frame.where("ts IS NOT NULL") if is_timed else frame
        return self._frames[key]


def random_order(plan: JoinPlan, rng: np.random.Generator) -> JoinOrder:
    """Any order and any methods."""
    searched = dict.fromkeys(searched_keys(plan))
    orders = []
    for first, each in enumerate(plan.inputs):
        if each.is_static:
            continue
        met, steps = [first], []
        for number in rng.permutation(
            [other for other in range(len(plan.inputs)) if other != first]
        ).tolist():
            keys = [
                key
                for key in searched
                if plan.keys[key].columns[number] is not None
                and any(plan.keys[key].columns[other] is not None for other in met)
            ]
            choices = [ProbeStep(number, Method.NESTED, None)]
            choices += [
                ProbeStep(number, method, key) for key in keys for method in (Method.MERGE, Method.HASH)
            ]
            steps.append(choices[int(rng.integers(0, len(choices)))])
            met.append(number)
        orders.append(ProbeOrder(first, tuple(steps)))
    return JoinOrder(tuple(orders))


def multiset(frame: DataFrame) -> Counter[str]:
    """The rows of a frame, each as text."""
    return Counter(map(repr, frame.toArrow().to_pylist()))


def answered(engine: Engine, output: Path) -> Run:
    """A run over what is there."""
    run = engine.start(output, trigger=Trigger.available_now())
    assert run.await_termination(900)
    return run


def wait(is_so: Callable[[], bool], run: Run, seconds: float = 300) -> None:
    """Waits until something is so; the run goes on meanwhile."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert run.active
        assert time.monotonic() < deadline
        time.sleep(0.2)
