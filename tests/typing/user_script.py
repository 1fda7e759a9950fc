"""A user's script over the whole public interface; it is type checked and never run.

Each `type: ignore[...]` is a wrong use that must be found: an unused one is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock import (
    CheckpointError,
    ConnectionFailedError,
    DamagedError,
    Engine,
    InputError,
    LaneStatus,
    Matcher,
    Matches,
    PenstockError,
    Run,
    RunStatus,
    Settings,
    SqlError,
    StreamFailedError,
    StreamStatus,
    Trigger,
    ViewStatus,
    build_session,
)


def declare(spark: SparkSession) -> Engine:
    engine = Engine(spark, shards=2, strategy="auto", idle_seconds=5.0)
    Engine(spark, Settings(shards=None, deadline_policy="edf"), history_bytes=10)
    Engine(spark, shards="2")  # type: ignore[arg-type]
    Engine(spark, strategy="fast")  # type: ignore[arg-type]
    Engine(spark, shrads=2)  # type: ignore[call-arg]
    Settings(shards="two")  # type: ignore[arg-type]

    engine.execute("CREATE TABLE t (x INT) USING csv OPTIONS (path 'in')").view("v", "SELECT * FROM t")
    engine.stream("s", spark.readStream.format("rate").load(), event_time="timestamp")
    engine.add_views({"a": "SELECT * FROM t", "b": "SELECT x FROM a"}).drop("b")
    engine.add_views(["SELECT * FROM t"])  # type: ignore[arg-type]
    texts: dict[str, str] = dict(engine.views)
    missing: str | None = engine.views.get("none")
    changed = engine.reconcile("CREATE VIEW v AS SELECT x FROM t")
    names: list[str] = [*changed.added, *changed.redefined, *changed.dropped, *texts, missing or ""]
    by_stream: dict[str, list[str]] = engine.declared
    print(names, by_stream, engine.warnings, engine.explain(), len(engine.views), changed.kept)
    return engine


def register(engine: Engine) -> None:
    @engine.function
    def half(values: pa.Array) -> pa.DoubleArray:
        return values

    @engine.function(returns="BIGINT")
    def twice(values: pa.Array) -> pa.Array:
        return values

    @engine.aggregate
    def newest(moments: pa.Array, count: int = 1) -> datetime | None:
        return datetime.fromtimestamp(moments[count].as_py())

    @engine.aggregate("total_of", returns="DOUBLE")
    class Total:
        def add(self, values: pa.Array) -> None: ...
        def remove(self, values: pa.Array) -> None: ...
        def result(self) -> float:
            return 0.0

    # what is decorated keeps its type
    answer: datetime | None = newest(pa.array([1]))
    total: float = Total().result()
    kept: Callable[[pa.Array], pa.Array] = twice
    newest(pa.array([1]), "two")  # type: ignore[arg-type]
    engine.function("plain", half, "DOUBLE").aggregate("all_of_it", Total, "DOUBLE")
    engine.function("plain", half, 5)  # type: ignore[call-overload]
    engine.aggregate(returns=float)  # type: ignore[call-overload]
    print(answer, total, kept)


def write(rows: DataFrame, batch: int) -> None:
    print(rows.columns, batch)


def start(engine: Engine, folder: Path) -> None:
    engine.sink("v", write)
    engine.sink("v", lambda: None)  # type: ignore[arg-type,misc]
    with engine, engine.start(folder, folder / "checkpoint", trigger=Trigger.every("2 seconds")) as run:
        run.stop()
    engine.start("out", trigger=Trigger.available_now(ended=True), progress=print).await_termination(1.5)
    engine.start(trigger=2)  # type: ignore[arg-type]
    Trigger.every(2)  # type: ignore[arg-type]
    Trigger.available_now(True)  # type: ignore[call-arg]
    Trigger().interval = "1 second"  # type: ignore[misc]
    engine.close()


def read(run: Run) -> None:
    ended: bool = run.await_termination()
    frames: list[DataFrame] = [
        run.matches("t", all_definitions=True),
        run.results("v", definition=1, final_only=True),
        run.changes("v"),
        run.misses("v"),
    ]
    events: list[dict[str, Any]] = run.events("batch")
    if run.state == "failed" or run.active:
        print(run.output.upper(), run.explain(), ended, frames, events)
    print(run.state == "finished")  # type: ignore[comparison-overlap]
    print(run.lanes)  # type: ignore[attr-defined]

    status: RunStatus = run.status()
    stream: StreamStatus = status.streams["t"]
    view: ViewStatus = status.views["v"]
    lane: LaneStatus = status.lanes["t.results"]
    backlog: int | None = None if stream.lag is None else stream.lag.backlog
    released: int = 0 if view.deadline is None else view.deadline.released
    final: int = 0 if view.windows is None else view.windows.final
    since: datetime | None = None if lane.trouble is None else lane.trouble.since
    document: dict[str, Any] = status.to_dict()
    stream.tuples = 5  # type: ignore[misc]
    print(stream.tuple)  # type: ignore[attr-defined]
    print(view.deadline.released)  # type: ignore[union-attr]
    print(backlog, released, final, since, document, stream.to_dict(), stream.newest_event_time)


def match(batch: pa.RecordBatch) -> list[str]:
    matcher = Matcher({"far": "distance > 2000"}, batch.schema, timezone="UTC")
    found: Matches = matcher.match(batch)
    Matcher(["distance > 2000"], batch.schema)  # type: ignore[arg-type]
    print(found.to_arrow(), found.offsets.sum(), found.queries.dtype, found.evaluations)
    return found.names


def main() -> None:
    spark = build_session("local[*]", {})
    try:
        start(declare(spark), Path("out"))
    except SqlError as error:
        print(error.text[error.start : error.end])
    except DamagedError as error:
        print(error.path)
    except (CheckpointError, ConnectionFailedError, InputError) as error:
        raise SystemExit(error.exit_code) from error
    except (StreamFailedError, penstock.SinkFailedError) as error:
        print(error.__cause__)
    except PenstockError:
        raise
    print(penstock.Nothing)  # type: ignore[attr-defined]
